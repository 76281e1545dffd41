"""MLflow: an experiment for the sweep and a run for each trial in `mlflow.db`, the SQLite store of
MLflow's own client.

MLflow's older store of plain files is no longer maintained, and newer versions refuse it.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.config.tree import flat
from attnlab.errors import UserError
from attnlab.experiments.define import text
from attnlab.experiments.report.trackers.runs import Tracked, folder, needed, pieces

_ID, _DIGEST = "attnlab.id", "attnlab.digest"
_LONGEST = 6000  # characters of a parameter; MLflow refuses more
_AT_ONCE = 100  # parameters or tags in one call; of metrics ten times as many
# the others were stopped
_STATES = {"done": "FINISHED", "running": "RUNNING", "failed": "FAILED", "diverged": "FAILED"}


def _allowed(name: str) -> str:
    """A name as MLflow takes it: "steps_to_loss le 1.5"."""
    return re.sub(r"[^\w\-. :/]+", "_", name.replace("<=", " le ").replace(">=", " ge ")).strip("_")


class Store:
    """Runs of one experiment in `out/mlflow.db`, found by a tag; one that is replaced goes to
    MLflow's list of deleted runs.
    """

    def __init__(self, out: Path, runs: Sequence[Tracked]) -> None:
        """Opens the SQLite store of MLflow in `out`, and finds or creates the sweep's experiment;
        raises UserError if MLflow is not installed.
        """
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        needed("mlflow", "mlflow")
        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        from mlflow.entities import Metric, Param, RunTag
        from mlflow.tracking import MlflowClient

        self._metric, self._param, self._tag = Metric, Param, RunTag
        uri = f"sqlite:///{folder(out).resolve() / 'mlflow.db'}"
        try:
            self._client: Any = MlflowClient(tracking_uri=uri)
            self._experiment = self._find(out, runs[0].group) if runs else ""
        except ImportError as error:  # the client comes without what its stores need
            raise UserError(
                f"export --to=mlflow needs {error.name}: pip install 'attnlab[mlflow]'"
            ) from error
        self._runs: dict[str, list[str]] = {}
        self.hint = f"mlflow ui --backend-store-uri {uri}"

    def held(self) -> Mapping[str, str]:
        """Returns the digest of every stored run by its id, "" for a run that is stored twice or
        without a digest.
        """
        digests: dict[str, str] = {}
        token = None
        while self._experiment:
            page = self._client.search_runs([self._experiment], max_results=1000, page_token=token)
            for run in page:
                identity = run.data.tags.get(_ID, "")
                digests[identity] = "" if identity in digests else run.data.tags.get(_DIGEST, "")
                self._runs.setdefault(identity, []).append(run.info.run_id)
            token = page.token
            if not token:
                break
        return digests

    def remove(self, identity: str) -> None:
        """All runs with the id."""
        for run in self._runs.pop(identity, ()):
            self._client.delete_run(run)

    def write(self, run: Tracked) -> None:
        """Writes a run to MLflow with all its parameters, metrics and tags, its digest last."""
        began, ended = int(1000 * run.began), int(1000 * run.ended)
        tags = {_ID: run.id, **{name: str(fact) for name, fact in run.facts.items()}}
        identity = self._client.create_run(
            self._experiment, start_time=began, tags=tags, run_name=run.facts["trial"]
        ).info.run_id
        params = [self._param(key, text(leaf)[:_LONGEST]) for key, leaf in flat(run.config).items()]
        for piece in pieces(params, _AT_ONCE):
            self._client.log_batch(identity, params=piece)
        last = run.curve[-1].step if run.curve else 0
        measured = [(int(1000 * point.time), point.step, point.values) for point in run.curve] + [
            (ended, last, run.final)
        ]
        metrics = [
            self._metric(_allowed(name), value, time, step)
            for time, step, values in measured
            for name, value in values.items()
        ]
        for piece in pieces(metrics, 10 * _AT_ONCE):
            self._client.log_batch(identity, metrics=piece)
        self._client.set_terminated(
            identity, _STATES.get(run.facts["state"], "KILLED"), end_time=ended
        )
        self._client.log_batch(identity, tags=[self._tag(_DIGEST, run.digest)])

    def _find(self, out: Path, group: str) -> str:
        """Returns the id of the sweep's experiment in MLflow, which is created if absent."""
        if experiment := self._client.get_experiment_by_name(group):
            return experiment.experiment_id
        artifacts = (out.resolve() / "mlruns").as_uri()
        return self._client.create_experiment(group, artifact_location=artifacts)
