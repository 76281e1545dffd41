"""Whether two trials have the same records, bit for bit, and whether one was ever at work twice at
a time.
"""

import json
from pathlib import Path
from typing import Any

from attnlab.records import attempts

SAME = ("metrics.jsonl", "valid.json", "translations.txt")
CLOCKED = ("decoding_seconds",)


def differences(one: Path, other: Path) -> list[str]:
    """What differs between two finished trials: metric stream, scores, translations, and every
    array of the last checkpoint.
    """
    wrong = [name for name in SAME if (one / name).read_bytes() != (other / name).read_bytes()]
    if timeless(one / "results.json") != timeless(other / "results.json"):
        wrong.append("results.json")
    first, second = digests(one), digests(other)
    return wrong + [
        f"{path} of the last checkpoint"
        for path in first | second
        if first.get(path) != second.get(path)
    ]


def timeless(path: Path) -> dict[str, Any]:
    """Results without what a clock says."""
    return {
        key: value for key, value in json.loads(path.read_bytes()).items() if key not in CLOCKED
    }


def digests(workdir: Path) -> dict[str, Any]:
    """The digest of every array of the last checkpoint, and its step."""
    from attnlab.training.checkpoints import Checkpoints

    checkpoints = Checkpoints(workdir / "checkpoints", 2, read_only=True)
    step = checkpoints.steps()[-1]
    record = checkpoints._store().read_record(step)
    checkpoints.close()
    return {"step": step, **record["arrays"]}


def overlaps(workdir: Path) -> list[str]:
    """Attempts that began before the one before had ended, and steps that were trained again after
    they had been saved.
    """
    wrong, saved, open_ = [], 0, False
    for record in attempts.read(workdir):
        if record["event"] == "start":
            if record["step"] < saved:
                wrong.append(f"went on from step {record['step']}, though {saved} was saved")
            open_ = True
        elif record["event"] == "end":
            if not open_:
                wrong.append("an end without a beginning")
            saved, open_ = record["step"], False
    return wrong
