"""The run that another one goes on from (`training.after`): its state at a step, and its records.

    joined       data, batches and seed are the parent's: records and best step are those of one long run
    not joined   the data begins at step 0 of its own plan, no score is compared with one of before, and
                 the records of before are kept beside (`stream.BEFORE`), for the curve

The first start copies all that is needed, so the parent may go afterwards. Importing this loads no jax.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.config.tree import config_hash, to_dict
from attnlab.errors import UserError
from attnlab.records import provenance
from attnlab.records.files import write_atomic
from attnlab.records.manifest import Lineage, Manifest, changed
from attnlab.records.stream import BEFORE, curve_lines

if TYPE_CHECKING:
    import numpy as np

    from attnlab.data.batching import Batches
    from attnlab.tasks.schemas import Settings

OWN_PLAN = ("data", "batch", "seed")
"""With another one of these the data begins at step 0 of its own plan."""
MAY_CHANGE = (
    *OWN_PLAN,
    *("schedule", "parallel", "decoding", "checkpoint.every", "checkpoint.keep"),
    *(
        f"training.{name}"
        for name in (
            *("steps", "clip", "accumulate", "after", "stop", "lag"),
            *("log_every", "evaluate_every", "evaluate_rows"),
        )
    ),
)
"""What a run may have other than its parent; every other setting is refused by name."""


@dataclasses.dataclass(frozen=True)
class Parent:
    """The parent of a run that is about to begin, or has begun.

    Attributes:
      folder: the parent's.
      lineage: what the manifest of the child says of it.
    """

    folder: Path
    lineage: Lineage

    @classmethod
    def of(cls, config: Settings, code: provenance.Code | None = None) -> Parent | None:
        """The parent that `training.after` names, compared with the config; None if it names none.

        Raises:
          UserError: there is no such run or step, the run would end before it, or a setting differs
            that may not change.
          Changed: the user's code is not that of the parent.
        """
        if not config.training.after:
            return None
        folder, step = split(config.training.after.replace("{seed}", str(config.seed)))
        where = f"config.training.after={config.training.after}"
        manifest = Manifest.read(folder)
        if manifest is None:
            raise UserError(f"{where}: {folder} holds no run; name the folder of a run")
        step = _step(folder, step, where)
        if config.training.steps <= step:
            raise UserError(
                f"config.training.steps={config.training.steps}: {folder} is at step {step}"
                f" already; take more, or an earlier step with {where.partition('@')[0]}@STEP"
            )
        other = changed(manifest.config, config, MAY_CHANGE)
        before = float(manifest.config["training"]["clip"])
        if bool(before) != bool(config.training.clip):
            other.append(
                f"training.clip: saved {before}, wanted {config.training.clip} (0 is another"
                " state of the optimizer; 1e9 clips nothing)"
            )
        if other:
            raise UserError(
                f"{where}: that run has another config: {'; '.join(other[:5])}; what may change:"
                f" {', '.join(MAY_CHANGE)}"
            )
        code = code or provenance.of(config)
        provenance.check(provenance.of_part(manifest.own_code, code), code, folder)
        own_plan = bool(_lines_of(changed(manifest.config, config, ()), OWN_PLAN))
        before_it = manifest.parent
        lineage: Lineage = {
            "workdir": str(folder),
            "config_hash": config_hash(manifest.config),
            "step": step,
            "data_from": step if own_plan else before_it["data_from"] if before_it else 0,
            "joined": not own_plan and _has_best(folder, step),
        }
        return cls(folder, lineage)

    @classmethod
    def begun(cls, manifest: Manifest | None) -> Parent | None:
        """The parent of a run that has begun; None if it has none."""
        lineage = None if manifest is None else manifest.parent
        return None if lineage is None else cls(Path(lineage["workdir"]), lineage)

    def check_data(self, config: Settings, prints: Mapping[str, str]) -> None:
        """Raise `Changed` if the child names the parent's data and that has changed since."""
        manifest = Manifest.read(self.folder)
        if manifest and to_dict(manifest.config["data"]) == to_dict(config.data):
            manifest.check_data(prints, self.folder)

    def note(self) -> str:
        """What a person should know: where it begins, and the data."""
        line = f"goes on from step {self.lineage['step']} of {self.folder}"
        if first := self.lineage["data_from"]:
            line += f"; its data begins at step {first} with its own plan"
        return line

    def restarts(self, step: int) -> bool:
        """Whether the state of a step is the parent's and begins data and records of its own."""
        return step == self.lineage["step"] and not self.lineage["joined"]

    def copy(self, workdir: Path) -> None:
        """Copy records and state into a child that has none; a second time after a kill.

        Raises:
          UserError: the parent is gone, or is not what it was.
        """
        step, best = self.lineage["step"], None
        try:
            manifest = Manifest.read(self.folder)
            if manifest is None or config_hash(manifest.config) != self.lineage["config_hash"]:
                raise FileNotFoundError("the run is not there any more, or is another one")
            if self.lineage["joined"]:
                best = saved_record(self.folder, step)["best"]
            name = "metrics.jsonl" if self.lineage["joined"] else BEFORE
            write_atomic(workdir / name, curve_lines(self.folder, step, not self.lineage["joined"]))
            folder = workdir / "checkpoints"
            folder.mkdir(parents=True, exist_ok=True)
            for number in dict.fromkeys([best or step, step]):  # the newest last
                half = folder / f"deleting-{number}"  # what a killed copy leaves is removed later
                shutil.rmtree(half, ignore_errors=True)
                shutil.copytree(self.folder / "checkpoints" / str(number), half)
                shutil.rmtree(folder / str(number), ignore_errors=True)
                half.rename(folder / str(number))
        except (OSError, KeyError, ValueError) as error:
            raise UserError(
                f"{workdir} goes on from step {step} of {self.folder}, which cannot be copied"
                f" ({error}): put that run back, or use another --workdir"
            ) from error


@dataclasses.dataclass(frozen=True)
class LaterBatches:
    """The batches of a run whose data begins at a step `first`, as the 0th of its own plan."""

    batches: Batches
    first: int

    def __call__(self, step: int) -> dict[str, np.ndarray]:
        """The batch of a step of the run."""
        return self.batches(step - self.first)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.batches, name)


def split(after: str) -> tuple[Path, int | None]:
    """The folder and the step of "FOLDER@STEP"; None for a step that is not named."""
    folder, mark, step = after.rpartition("@")
    named = bool(mark) and step.isdecimal()
    return Path(folder if named else after).expanduser(), int(step) if named else None


def _step(folder: Path, step: int | None, where: str) -> int:
    """The wanted step of a run, or its newest; `UserError` if it is not there."""
    paths = (folder / "checkpoints").glob("*")
    steps = sorted(int(path.name) for path in paths if path.name.isdecimal())
    if not steps or step not in (None, *steps):
        saved = f"has the steps {', '.join(map(str, steps))}" if steps else "has saved no step yet"
        raise UserError(f"{where}: {folder} {saved}; name one of those, as FOLDER@STEP")
    return steps[-1] if step is None else step


def saved_record(folder: Path, step: int) -> dict[str, Any]:
    """What a run has stored beside the arrays of a step; it is verified when it is restored."""
    text = (folder / "checkpoints" / str(step) / "meta" / "metadata").read_text()
    content: dict[str, Any] = json.loads(text)["content"]
    return content


def _has_best(folder: Path, step: int) -> bool:
    """Whether the step that was the best at `step` is still there; a damaged record is for its
    reader to tell.
    """
    try:
        best = saved_record(folder, step)["best"]
    except (OSError, ValueError, KeyError):
        return True
    return best is None or (folder / "checkpoints" / str(best)).is_dir()


def _lines_of(lines: list[str], nodes: tuple[str, ...]) -> list[str]:
    """The lines of `changed` that are of one of these nodes."""
    return [line for line in lines if line.partition(":")[0].partition(".")[0] in nodes]
