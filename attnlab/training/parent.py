"""The run that another one goes on from (`training.after`): its state at a step, and its records.

    joined       data, batches, seed and scored rows are the parent's: records and best step are those of
                 one long run
    not joined   no score is compared with one of before, and the records of before are kept beside
                 (`stream.BEFORE`), for the curve; other data begins at step 0 of its own plan

The first start copies all that is needed, so the parent may go afterwards. Importing this loads no jax.
"""

import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.config.tree import config_hash, is_below
from attnlab.errors import UserError
from attnlab.records import provenance
from attnlab.records.files import write_atomic
from attnlab.records.locks import holder, is_held
from attnlab.records.manifest import Lineage, Manifest, changed
from attnlab.records.sealed import sweep_of, trial_behind
from attnlab.records.stream import BEFORE, lines_until

if TYPE_CHECKING:
    import numpy as np

    from attnlab.data.batching import Batches
    from attnlab.tasks.schemas import Settings

OWN_PLAN = ("data", "batch", "seed")
"""With another one of these the data begins at step 0 of its own plan."""
_OF_TRAINING = "steps accumulate after stop lag metrics log_every evaluate_every evaluate_rows"
MAY_CHANGE = [*OWN_PLAN, "schedule", "parallel", "decoding", "checkpoint.every", "checkpoint.keep"]
MAY_CHANGE += [f"training.{name}" for name in _OF_TRAINING.split()]
"""What a run may have other than its parent, beside one bound of `training.clip` for another (0 is
another state of the optimizer); every other setting is refused by name.
"""


def lineage_of(config: "Settings", code: provenance.Code | None = None) -> Lineage | None:
    """Returns the `Lineage` of a config whose `training.after` names a parent run, else None;
    raises `UserError` or `Changed` if config or user's `code` (None: as now) may not go on from it.

    Raises:
      UserError: there is no such run or step, the run would end before it, or a setting differs
        that may not change.
      Changed: the user's code is not that of the parent.
    """
    if not config.training.after:
        return None
    folder, named_step = parse_run(config.training.after.replace("{seed}", str(config.seed)))
    if is_held(folder):
        raise UserError(
            f"config.training.after={config.training.after}: {folder} is at work ({holder(folder)});"
            " wait for it, or stop it"
        )
    manifest, steps = Manifest.read(folder), provenance.saved_steps(folder / "checkpoints")
    step = steps[-1] if named_step is None and steps else named_step
    if manifest is not None:
        manifest.check_states(folder, "best")
    clips = manifest and manifest.config["training"]["clip"] and config.training.clip
    allowed = [*MAY_CHANGE, *["training.clip"] * bool(clips)]
    problem = ""
    if manifest is None:
        problem = f"{folder} holds no run; name the folder of a run"
    elif step not in steps:
        listed = ", ".join(map(str, steps)) or "(none yet)"
        problem = f"{folder} has saved the steps {listed}; name one of those, as FOLDER@STEP"
    elif config.training.steps <= step:
        problem = f"training.steps={config.training.steps}, and {folder} is at step {step} already; take more"
    elif other := changed(manifest.config, config, allowed):
        problem = f"another config: {'; '.join(other[:5])}; may change: {', '.join(allowed)}"
    if problem or manifest is None or step is None:
        raise UserError(f"config.training.after={config.training.after}: {problem}")
    code = code or provenance.code(config)
    provenance.check(provenance.without_unread(manifest.own_code, code), code, folder)
    names = [line.partition(":")[0] for line in changed(manifest.config, config, [])]
    own_plan = any(is_below(name, OWN_PLAN) for name in names)
    alike = not own_plan and "training.evaluate_rows" not in names
    older = manifest.parent
    begun_at = older["data_from"] if older else 0
    before = [*older.get("before", ()), older["step"]] if older else []
    best = _best_at(folder, step) if alike else None
    return {
        "workdir": str(folder),
        "config_hash": config_hash(manifest.config),
        "step": step,
        "data_from": step if own_plan else begun_at,
        "before": [number for number in before if number < step],
        "joined": alike and best in (None, *steps),  # else its best parameters are gone
        "trial": str(folder.absolute()) if sweep_of(folder) else trial_behind(folder),
    }


def copy_state(lineage: Lineage, workdir: Path) -> None:
    """Copies into `workdir` the state of the parent run at the step that `lineage` names, that of
    its best step too if `lineage` says "joined", and its records up to there, unless `workdir` has
    saved as late a step; raises `UserError` if the parent is gone or another one.

    Raises:
      UserError: the parent is gone, or is not what it was.
    """
    folder, step, joined = Path(lineage["workdir"]), lineage["step"], lineage["joined"]
    checkpoints = workdir / "checkpoints"
    if (provenance.saved_step(workdir) or 0) >= step:
        return
    try:
        manifest = Manifest.read(folder)
        if manifest is None or config_hash(manifest.config) != lineage["config_hash"]:
            raise FileNotFoundError("the run is not there any more, or is another one")
        lines = {name: lines_until(folder / name, step) for name in (BEFORE, "metrics.jsonl")}
        for name, content in lines.items() if joined else ((BEFORE, b"".join(lines.values())),):
            if content:
                write_atomic(workdir / name, content)
        best = _best_at(folder, step) if joined else None
        for number in dict.fromkeys([best or step, step]):  # the newest last
            half = checkpoints / f"deleting-{number}"  # what a killed copy leaves is removed later
            for path in (half, checkpoints / str(number)):
                shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(
                folder / "checkpoints" / str(number), half, copy_function=shutil.copyfile
            )
            if not joined:
                _mark_restarted(half, lineage["data_from"] == step)
            half.rename(checkpoints / str(number))
    except (OSError, KeyError, ValueError) as error:
        raise UserError(
            f"{workdir} goes on from step {step} of {folder}, which cannot be copied ({error}): put"
            " that run back, or use another --workdir"
        ) from error


def _mark_restarted(saved: Path, rows: bool) -> None:
    """Rewrites the metadata of a copied step in the folder `saved` so that it has no best step,
    score or record, and with `rows` what was remembered of rows of the batch is not used (see
    `Journal.begin`).
    """
    from attnlab.training.orbax_steps import digested

    path = saved / "meta" / "metadata"
    content = json.loads(path.read_text())["content"]
    meta = {"best": [math.inf, math.inf], "records": None, "restarts": rows}
    path.write_text(json.dumps(digested({**content, "best": None, "meta": meta})))


@dataclasses.dataclass(frozen=True)
class LaterBatches:
    """The batches of a run whose data begins at a step `first`, as the 0th of its own plan."""

    batches: "Batches"
    first: int

    def __call__(self, step: int) -> "dict[str, np.ndarray]":
        """Returns the batch of a step of the run."""
        return self.batches(step - self.first)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.batches, name)


def parse_run(named_run: str) -> tuple[Path, int | None]:
    """Returns the folder and the step of "FOLDER@STEP"; None for a step that is not named."""
    folder, mark, step = named_run.rpartition("@")
    named = bool(mark) and step.isdecimal()
    return Path(folder if named else named_run).expanduser(), int(step) if named else None


def _best_at(folder: Path, step: int) -> int | None:
    """Returns the best step that the checkpoint `step` of the run in `folder` records, or None if
    it records none or is damaged (whoever restores it reports that).
    """
    try:
        text = (folder / "checkpoints" / str(step) / "meta" / "metadata").read_text()
        best: int | None = json.loads(text)["content"]["best"]
    except (OSError, KeyError, ValueError, TypeError):
        return None
    return best
