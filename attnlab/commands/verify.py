"""`verify`: repeat the first steps of a recorded run elsewhere and compare the records."""

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
from attnlab.tasks import TASKS
from attnlab.training.run import Run
from attnlab.training.session import Interrupt, Session

Record = dict[str, Any]
SPLITS = ("train", "valid")  # training never depends on the test split


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `verify` to its parser: the folder of the run, `--steps`,
    `--accept-changed-code`.
    """
    meaning = "the folder of a run, or of one trial of a sweep; also without the flag"
    parser.add_argument("--workdir", metavar="RUN", help=meaning)
    meaning = "repeat only the first N steps (default: all that have records)"
    add_number(parser, "--steps", 1, 10**9, meaning)
    session.add_acceptance(parser)


def run(arguments: argparse.Namespace) -> int:
    """Trains a recorded run again in a temporary folder, compares its `metrics.jsonl` bit by bit
    with the recorded one and prints the first difference; returns 0 if there is none, else 1, or
    128 + signal if stopped.

    Returns:
      0 if all records are identical, 1 if one differs, 128 + the signal's number if it was stopped
      before either was known.
    """
    began = time.perf_counter()
    workdir = session.folder_of(arguments)
    original, recorded = read_original(workdir, arguments.steps)
    accepted = arguments.accept_changed_code
    session.print_notes(Stored.find(workdir, accept_changed_code=accepted).notes())
    session.start_jax()
    with tempfile.TemporaryDirectory(prefix="attnlab-verify-") as folder:
        signal = retrain(original, workdir, Path(folder), recorded[-1]["step"], began)
        repeated = read_records(Path(folder) / "metrics.jsonl")
        manifest = Manifest.read(folder)
    difference = first_difference(recorded[: len(repeated)] if signal else recorded, repeated)
    if difference is None and signal:
        print(
            f"{workdir}: stopped; the first {len(repeated)} of {len(recorded)} records are"
            " identical"
        )
        return 128 + signal
    if difference is None:
        print(f"{workdir}: identical, {len(repeated)} records up to step {recorded[-1]['step']}")
        return 0
    print(f"{workdir}: {difference}")
    for change in changes(original, manifest) if manifest else []:
        print(f"  not as it was: {change}")
    return 1


def read_original(workdir: Path, steps: int | None) -> tuple[Manifest, list[Record]]:
    """Returns the manifest of the run in `workdir`, and its metric records up to step `steps` (all
    if None): at least one.

    Raises:
      UserError: no run in the folder, no record yet, or `steps` before the first record.
    """
    original = session.manifest_of(workdir)
    records = read_records(workdir / "metrics.jsonl", Measured)
    first = min((record["step"] for record in records), default=None)
    if first is None:
        raise UserError(f"{workdir} has no records yet, so there is nothing to compare with")
    if steps is not None and steps < first:
        raise UserError(
            f"--steps={steps}: the first record of {workdir} is of step {first}; take at least"
            f" {first}"
        )
    return original, [record for record in records if steps is None or record["step"] <= steps]


def retrain(original: Manifest, workdir: Path, folder: Path, until: int, began: float) -> int:
    """Trains the recorded config of a run from the start in the new `folder`, up to step `until`;
    returns the number of the signal that interrupted it, 0 if none did.

    Raises:
      UserError: the data is not that of the run.
    """
    config = configs.prepare(configs.from_dict(original.config))
    with Interrupt() as interrupt, Progress(until, every=config.training.log_every) as progress:
        training = Run.prepare(TASKS.resolve(config.task), config, folder, SPLITS)
        original.check_data(dict(training.task.data.fingerprints), workdir)
        training.fit(Session(progress, interrupt, began, until))
    return interrupt.signal or 0


def first_difference(recorded: Sequence[Record], repeated: Sequence[Record]) -> str | None:
    """Returns a text that names the first record and field in which two metric streams differ
    (values, or a record that only one has), or None if they are equal.
    """
    for old, new in zip(recorded, repeated, strict=False):
        for name in {**old, **new}:
            old_text, new_text = (
                json.dumps(record[name]) if name in record else "nothing" for record in (old, new)
            )  # NaN is itself here
            if old_text != new_text:
                return (
                    f"differs first at step {old['step']} ({old['split']}), in {name}: recorded"
                    f" {old_text}, now {new_text}"
                )
    if len(recorded) == len(repeated):
        return None
    shorter, longer = sorted((recorded, repeated), key=len)
    extra = longer[len(shorter)]
    lost = len(recorded) > len(repeated)
    side = "recorded but did not come now" if lost else "not recorded but came now"
    return f"differs first at step {extra['step']} ({extra['split']}): this record was {side}"


def changes(original: Manifest, repeated: Manifest) -> list[str]:
    """Returns the differences between the environments of two runs that may change a number (data,
    devices, versions, vocabulary, code, stacked training), one line each.
    """
    data = {split: original.data.get(split) for split in repeated.data}
    devices = {name: value for name, value in original.devices.items() if name != "stacked"}
    lines = dataclasses.replace(original, data=data, devices=devices).environment_changes(repeated)
    before, now = (
        {"vocabulary": manifest.vocabulary, "own_code": provenance.digests(manifest.own_code)}
        for manifest in (original, repeated)
    )
    unrecorded = [part for part in before if getattr(original, part) is None]
    lines += differences(before, now, ignore=unrecorded)
    for change in provenance.accepted_changes(original.own_code):
        lines.append(
            f"from step {change['step']} on it had other code ({', '.join(change['changed'])}),"
            f" which {change['by']} accepted"
        )
    if "stacked" in original.devices:
        lines.append(
            f"it was trained as one program with {original.devices['stacked'] - 1} other trials,"
            " which rounds otherwise"
        )
    return lines
