"""The other side of `benchmarks.generation`: the same texts by `generate` of transformers.

    taskset -c 0,1 python -P benchmarks/torch_decoding.py FOLDER     in an environment with torch; imports nothing of attnlab

FOLDER: where GPT-2 small is, with random weights; it is made if it is not there. Prints the least
seconds of whole calls as lines `batch_B X` for each number of rows, the seconds of a single token
as `token_T X`, and writes the tokens of each batch to FOLDER as `torch_B.npy`. Greedy search with
the cache of keys and values that `generate` takes by default, float32, no end of a text; as many
threads as there are cores to run on.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

BATCHES, PROMPT, NEW = (1, 8), 128, 128
PLACES, SHORT, AROUND = (10, 100, 500, 1000), 8, 10  # as in generation.py


def main() -> None:
    """Measure and print."""
    folder = Path(sys.argv[1])
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    transformers.utils.logging.disable_progress_bar()
    if not (folder / "config.json").is_file():
        transformers.GPT2LMHeadModel(transformers.GPT2Config()).save_pretrained(folder)
    model: Any = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    model.generation_config.eos_token_id = model.generation_config.pad_token_id = None
    for rows in BATCHES:
        prompts = drawn(rows, PROMPT, model.config.vocab_size)
        taken: list[float] = []
        tokens: Any = None
        while len(taken) < 3 or sum(taken[1:]) < 6.0:
            start = time.perf_counter()
            tokens = model.generate(prompts, max_new_tokens=NEW, do_sample=False)
            taken.append(time.perf_counter() - start)
        assert tokens.shape == (rows, PROMPT + NEW)
        np.save(folder / f"torch_{rows}.npy", tokens[:, PROMPT:].numpy())
        print(f"batch_{rows} {min(taken[1:]):.6g}", flush=True)
    clock = Clock()
    prompts = drawn(1, SHORT, model.config.vocab_size)
    model.generate(prompts, max_new_tokens=PLACES[-1] + AROUND, do_sample=False, streamer=clock)
    at = np.asarray(clock.at)
    for place in PLACES:
        around = at[place + AROUND // 2 - 1] - at[place - AROUND // 2 - 1]
        print(f"token_{place} {around / AROUND:.6g}", flush=True)


def drawn(rows: int, length: int, vocabulary: int) -> torch.Tensor:
    """Texts [rows,length] of any tokens, always the same."""
    every = np.random.RandomState(0).randint(vocabulary, size=(rows, length))
    return torch.tensor(every)


class Clock(transformers.generation.streamers.BaseStreamer):
    """When each new token was there."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self._prompt = True

    def put(self, value: Any) -> None:
        """Called with the prompt, then with every token."""
        if not self._prompt:
            self.at.append(time.perf_counter())
        self._prompt = False

    def end(self) -> None:
        """Nothing is left to do."""


if __name__ == "__main__":
    main()
