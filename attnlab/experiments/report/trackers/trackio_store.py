"""Trackio: a project for the sweep, or for all single runs, in the local store of its own client;
`trackio show` shows it.
"""

import contextlib
import contextvars
import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attnlab.config.tree import flat
from attnlab.experiments.define import text
from attnlab.experiments.report.trackers import Tracked, TrackerStore, folder


class Store(TrackerStore):
    """Runs that are found by their names, which end with the id; in the folder `where`, below
    `trackio`, or where the user has all ("local"). Later steps and final numbers are added to what
    is there.
    """

    def __init__(self, where: str, wanted: Sequence[Tracked] = ()) -> None:
        """Imports Trackio after setting the folder of its store to `where`/trackio, by the variable
        TRACKIO_DIR, or leaves Trackio's own folder if `where` is "local".
        """
        self.hint = "trackio show"
        if where != "local":
            os.environ["TRACKIO_DIR"] = str(folder(Path(where) / "trackio").resolve())
            self.hint = f"TRACKIO_DIR={os.environ['TRACKIO_DIR']} trackio show"
        self._trackio: Any = importlib.import_module("trackio")

    def open(self, run: Tracked) -> tuple[Any, int]:
        """Starts or resumes a run in Trackio with its config and facts, without printing, and
        returns Trackio's run and the last stored step (-1 without any).
        """
        from trackio.sqlite_storage import SQLiteStorage

        name = f"{run.facts['trial']}-{run.id}"
        config = {key: text(leaf) for key, leaf in flat(run.config).items()} | dict(run.facts)
        alone = contextvars.Context()  # it would end the run before
        quiet = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
        names = {"project": run.group, "name": name, "config": config}
        with contextlib.redirect_stdout(None):  # it talks
            started = alone.run(lambda: self._trackio.init(**names, **quiet, resume="allow"))
        last = SQLiteStorage.get_max_step_for_run(run.group, name, run_id=started.id)
        return started, -1 if last is None else last

    def end(self, opened: Any, run: Tracked) -> None:
        """See `TrackerStore`."""
        opened.log({**run.final, "state": run.facts["state"]}, step=run.last)
        with contextlib.redirect_stdout(None):
            opened.finish()
