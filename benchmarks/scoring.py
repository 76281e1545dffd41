"""How many tokens a second does `score` read, beside transformers?

    taskset -c 0,1 python -m benchmarks.scoring FOLDER TEXTS --versus="PYTHON_WITH_TORCH -P benchmarks/torch_scoring.py FOLDER TEXTS"

FOLDER holds GPT-2 small with random weights and a tokenizer of the words of TEXTS; the other side
makes it, so give its command once by hand before. Both score the first 64 lines of TEXTS that are
longer than 200 characters, float32, at most 8 at once, tokenizing included, compiling not: the least
seconds of a call give tokens a second. Also printed is how far log P of a text differs.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

import attnlab
from benchmarks import rounds

TEXTS, LONGER, AT_ONCE = 64, 200, 8  # as in torch_scoring.py


def main() -> None:
    """Measure and print one table."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("folder", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--versus", metavar="COMMAND", required=True)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side")
    parser.add_argument("--figures", action="store_true", help="print ours alone, as lines")
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args()
    if chosen.figures:
        print(f"tokens_a_second {tokens_a_second(chosen.folder, chosen.texts):.6g}")
        return
    ours = (
        f"{sys.executable} -m benchmarks.scoring {chosen.folder} {chosen.texts} --versus= --figures"
    )
    commands = {"attnlab": ours, "transformers": chosen.versus}
    title, wanted = "log P of texts, GPT-2 small", ["tokens_a_second"]
    rounds.compare(title, commands, wanted, chosen.rounds, chosen.json, less_is_better=False)
    mine, other = (np.load(chosen.folder / f"{name}.npy") for name in ("attnlab", "torch"))
    print(f"largest difference of log P, as a share of it: {np.abs(mine / other - 1).max():.1e}")


def tokens_a_second(folder: Path, file: Path) -> float:
    """Tokens read in a second by the fastest of at least three calls after a first one; writes log P
    of each text to the folder.
    """
    run = attnlab.load_pretrained(folder, {"decoding.batch": AT_ONCE})
    long = (line for line in file.read_text().splitlines() if len(line) > LONGER)
    texts = [line.strip() for line, _ in zip(long, range(TEXTS), strict=False)]
    taken: list[float] = []
    while len(taken) < 4 or sum(taken[1:]) < 10.0:
        start = time.perf_counter()
        scored = run.score(texts, end=False)
        taken.append(time.perf_counter() - start)
    np.save(folder / "attnlab.npy", [text.log_prob for text in scored])
    return sum(len(text.tokens) for text in scored) / min(taken[1:])


if __name__ == "__main__":
    rounds.main(main)
