"""JoeyNMT 2.3.0 with what it takes to run under a current torch; its model, loss, batching, search
and optimizer stay as they are.

    python REPOSITORY/benchmarks/joeynmt/patched.py train REPOSITORY/benchmarks/joeynmt/rnn.yaml --skip-test

is `python -m joeynmt train ...`, in the folder that prepare.py made. The other scripts import this
module first. The number of threads is the environment variable OMP_NUM_THREADS.
"""

import os
import runpy
from typing import Any

import joeynmt.builders
import torch
from joeynmt.tokenizers import BasicTokenizer

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)))

_plateau, _load, _post_process = (
    joeynmt.builders.ReduceLROnPlateau,
    torch.load,
    BasicTokenizer.post_process,
)


def ReduceLROnPlateau(optimizer: Any, verbose: bool = False, **settings: Any) -> Any:
    """torch 2.7 dropped the argument `verbose`. (JoeyNMT looks at the name of what it builds.)"""
    return _plateau(optimizer=optimizer, **settings)


def load(*arguments: Any, **settings: Any) -> Any:
    """torch 2.6 reads nothing but tensors unless told that a file is trusted."""
    return _load(*arguments, **{"weights_only": False, **settings})


def post_process(
    self: Any, sequence: Any, generate_unk: bool = True, cut_at_sep: bool = True
) -> str:
    """Validation BLEU on words: the pieces are joined as attnlab joins them."""
    joined = _post_process(self, sequence, generate_unk=generate_unk, cut_at_sep=cut_at_sep)
    return joined.replace(" ", "").replace("\u2581", " ").strip() or "<unk>"


joeynmt.builders.ReduceLROnPlateau = ReduceLROnPlateau
torch.load = load
BasicTokenizer.post_process = post_process

if __name__ == "__main__":
    runpy.run_module("joeynmt", run_name="__main__")
