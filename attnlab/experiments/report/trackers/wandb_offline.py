"""Weights & Biases: a folder `wandb/offline-run-...-ID` for each run, as `WANDB_MODE=offline`
leaves it, for `wandb sync`; or its server.
"""

import importlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from attnlab.experiments.report.trackers import Tracked, TrackerStore, folder
from attnlab.records.files import write_atomic

PROJECT = "attnlab"
_DIGEST = "attnlab.digest"
_LONGEST_TAG = 64  # characters; W&B refuses more


class Store(TrackerStore):
    """Offline runs in the folder `where`, below `wandb`; those that were synchronised and have not
    changed stay marked as such. Or runs of the server, if `where` is "online".
    """

    def __init__(self, where: str, wanted: Sequence[Tracked] = ()) -> None:
        """Imports W&B, and makes the folder `where` unless it is "online"."""
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # it would call home
        self._wandb: Any = importlib.import_module("wandb")
        self._online = where == "online"
        self._out = Path.cwd() if self._online else folder(Path(where))
        offline = f"wandb sync {self._out / 'wandb'}/offline-run-*"
        self.hint = f"project {PROJECT} on the server of W&B" if self._online else offline

    def stored(self) -> Iterator[tuple[str, str]]:
        """Yields the id and the digest of every stored run, from the file in its folder; "" without
        one.
        """
        for path in self._all():
            digest = (path / _DIGEST).read_text().strip() if (path / _DIGEST).exists() else ""
            yield path.name.rpartition("-")[2], digest

    def open(self, run: Tracked) -> tuple[Any, int]:
        """Begins a run by W&B's own client, without recording facts of this machine, and returns it
        with the last stored step; offline it first deletes the run's old folders, and the step is
        -1, since the records have all of it.
        """
        facts, given = run.facts, {"mode": "online", "resume": "allow"}
        if not self._online:
            given = {"mode": "offline"}
            for path in self._all(run.id):
                shutil.rmtree(path)
        quiet = {"console": "off", "silent": True, "disable_git": True, "save_code": False}
        quiet |= {"x_disable_meta": True, "x_disable_stats": True}
        tags, config = [f"seed {facts['seed']}"], {**run.config}
        if "variant" in facts:
            variant = str(facts["variant"])[:_LONGEST_TAG]
            given |= {"group": run.group, "job_type": variant}
            tags = [variant, *tags, *["chosen"] * (facts["chosen"] == "yes")]
            config |= {name: facts[name] for name in ("variant", "candidate", "chosen")}
        started = self._wandb.init(
            **given,
            project=PROJECT,
            id=run.id,
            name=facts["trial"],
            reinit="create_new",
            tags=tags,
            config=config,
            dir=str(self._out),
            settings=self._wandb.Settings(**quiet),
        )
        return started, started.step - 1 if self._online else -1

    def end(self, opened: Any, run: Tracked) -> None:
        """See `TrackerStore`; the digest is written into the folder last."""
        opened.summary.update({**run.final, "state": run.facts["state"]})
        opened.finish(exit_code=0 if run.facts["state"] in ("done", "running") else 1)
        for path in self._all(run.id):
            write_atomic(path / _DIGEST, run.digest + "\n")

    def _all(self, identity: str = "*") -> list[Path]:
        return sorted((self._out / "wandb").glob(f"offline-run-*-{identity}"))
