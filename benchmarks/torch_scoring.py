"""The other side of `benchmarks.scoring`: the same texts by transformers, sorted by length.

    taskset -c 0,1 python -P benchmarks/torch_scoring.py FOLDER TEXTS     in an environment with torch; imports nothing of attnlab

Makes FOLDER if it is not there: GPT-2 small with random weights, and a tokenizer of 20,000 words of
TEXTS. Prints `tokens_a_second X`, and writes log P of each text to FOLDER/torch.npy.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
import transformers

TEXTS, LONGER, AT_ONCE = 64, 200, 8  # as in scoring.py


def main() -> None:
    """Measure and print."""
    folder, file = map(Path, sys.argv[1:])
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    transformers.utils.logging.disable_progress_bar()
    if not (folder / "config.json").is_file():
        make(folder, file)
    model: Any = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    long = (line for line in file.read_text().splitlines() if len(line) > LONGER)
    texts = [line.strip() for line, _ in zip(long, range(TEXTS), strict=False)]
    taken: list[float] = []
    while len(taken) < 4 or sum(taken[1:]) < 10.0:
        start = time.perf_counter()
        log_probs, count = scores(model, tokenizer, texts)
        taken.append(time.perf_counter() - start)
    np.save(folder / "torch.npy", log_probs)
    print(f"tokens_a_second {count / min(taken[1:]):.6g}")


def make(folder: Path, file: Path) -> None:
    """Write the model and its tokenizer."""
    torch.manual_seed(0)
    bpe = tokenizers.ByteLevelBPETokenizer()
    bpe.train([str(file)], vocab_size=20_000, special_tokens=["<|endoftext|>"])
    ends = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=bpe._tokenizer, **ends)
    fast.save_pretrained(folder)
    config = transformers.GPT2Config(vocab_size=len(fast), bos_token_id=0, eos_token_id=0)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)


@torch.no_grad()
def scores(model: Any, tokenizer: Any, texts: list[str]) -> tuple[np.ndarray, int]:
    """log P [N] of each text after the token that begins it, and the number of their tokens."""
    ids = [[0, *tokenizer(text)["input_ids"]] for text in texts]
    order = np.argsort([len(row) for row in ids])
    log_probs = np.zeros(len(texts))
    for begin in range(0, len(order), AT_ONCE):
        rows = order[begin : begin + AT_ONCE]
        width = max(len(ids[row]) for row in rows)
        batch = torch.tensor([ids[row] + [0] * (width - len(ids[row])) for row in rows])
        every = torch.log_softmax(model(batch[:, :-1]).logits, dim=-1)
        each = every.gather(2, batch[:, 1:, None])[..., 0]
        for row, of_row in zip(rows, each, strict=True):
            log_probs[row] = of_row[: len(ids[row]) - 1].sum()
    return log_probs, sum(len(row) - 1 for row in ids)


if __name__ == "__main__":
    main()
