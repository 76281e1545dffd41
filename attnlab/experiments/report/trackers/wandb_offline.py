"""Weights & Biases: a folder `wandb/offline-run-...-ID` for each run, as `WANDB_MODE=offline`
leaves it, for `wandb sync`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.experiments.report.trackers.runs import Tracked, folder, needed
from attnlab.records.files import write_atomic

PROJECT = "attnlab"
_DIGEST = "attnlab.digest"
_LONGEST_TAG = 64  # characters; W&B refuses more


class Store:
    """Offline runs below `out/wandb`; those that were synchronised and have not changed stay marked
    as such.
    """

    def __init__(self, out: Path, runs: Sequence[Tracked]) -> None:
        """Imports W&B (raises UserError if it is not installed) and makes the folder `out`."""
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # it would call home
        self._wandb: Any = needed("wandb", "wandb")
        self._out = folder(out)
        self.hint = f"wandb sync {out / 'wandb'}/offline-run-*"

    def held(self) -> Mapping[str, str]:
        """Returns the digest of every stored run by its id, from the file in its folder; "" for a
        run that is stored twice or without a digest.
        """
        digests: dict[str, str] = {}
        for path in self._all():
            identity, written = path.name.rpartition("-")[2], path / _DIGEST
            digests[identity] = (
                written.read_text().strip() if written.exists() and identity not in digests else ""
            )
        return digests

    def remove(self, identity: str) -> None:
        """All folders of a run."""
        for path in self._all(identity):
            shutil.rmtree(path)

    def write(self, run: Tracked) -> None:
        """Writes an offline run by W&B's own client, without facts on this machine, then its digest
        into its folder.
        """
        wandb, facts = self._wandb, run.facts
        quiet = {"console": "off", "silent": True, "disable_git": True, "save_code": False}
        quiet |= {"x_disable_meta": True, "x_disable_stats": True}
        tags = [str(facts["variant"])[:_LONGEST_TAG], f"seed {facts['seed']}"]
        tags += ["chosen"] * (facts["chosen"] == "yes")
        config = {**run.config}
        config |= {name: facts[name] for name in ("variant", "candidate", "chosen")}
        names = {
            "project": PROJECT,
            "id": run.id,
            "name": facts["trial"],
            "group": run.group,
            "job_type": facts["variant"][:_LONGEST_TAG],
        }
        settings = wandb.Settings(**quiet)
        started = wandb.init(
            **names, tags=tags, config=config, mode="offline", dir=str(self._out), settings=settings
        )
        for point in run.curve:
            started.log(dict(point.values), step=point.step)
        started.summary.update({**run.final, "state": facts["state"]})
        started.finish(exit_code=0 if facts["state"] in ("done", "running") else 1)
        for path in self._all(run.id):
            write_atomic(path / _DIGEST, run.digest + "\n")

    def _all(self, identity: str = "*") -> list[Path]:
        return sorted((self._out / "wandb").glob(f"offline-run-*-{identity}"))
