"""Adapters that attnlab has written, loaded by `peft`: how far is log P of a token from attnlab's?

It runs where torch, transformers and peft are installed beside attnlab, on language models whose
runs were exported (`export RUN --to=peft`):

    python -m tests.weights.golden_peft RUN ...
"""

import sys
from pathlib import Path

import numpy as np
import peft
import torch

import attnlab

if __name__ == "__main__":
    for name in sys.argv[1:]:
        model = peft.AutoPeftModelForCausalLM.from_pretrained(Path(name) / "exports" / "peft")
        run, text = attnlab.load(name), "it's the cat's bird"
        vocabulary = run.task.data.vocabulary
        ids = [vocabulary.special.bos, *vocabulary.encode_all([text])[0]]
        with torch.no_grad(), model.disable_adapter():
            base = torch.log_softmax(model(torch.tensor([ids])).logits[0], dim=-1)
        with torch.no_grad():
            adapted = torch.log_softmax(model(torch.tensor([ids])).logits[0], dim=-1)
        ours = run.score([text])[0].log_probs[: len(ids) - 1]
        for what, every in (("with its adapter", adapted), ("without", base)):
            theirs = every[range(len(ids) - 1), ids[1:]].numpy()
            print(name, what, f"{np.abs(theirs - ours).max():.1e}")
