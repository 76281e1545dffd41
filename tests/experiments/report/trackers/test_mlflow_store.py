"""MLflow's store, where its client is installed, read back with that client."""

import importlib.util
from pathlib import Path

import pytest

from attnlab.experiments.report.trackers import export
from tests.experiments.report.trackers.offline import change, made


def test_what_is_read_back(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    from mlflow.tracking import MlflowClient

    directory, out = made(tmp_path / "sweep"), tmp_path / "out"
    exported = export(directory, "mlflow", out)
    assert exported.written == 8 and "".join(capfd.readouterr()) == ""
    with_page = importlib.util.find_spec("flask") is not None
    assert ("pip install mlflow" in exported.hint) != with_page
    client = MlflowClient(tracking_uri=f"sqlite:///{out}/mlflow.db")
    (experiment,) = (one for one in client.search_experiments() if one.name.startswith("made-"))
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    one = runs["additive-peak-0.003-0a1b2c3d/seed1"]
    lost = runs["location-peak-0.003-0a1b2c3d/seed1"]
    assert (one.info.status, lost.info.status, len(runs)) == ("FINISHED", "FAILED", 8)
    params = one.data.params
    assert params["training.steps"] == "12" and params["system.attention.score"] == "additive"
    assert params["seed"] == "1"
    assert one.data.tags["variant"] == "additive" and one.data.tags["chosen"] == "yes"
    assert one.data.tags["seed"] == "1"
    assert one.data.metrics["final/test/exact"] == 0.8 and one.data.metrics["cost/seconds"] == 30.5
    assert one.data.metrics["final/steps_to_loss le 1.5"] == 9
    history = client.get_metric_history(one.info.run_id, "valid/exact")
    curve = [(point.step, point.value) for point in history]
    assert [step for step, _ in curve] == [3, 6, 9, 12] and curve[-1][1] == 0.8
    assert export(directory, "mlflow", out).unchanged == 8
    change(directory)
    assert (done := export(directory, "mlflow", out)).replaced == 1 and done.unchanged == 7
    assert len(client.search_runs([experiment.experiment_id])) == 8
