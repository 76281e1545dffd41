"""TensorBoard's files, read back by their protocol buffers."""

from pathlib import Path

import pytest
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

from attnlab.experiments.report.trackers import export
from tests.experiments.report.trackers.offline import change, events, made
from tests.experiments.report.trackers.test_following import trained

ONE = "additive-peak-0.003-0a1b2c3d/seed1"


@pytest.mark.quick
def test_what_stands_in_the_files(tmp_path: Path) -> None:
    directory, out = made(tmp_path / "sweep"), tmp_path / "out"
    assert export(directory, "tensorboard", out).written == 8
    (group,) = (out / "tensorboard").iterdir()
    _, experiment = events(group / "events.out.tfevents.0.sweep")
    (value,) = Event.FromString(experiment).summary.value
    whole = HParamsPluginData.FromString(value.metadata.plugin_data.content).experiment
    expected = {"variant", "seed", "chosen", "schedule.peak", "system.attention.score"}
    assert {info.name for info in whole.hparam_infos} == expected
    assert {"final/test/exact", "cost/seconds"} <= {info.name.tag for info in whole.metric_infos}
    (file,) = (group / ONE).iterdir()
    found = [Event.FromString(one) for one in events(file)]
    values = [(event.step, value) for event in found for value in event.summary.value]
    plugins = [value for _, value in values if value.HasField("metadata")]
    contents = {value.tag: value.metadata.plugin_data.content for value in plugins}
    plugin = {tag: HParamsPluginData.FromString(content) for tag, content in contents.items()}
    settings = plugin["_hparams_/session_start_info"].session_start_info.hparams
    assert settings["variant"].string_value == "additive" and settings["seed"].number_value == 1.0
    assert settings["chosen"].string_value == "yes"
    assert settings["schedule.peak"].number_value == 0.003
    assert settings["system.attention.score"].string_value == "additive"
    assert plugin["_hparams_/session_end_info"].session_end_info.status == 1
    plain = [(step, value) for step, value in values if not value.HasField("metadata")]
    scalars = {(step, value.tag): value.simple_value for step, value in plain}
    assert scalars[3, "train/tokens"] == 200.0
    assert scalars[12, "final/test/exact"] == pytest.approx(0.8)
    assert found[0].file_version == "brain.Event:2" and found[-1].wall_time == 130.5


def test_a_run_without_a_sweep_has_its_seed_and_curve(tmp_path: Path) -> None:
    directory = trained(tmp_path / "run", 3, 6, state="done")
    assert export(directory, "tensorboard", tmp_path / "out").written == 1
    (file,) = (tmp_path / "out" / "tensorboard" / "attnlab" / "run").iterdir()
    values = [value for one in events(file) for value in Event.FromString(one).summary.value]
    (start,) = (value for value in values if value.tag.endswith("session_start_info"))
    content = HParamsPluginData.FromString(start.metadata.plugin_data.content)
    assert dict(content.session_start_info.hparams).keys() == {"seed"}
    assert [value.tag for value in values].count("valid/loss") == 2


def test_twice_is_once(tmp_path: Path) -> None:
    directory, out = made(tmp_path / "sweep"), tmp_path / "out"
    export(directory, "tensorboard", out)
    before = {path: path.read_bytes() for path in out.rglob("*tfevents*")}
    assert len(before) == 9 and export(directory, "tensorboard", out).unchanged == 8
    assert {path: path.read_bytes() for path in out.rglob("*tfevents*")} == before
    change(directory)
    assert (done := export(directory, "tensorboard", out)).replaced == 1 and done.unchanged == 7
    assert len(list(out.rglob("*tfevents*"))) == 9
