"""Which translation system loses most on long sentences? BLEU of every variant of a finished sweep,
by the length of the source.

    python -m benchmarks.by_length runs/roads-text --parts=3

Reads the translations of the test split that the sweep has left (`translations.txt` of each trial),
translates nothing. The sentences are put in order of their words and cut into parts of equally many
sentences; BLEU is that of the parts, the mean over seeds.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attnlab import config as configs
from attnlab.data.files import read_lines
from attnlab.decoding.metrics import corpus_scores
from attnlab.errors import UserError
from attnlab.experiments.plan import Plan, Trial
from attnlab.progress import table
from attnlab.records.sealed import check_test_split
from attnlab.tasks import TASKS
from attnlab.tasks.schemas import TextSettings
from benchmarks import rounds

OUTPUT = "translations.txt"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, help="a finished sweep")
    parser.add_argument("--parts", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args()
    plan = Plan.read(chosen.directory)
    trials = (
        [trial for trial in plan.trials() if (trial.workdir(chosen.directory) / OUTPUT).exists()]
        if plan
        else []
    )
    if not trials:
        raise UserError(
            f"{chosen.directory}: no trial with {OUTPUT}; give the folder of a finished sweep of"
            " translations"
        )
    sources, references, lowercase = texts(trials[0], chosen.directory)
    parts = by_length([len(text.split()) for text in sources], chosen.parts)
    rows = []
    for variant in dict.fromkeys(trial.candidate.variant for trial in trials):
        files = [
            read_lines(trial.workdir(chosen.directory) / OUTPUT)
            for trial in trials
            if trial.candidate.variant == variant
        ]
        scores = np.array(
            [[bleu(lines, references, part, lowercase) for part in parts] for lines in files]
        )
        rows.append((variant, len(files), *(round(float(mean), 1) for mean in scores.mean(axis=0))))
    names = [
        f"{len(sources[part[0]].split())} to {len(sources[part[-1]].split())} words"
        for part in parts
    ]
    columns = ("variant", "seeds", *names)
    table(f"BLEU by length of the source, {chosen.directory}", columns, rows)
    rounds.save(chosen.json, {"rows": [dict(zip(columns, row, strict=True)) for row in rows]})


def texts(trial: Trial, directory: Path) -> tuple[list[str], list[str], bool]:
    """Sources and references of the test split, and whether they are compared without case."""
    workdir = trial.workdir(directory)
    check_test_split(workdir)
    config = configs.prepare(configs.from_dict(trial.config))
    assert isinstance(config, TextSettings)
    task: Any = TASKS.resolve(config.task).load(config, workdir, ("test",))
    pairs = task.data.rows["test"]
    return (
        [source for source, _ in pairs],
        [task.vocabularies[1].normalize(target) for _, target in pairs],
        config.vocabulary.lowercase,
    )


def by_length(lengths: Sequence[int], parts: int) -> list[np.ndarray]:
    """The numbers of the sentences, shortest first, in parts of equally many.

    Raises:
      UserError: not between one part and as many as there are sentences.
    """
    if not 1 <= parts <= len(lengths):
        raise UserError(f"--parts={parts}: expected 1 to {len(lengths)}, the number of sentences")
    return np.array_split(np.argsort(lengths, kind="stable"), parts)


def bleu(
    lines: Sequence[str], references: Sequence[str], part: np.ndarray, lowercase: bool
) -> float:
    """BLEU of some of the lines."""
    if len(lines) != len(references):
        raise UserError(f"{OUTPUT} has {len(lines)} lines, the test split {len(references)}")
    return float(
        corpus_scores([lines[n] for n in part], [references[n] for n in part], lowercase=lowercase)[
            "bleu"
        ]
    )


if __name__ == "__main__":
    rounds.main(main)
