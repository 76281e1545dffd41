"""MLflow: an experiment for the sweep and a run for each trial in `mlflow.db`, the SQLite store of
MLflow's own client, or on its server.

MLflow's older store of plain files is no longer maintained, and newer versions refuse it.
"""

import logging
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from attnlab.config.tree import flat
from attnlab.experiments.define import text
from attnlab.experiments.report.trackers import Point, Tracked, TrackerStore, folder, pieces

_ID, _DIGEST = "attnlab.id", "attnlab.digest"
_LONGEST = 6000  # characters of a parameter; MLflow refuses more
_AT_ONCE = 100  # parameters or tags in one call; of metrics ten times as many
_STEPS = 20  # in one call, which is there as a whole or not at all
# the others were stopped
_STATES = {"done": "FINISHED", "running": "RUNNING", "failed": "FAILED", "diverged": "FAILED"}


def _allowed(name: str) -> str:
    """A name as MLflow takes it: "steps_to_loss le 1.5"."""
    return re.sub(r"[^\w\-. :/]+", "_", name.replace("<=", " le ").replace(">=", " ge ")).strip("_")


class Store(TrackerStore):
    """Runs found by a tag, at the address `where`, or in `mlflow.db` in that folder."""

    def __init__(self, where: str, wanted: Sequence[Tracked] = ()) -> None:
        """Opens the store of MLflow at `where` (a folder for an SQLite file, or a URI), and finds
        or creates the experiment of the runs `wanted`, by their group.
        """
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        from mlflow.tracking import MlflowClient

        local = "://" not in where
        uri = f"sqlite:///{folder(Path(where)).resolve() / 'mlflow.db'}" if local else where
        self._files = Path(uri.removeprefix("sqlite:///")).parent if "sqlite:" in uri else None
        self._client: Any = MlflowClient(tracking_uri=uri)
        self._groups = {run.group: self._experiment(run.group) for run in wanted[:1]}
        self.hint = (
            f"mlflow ui --backend-store-uri {uri}  (of the full package: pip install mlflow)"
        )

    def stored(self) -> Iterator[tuple[str, str]]:
        """Yields the id and the digest of every stored run, "" for one without a digest."""
        for run in self._search(list(self._groups.values())):
            yield run.data.tags.get(_ID, ""), run.data.tags.get(_DIGEST, "")

    def open(self, run: Tracked) -> tuple[Any, int]:
        """Creates a run in MLflow, with tags, or reopens the stored one, logs its config as
        parameters, and returns MLflow's id of the run and the last step of its stored curves (-1
        without any).
        """
        from mlflow.entities import Param

        if run.group not in self._groups:
            self._groups[run.group] = self._experiment(run.group)
        stored = list(self._search([self._groups[run.group]], f"tags.`{_ID}` = '{run.id}'"))
        if stored:
            identity, measured = stored[0].info.run_id, stored[0].data.metrics
            self._client.update_run(identity, status="RUNNING")
        else:
            created = self._client.create_run(
                self._groups[run.group],
                start_time=int(1000 * run.began),
                tags={_ID: run.id, **{name: str(fact) for name, fact in run.facts.items()}},
                run_name=run.facts["trial"],
            )
            identity, measured = created.info.run_id, {}
        params = [Param(key, text(leaf)[:_LONGEST]) for key, leaf in flat(run.config).items()]
        for piece in pieces(params, _AT_ONCE):
            self._client.log_batch(identity, params=piece)
        curves = [name for name in measured if name.partition("/")[0] not in ("final", "cost")]
        histories = [self._client.get_metric_history(identity, name) for name in curves]
        last = max((point.step for history in histories for point in history), default=-1)
        return identity, last

    def log(self, opened: Any, points: Sequence[Point]) -> None:
        """Logs the values of the curve's `points`, with their times and steps, as metrics of the
        run with MLflow's id `opened`, in batches.
        """
        from mlflow.entities import Metric

        for piece in pieces(points, _STEPS):
            metrics = [
                Metric(_allowed(name), value, int(1000 * point.time), point.step)
                for point in piece
                for name, value in point.values.items()
            ]
            self._client.log_batch(opened, metrics=metrics)

    def end(self, opened: Any, run: Tracked) -> None:
        """Logs the final numbers of a run under MLflow's id `opened`, sets its end time and its
        status by its state, and writes its facts and digest as tags.
        """
        from mlflow.entities import RunTag

        self.log(opened, [Point(run.last, run.ended, run.final)])
        state = _STATES.get(run.facts["state"], "KILLED")
        self._client.set_terminated(opened, state, end_time=int(1000 * run.ended))
        tags = {**run.facts, _DIGEST: run.digest}
        self._client.log_batch(opened, tags=[RunTag(name, str(tags[name])) for name in tags])

    def _search(self, experiments: list[str], only: str = "") -> Iterator[Any]:
        """Yields the stored MLflow runs of the experiments with these ids, page by page, that fit
        MLflow's filter text `only` ("" for all).
        """
        token = None
        while experiments:
            page = self._client.search_runs(
                experiments, filter_string=only, max_results=1000, page_token=token
            )
            yield from page
            token = page.token
            if not token:
                return

    def _experiment(self, group: str) -> str:
        """Returns the id of the sweep's experiment in MLflow, which is created if absent."""
        if experiment := self._client.get_experiment_by_name(group):
            return experiment.experiment_id
        artifacts = self._files and (self._files / "mlruns").as_uri()
        return self._client.create_experiment(group, artifact_location=artifacts)
