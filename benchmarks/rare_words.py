"""Are rare words copied as well as frequent ones? Texts to be said again whose words follow Zipf's
law, and words counted by frequency.

    python -m benchmarks.rare_words --write=FOLDER
    python launch.py train --config=configs/translation.py:pointer_generator --config.data=files --config.data.directory=FOLDER \
      --config.data.source=src --config.data.target=tgt --workdir=WORKDIR ...
    python -m benchmarks.rare_words --directory=FOLDER WORKDIR ...

`--write` makes train, valid and test of 2,000, 200 and 500 texts of 4 to 8 words; the n-th of 1,500
words has a probability proportional to 1 / n, and the target is the source. Words of validation and
test all stand in training, for a vocabulary has no others. A run has written its answers to the
test texts in `translations.txt`: of the reference's words, in bands of how often they stand in the
training source, the share whose place in the answer holds them.
"""

import argparse
import collections
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from attnlab.errors import UserError
from attnlab.progress import table

WORDS, SIZES = 1500, {"train": 2000, "valid": 200, "test": 500}
BANDS = ((1, 2), (3, 5), (6, 20), (21, 10**9))


def texts(seed: int = 0) -> dict[str, list[str]]:
    """The texts of each split; those of valid and test have words of the training split only."""
    draw = random.Random(seed)
    names = [f"w{number}" for number in range(WORDS)]
    odds = [1.0 / (number + 1) for number in range(WORDS)]
    splits: dict[str, list[str]] = {}
    for split, size in SIZES.items():
        seen = {word for text in splits["train"] for word in text.split()} if splits else set(names)
        splits[split] = []
        while len(splits[split]) < size:
            words = draw.choices(names, odds, k=draw.randint(4, 8))
            if seen.issuperset(words):
                splits[split].append(" ".join(words))
    return splits


def write(folder: Path) -> None:
    """The six files."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, lines in texts().items():
        for side in ("src", "tgt"):
            (folder / f"{split}.{side}").write_text("".join(f"{line}\n" for line in lines))


def right(
    counts: Mapping[str, int], references: Sequence[str], answers: Sequence[str]
) -> list[tuple[int, int]]:
    """Words of the references in each band, and how many of them the answers have in their
    place.
    """
    tallies = [[0, 0] for _ in BANDS]
    for reference, answer in zip(references, answers, strict=True):
        answered = answer.split()
        for place, word in enumerate(reference.split()):
            band = next(
                number
                for number, (least, most) in enumerate(BANDS)
                if least <= counts[word] <= most
            )
            tallies[band][0] += 1
            tallies[band][1] += answered[place : place + 1] == [word]
    return [(total, hits) for total, hits in tallies]


def scored(folder: Path, workdirs: Sequence[str]) -> None:
    """Prints a table with a row for each run."""
    counts = collections.Counter(" ".join((folder / "train.src").read_text().splitlines()).split())
    references = (folder / "test.tgt").read_text().splitlines()
    names = [f"{least} to {most}" if most < 10**9 else f"{least} and more" for least, most in BANDS]
    rows = []
    for workdir in workdirs:
        answers = (Path(workdir) / "translations.txt").read_text().splitlines()
        bands = right(counts, references, answers)
        rows.append(
            [workdir, *(f"{hits / max(total, 1):.3f} of {total:,}" for total, hits in bands)]
        )
    table("words right in their place, by how often training has them", ["run", *names], rows)


def main(given: Sequence[str] | None = None) -> int:
    """Write the texts, or score runs."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rare_words", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("workdirs", nargs="*", metavar="WORKDIR")
    parser.add_argument("--write", type=Path, metavar="FOLDER")
    parser.add_argument("--directory", type=Path, metavar="FOLDER")
    arguments = parser.parse_args(given)
    if arguments.write:
        write(arguments.write)
        return 0
    try:
        if not (arguments.directory and arguments.workdirs):
            raise UserError("name --write=FOLDER, or --directory=FOLDER and the folders of runs")
        scored(arguments.directory, arguments.workdirs)
    except (UserError, OSError) as error:
        print(f"rare_words: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
