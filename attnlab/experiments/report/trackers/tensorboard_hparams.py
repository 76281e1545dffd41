"""TensorBoard: a folder for each trial with its curves and what the HParams page reads; needs
tensorboardX, which attnlab has, alone.

Values on TensorBoard's pages have single precision.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.experiments.define import text
from attnlab.experiments.report.trackers import Tracked, TrackerStore, folder
from attnlab.records.files import write_atomic
from attnlab.records.stream import encoded, scalars

_FILE = "events.out.tfevents"
_TAG = "_hparams_/"


class Store(TrackerStore):
    """An event file for each trial below `out/tensorboard/GROUP`, its digest in its name, and one
    for the sweep: what HParams shows.
    """

    def __init__(self, where: str, wanted: Sequence[Tracked] = ()) -> None:
        """Makes the folder `where`/tensorboard, sets the folder of each run in `wanted`, and, if
        there are any, writes the sweep's event file for the HParams page.
        """
        self._root = folder(Path(where) / "tensorboard")
        self._runs = {run.id: self._root / run.group / run.facts["trial"] for run in wanted}
        self.hint = f"tensorboard --logdir {self._root / (wanted[0].group if wanted else '')}"
        if wanted:
            began, shown = wanted[0].began, _hparams("experiment", _experiment(wanted))
            content = _begun(began) + encoded(began, step=0, summary=shown)
            write_atomic(folder(self._root / wanted[0].group) / f"{_FILE}.0.sweep", content)

    def stored(self) -> Iterator[tuple[str, str]]:
        """Yields the id and the digest of every event file of the store's runs, read from its name."""
        for identity, path in self._runs.items():
            for file in path.glob(f"{_FILE}.*"):
                yield identity, file.name.rpartition(".")[2]

    def write(self, run: Tracked) -> None:
        """Deletes the stored event files of a run and writes a new one at once: its settings, its
        curve, its final numbers and its state.
        """
        for path in self._runs[run.id].glob(f"{_FILE}.*"):
            path.unlink()
        summaries = [
            (run.began, 0, _hparams("session_start_info", _start(run))),
            *((point.time, point.step, scalars(point.values)) for point in run.curve),
            (run.ended, run.last, scalars(run.final)),
            (run.ended, run.last, _hparams("session_end_info", _end(run))),
        ]
        events = [encoded(time, step=step, summary=summary) for time, step, summary in summaries]
        path = folder(self._runs[run.id]) / f"{_FILE}.{run.began:.0f}.{run.digest}"
        write_atomic(path, b"".join([_begun(run.began), *events]))


def _settings(run: Tracked) -> dict[str, Any]:
    """What the HParams page shows of a run; a single one is of no variant, and not chosen."""
    shown = ("variant", "seed", "chosen")
    return {**{name: run.facts[name] for name in shown if name in run.facts}, **run.varied}


def _experiment(runs: Iterable[Tracked]) -> dict[str, Any]:
    """Returns, under the key "experiment", the HParams description of a sweep: the names and types
    of the settings, and the names of the final numbers, over all runs.
    """
    from tensorboardX.proto.api_pb2 import DataType, Experiment, HParamInfo, MetricInfo, MetricName

    kinds: dict[str, set[str]] = {}
    for run in runs:
        for name, value in _settings(run).items():
            kinds.setdefault(name, set()).add(_kind(value))
    infos = []
    for name, types in kinds.items():
        kind = types.pop() if len(types) == 1 else "UNSET"  # shown as they are
        infos.append(HParamInfo(name=name, type=DataType.Value(f"DATA_TYPE_{kind}")))
    numbers = [
        MetricInfo(name=MetricName(tag=name))
        for name in dict.fromkeys(name for run in runs for name in run.final)
    ]
    return {"experiment": Experiment(hparam_infos=infos, metric_infos=numbers)}


def _start(run: Tracked) -> dict[str, Any]:
    """Returns, under the key "session_start_info", the HParams record of a run's start: its time
    and the run's settings.
    """
    from tensorboardX.proto.plugin_hparams_pb2 import SessionStartInfo

    info = SessionStartInfo(start_time_secs=run.began)
    fields = {"BOOL": "bool_value", "FLOAT64": "number_value", "STRING": "string_value"}
    for name, value in _settings(run).items():
        kind = _kind(value)
        setattr(info.hparams[name], fields[kind], text(value) if kind == "STRING" else value)
    return {"session_start_info": info}


def _end(run: Tracked) -> dict[str, Any]:
    """Returns, under the key "session_end_info", the HParams record of a run's end: its time and
    its status (success if done, running, otherwise failure).
    """
    from tensorboardX.proto.api_pb2 import Status
    from tensorboardX.proto.plugin_hparams_pb2 import SessionEndInfo

    states = {"done": "STATUS_SUCCESS", "running": "STATUS_RUNNING"}
    state = states.get(run.facts["state"], "STATUS_FAILURE")
    return {"session_end_info": SessionEndInfo(status=Status.Value(state), end_time_secs=run.ended)}


def _kind(value: Any) -> str:
    """Returns the HParams type of a setting: "BOOL", "FLOAT64" or "STRING"."""
    if isinstance(value, bool):
        return "BOOL"
    return "FLOAT64" if isinstance(value, int | float) else "STRING"


def _hparams(tag: str, content: Mapping[str, Any]) -> Any:
    """Returns an event's summary that carries `content` for the HParams plugin under the name
    `tag`.
    """
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData
    from tensorboardX.proto.summary_pb2 import Summary, SummaryMetadata

    data = HParamsPluginData(version=0, **content).SerializeToString()
    plugin = SummaryMetadata.PluginData(plugin_name="hparams", content=data)
    metadata = SummaryMetadata(plugin_data=plugin)
    return Summary(value=[Summary.Value(tag=_TAG + tag, metadata=metadata)])


def _begun(wall_time: float) -> bytes:
    """The first event of a file."""
    return encoded(wall_time, file_version="brain.Event:2")
