"""`verify`: does a recorded run come out the same again? Its first steps are repeated in a folder
that is then thrown away.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attnlab import config as configs
from attnlab.api.stored import Stored
from attnlab.commands import session
from attnlab.errors import UserError
from attnlab.flags import add_number
from attnlab.progress import Progress
from attnlab.records import provenance
from attnlab.records.manifest import Manifest, differences
from attnlab.records.stream import Measured, read_records
from attnlab.training.interrupt import Interrupt

Record = dict[str, Any]
SPLITS = (
    "train",
    "valid",
)  # whatever a run has read of the test split, training did not depend on it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder, and how many steps."""
    parser.add_argument(
        "workdir", metavar="WORKDIR", help="the folder of a run, or of one trial of a sweep"
    )
    words = "repeat only the first N steps (default: all that have records)"
    add_number(parser, "--steps", 1, 10**9, words)
    session.add_acceptance(parser)


def run(arguments: argparse.Namespace) -> int:
    """Repeat the run and compare its `metrics.jsonl`, record by record and to the last bit; writes
    nothing into its folder.

    Returns:
      0 if all records are identical, 1 if one differs, 128 + the signal's number if it was stopped
      before either was known.
    """
    began, workdir = time.perf_counter(), Path(arguments.workdir)
    then, recorded = wanted(workdir, arguments.steps)
    session.tell(Stored.find(workdir, accept_changed_code=arguments.accept_changed_code))
    session.start_jax()
    with tempfile.TemporaryDirectory(prefix="attnlab-verify-") as folder:
        signal = repeat(then, workdir, Path(folder), recorded[-1]["step"], began)
        found, now = read_records(Path(folder) / "metrics.jsonl"), Manifest.read(folder)
    difference = first_difference(recorded[: len(found)] if signal else recorded, found)
    if difference is None and signal:
        print(
            f"{workdir}: stopped; the first {len(found)} of {len(recorded)} records are identical"
        )
        return 128 + signal
    if difference is None:
        print(f"{workdir}: identical, {len(found)} records up to step {recorded[-1]['step']}")
        return 0
    print(f"{workdir}: {difference}")
    for change in changes(then, now) if now else []:
        print(f"  not as it was: {change}")
    return 1


def wanted(workdir: Path, steps: int | None) -> tuple[Manifest, list[Record]]:
    """The manifest of a run, and the records to reproduce: at least one.

    Raises:
      UserError: no run there, none with a record yet, or no step asked for.
    """
    session.check_folder("WORKDIR", workdir)
    then = Manifest.read(workdir)
    if then is None:
        raise UserError(
            f"{workdir} holds no run (no manifest.json in it); name the folder of a run or of a"
            " trial"
        )
    records = read_records(workdir / "metrics.jsonl", Measured)
    first = min((record["step"] for record in records), default=None)
    if first is None:
        raise UserError(f"{workdir} has no records yet, so there is nothing to compare with")
    if steps is not None and steps < first:
        raise UserError(
            f"--steps={steps}: the first record of {workdir} is of step {first}; take at least"
            f" {first}"
        )
    return then, [record for record in records if steps is None or record["step"] <= steps]


def repeat(then: Manifest, workdir: Path, folder: Path, until: int, began: float) -> int:
    """Train the recorded config of `workdir` anew in `folder` up to a step; the signal that stopped
    it before, 0 for none.

    Raises:
      UserError: the data is not what the run has read.
    """
    from attnlab.tasks import TASKS
    from attnlab.training.run import Run
    from attnlab.training.session import Session

    config = configs.prepare(configs.from_dict(then.config))
    with Interrupt() as interrupt, Progress(until, every=config.training.log_every) as progress:
        again = Run.prepare(TASKS.resolve(config.task), config, folder, SPLITS)
        then.check_data(dict(again.task.data.fingerprints), workdir)
        again.fit(Session(progress, interrupt, began, until))
    return interrupt.signal or 0


def first_difference(recorded: Sequence[Record], found: Sequence[Record]) -> str | None:
    """The first record and field in which two metric streams differ, in words; None if they are the
    same.
    """
    for old, new in zip(recorded, found, strict=False):
        for name in {**old, **new}:
            was, now = (
                json.dumps(record[name]) if name in record else "nothing" for record in (old, new)
            )  # NaN is itself here
            if was != now:
                return (
                    f"differs first at step {old['step']} ({old['split']}), in {name}: recorded"
                    f" {was}, now {now}"
                )
    if len(recorded) == len(found):
        return None
    end = (recorded if len(recorded) > len(found) else found)[min(len(recorded), len(found))]
    where = (
        "recorded but did not come now"
        if len(recorded) > len(found)
        else "not recorded but came now"
    )
    return f"differs first at step {end['step']} ({end['split']}): this record was {where}"


def changes(then: Manifest, now: Manifest) -> list[str]:
    """What differs between the two environments, of all that may change a number."""
    data = {split: then.data.get(split) for split in now.data}
    devices = {name: value for name, value in then.devices.items() if name != "stacked"}
    found = dataclasses.replace(then, data=data, devices=devices).environment_changes(now)
    if then.vocabulary is not None:
        found += differences(
            {"vocabulary": then.vocabulary}, {"vocabulary": now.vocabulary}, ignore=()
        )
    own, own_now = (provenance.digests(one.own_code) for one in (then, now))
    found += (
        differences({"own_code": own}, {"own_code": own_now}, ignore=())
        if then.own_code is not None
        else []
    )
    for word in (then.own_code or {}).get("accepted", ()):
        found.append(
            f"from step {word['step']} on it had other code ({', '.join(word['changed'])}), which"
            f" {word['by']} accepted"
        )
    if "stacked" in then.devices:
        found.append(
            f"it was trained as one program with {then.devices['stacked'] - 1} other trials, which"
            " rounds otherwise"
        )
    return found
