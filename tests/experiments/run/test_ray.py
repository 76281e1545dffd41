"""Workers that Ray places. In the full mode on a cluster of two nodes that the test starts, with
trials that train nothing, and kills.
"""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from attnlab.experiments.plan import Plan
from attnlab.experiments.run import Stop, look_at_all, ray
from attnlab.experiments.run.jobs import trainings
from attnlab.experiments.run.live import DEFAULTS
from attnlab.experiments.run.ray import Request, run_worker, worker_environment
from attnlab.records.attempts import read
from tests.commands.tiny import refused
from tests.experiments import real, stub
from tests.experiments.kill_sweep import doubled, processes, torn
from tests.refusals import check_refused


def nobody(address: str, **settings: Any) -> None:
    raise ConnectionError("Could not find any running Ray instance.\nPlease start one")


@pytest.mark.parametrize(
    ("installed", "flags", "words"),
    [
        (None, [], "--executor=ray needs Ray: pip install 'attnlab[ray]'"),
        (
            {"is_initialized": lambda: False, "init": nobody},
            [],
            "no Ray cluster answers at --ray.address=auto (Could not find any running Ray instance.)",
        ),
        ({"is_initialized": lambda: False}, ["--ray.address=127.0.0.1:1"], "address=127.0.0.1:1 ("),
        (
            {
                "is_initialized": lambda: True,
                "nodes": lambda: [{"Alive": True, "Resources": {"CPU": 8.0, "GPU": 1.0}}],
            },
            ["--ray.cores=4", "--ray.gpus=2"],
            "no node of the Ray cluster has so many cores and GPUs (they have 8 and 1); ask for",
        ),
    ],
)
def test_what_is_refused_before_anything_is_planned(
    installed: dict[str, Any] | None, flags: list[str], words: str, tmp_path: Path, monkeypatch: Any
) -> None:
    module = None if installed is None else SimpleNamespace(**installed)
    monkeypatch.setitem(sys.modules, "ray", module)
    line = ["sweep", "experiments/quickstart.py", f"--dir={tmp_path / 'sweep'}", "--executor=ray"]
    assert words in refused(*line, *flags) and not (tmp_path / "sweep").exists()


def test_a_worker_is_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its errors are the task's, and a task that is cancelled asks it to leave."""
    monkeypatch.setenv("XLA_FLAGS", "--some")
    monkeypatch.setenv("OTHER", "no")
    environment = worker_environment()
    assert environment["XLA_FLAGS"] == "--some" and "OTHER" not in environment
    assert environment["PYTHONPATH"].startswith(str(real.ROOT))
    given = (b"", str(tmp_path), {}, 30.0)
    assert run_worker(("-c", "print(1)"), *given) == (0, "")
    wrong = "import sys; print('noise\\nerror: too few', file=sys.stderr); sys.exit(2)"
    assert run_worker(("-c", wrong), *given) == (2, "too few")
    assert capsys.readouterr().err == "noise\nerror: too few\n"
    assert run_worker(("-c", "import none_such"), *given)[1].startswith("ModuleNotFoundError: ")
    assert run_worker(("-c", "import os; os.abort()"), *given)[0] == -signal.SIGABRT
    waiting = "import signal, sys; open('here', 'w'); signal.sigwait([15]); open('left', 'w')"
    blocked = f"import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [15]); {waiting}"

    def cancel() -> None:
        stub.until((tmp_path / "here").exists)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored here
    threading.Thread(target=cancel).start()
    with pytest.raises(KeyboardInterrupt):
        run_worker(("-c", blocked), *given)
    signal.signal(signal.SIGINT, before)
    assert (tmp_path / "left").exists()


def test_a_worker_leaves_when_its_task_is_killed(tmp_path: Path) -> None:
    """Its trial saves: the signal comes from the system, for the task cannot send one."""
    plan = stub.planned(tmp_path, seeds=(0,))
    stub.behave(tmp_path, additive_0="wait")
    code = (
        "import pickle, sys; from pathlib import Path; from attnlab.experiments.run import ray;"
        " from attnlab.experiments.run.live import DEFAULTS;"
        " given = pickle.dumps((Path(sys.argv[1]), DEFAULTS, 0, 1));"
        " ray.run_worker(('-c', sys.argv[2]), given, '.', {'PYTHONPATH': sys.argv[3]}, 30.0)"
    )
    line = [sys.executable, "-c", code, str(tmp_path), stub.SERVE, str(real.ROOT)]
    task = subprocess.Popen(line, env=real.environment(), cwd=real.ROOT)
    first = plan.trials()[0].workdir(tmp_path)
    stub.until((first / "steps").exists)
    task.kill()
    task.wait()
    stub.until(lambda: read(first)[-1]["event"] == "end")
    assert read(first)[-1]["message"] == "signal 15" and DEFAULTS.grace == 60


class StubRay:
    """A cluster of one task.

    Attributes:
      answer: what the task returns; None while it runs.
      cancels: of it; whether each was forced.
    """

    cloudpickle = SimpleNamespace(register_pickle_by_value=lambda module: None)
    exceptions = SimpleNamespace(RayError=RuntimeError)

    def __init__(self) -> None:
        self.answer: tuple[int, str] | None = None
        self.cancels: list[bool] = []

    def wait(self, tasks: list[str], num_returns: int, timeout: float) -> tuple[list[str], None]:
        if self.answer is None:
            time.sleep(min(timeout, 0.01))
        return [] if self.answer is None else tasks, None

    def get(self, task: str) -> tuple[int, str]:
        return self.answer

    def cancel(self, task: str, force: bool = False) -> None:
        self.cancels.append(force)


@pytest.fixture
def stubbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[StubRay, ray.Cluster]:
    """A launcher with one task on a cluster that is none."""
    module = StubRay()
    monkeypatch.setitem(sys.modules, "ray", module)
    launcher = ray.Cluster(tmp_path, Request(1), stub.Board(), Stop())  # type: ignore[arg-type]
    launcher._tasks["task"] = 0
    return module, launcher


def test_what_a_worker_has_died_of_is_told(stubbed: tuple[StubRay, ray.Cluster]) -> None:
    module, launcher = stubbed
    module.answer = (-signal.SIGSEGV, "Fatal Python error")
    assert launcher.workers() == 0
    word = "was killed by SIGSEGV: Fatal Python error"
    assert launcher._board.lines == [f"a worker {word}"]  # type: ignore[attr-defined]
    assert launcher.logs == f"the logs of Ray; the last one {word}"


def test_a_second_signal_to_the_launcher_does_not_wait(
    stubbed: tuple[StubRay, ray.Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, launcher = stubbed
    monkeypatch.setattr(ray, "FORCED", 0.1)
    launcher._stop.signals.append(signal.SIGINT)
    threading.Timer(0.1, lambda: launcher._stop.signals.append(signal.SIGINT)).start()
    began = time.monotonic()
    launcher.leave()
    assert module.cancels == [False, True] and time.monotonic() - began < launcher._patience / 2


def test_others_leave_before_an_error(tmp_path: Path, stubbed: tuple[StubRay, ray.Cluster]) -> None:
    module, launcher = stubbed
    launcher._tasks["other"] = 1
    stub.planned(tmp_path)
    module.answer = (2, "too few")
    due = trainings(Plan.of_sweep(tmp_path), None, tmp_path)
    check_refused("too few", launcher.run, lambda: due)
    assert module.cancels == [False] and list(launcher._tasks) == ["other"]


def test_a_second_signal_to_a_worker_kills_no_trial(tmp_path: Path) -> None:
    """The task was cancelled and then dies, for example."""
    code = (
        "import os; from attnlab.experiments.run import ray;"
        " tell = lambda: os.kill(os.getpid(), 15);"
        " ray.work = lambda directory, slots, stop, options:"
        " (tell(), tell(), (directory / 'heard').write_text(str(stop.signals)));"
        " ray.serve()"
    )
    given = pickle.dumps((tmp_path, DEFAULTS, 0, 1))
    run_worker(("-c", code), given, str(tmp_path), {"PYTHONPATH": str(real.ROOT)}, 30.0)
    assert (tmp_path / "heard").read_text() == "[15]"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes of one core each."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    size = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    made = Cluster()
    try:
        made.add_node(**size, include_dashboard=False)
        made.add_node(**size)
    except Exception as error:  # on a machine at its limit Ray's agents are not there within 15 s
        made.shutdown()
        pytest.skip(f"no Ray cluster starts here: {error}")
    yield made
    sys.modules["ray"].shutdown()  # a test has connected
    made.shutdown()


Launch = Callable[[Path], subprocess.Popen[bytes]]


@pytest.fixture
def launch(cluster: Any) -> Iterator[Launch]:
    """Starts launchers, which end with the test."""
    launchers: list[subprocess.Popen[bytes]] = []

    def start(directory: Path) -> subprocess.Popen[bytes]:
        launchers.append(stub.launcher_of(directory, cluster.address))
        return launchers[-1]

    yield start
    for launcher in launchers:
        launcher.kill()
        launcher.wait()


def lineages(plan: Plan, directory: Path) -> list[dict[str, int]]:
    """The processes of each trial that runs now and has made a step: itself, the worker (behind the
    server that has forked it) and the task.
    """
    parents, found = processes(), []
    for one in look_at_all(plan, directory):
        folder = one.trial.workdir(directory)
        starts = [record["pid"] for record in read(folder) if record["event"] == "start"]
        if one.state == "running" and (folder / "steps").exists() and starts[-1] in parents:
            worker = parents.get(parents[starts[-1]], 0)
            found.append({"trial": starts[-1], "worker": worker, "task": parents.get(worker, 0)})
    return [line for line in found if min(line.values()) > 1]


@pytest.mark.full
@pytest.mark.timeout(900)
def test_kills_lose_and_repeat_nothing(cluster: Any, launch: Launch, tmp_path: Path) -> None:
    """Of twelve trials every step was made once, each trial by one process at a time."""
    directory = tmp_path / "sweep"
    plan = stub.planned(directory, seeds=tuple(range(6)))
    names = [f"{one.candidate.variant}_{one.seed}" for one in plan.trials()]
    stub.behave(directory, **dict.fromkeys(names, "slow"))
    lines: list[list[dict[str, int]]] = []
    launcher = launch(directory)
    for victim in ("worker", "task", "launcher", "node", "trial"):
        stub.until(lambda: lines.append(lineages(plan, directory)) or lines[-1], 200)
        if victim == "node":
            node = cluster.worker_nodes.copy().pop()
            cluster.remove_node(node, allow_graceful=False)
            cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20)
        elif victim == "launcher":
            launcher.kill()
            launcher.wait()
            launcher = launch(directory)
        else:
            os.kill(lines[-1][0][victim], signal.SIGKILL)
        time.sleep(1)
    assert launcher.wait(600) == 0
    assert {one.state for one in look_at_all(plan, directory)} == {"done"}
    assert doubled(directory) == [] and torn(directory) == []
    for trial in plan.trials():
        steps = (trial.workdir(directory) / "steps").read_text().split()
        assert steps == [str(step) for step in range(stub.STEPS)]


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_launcher_that_stops_takes_its_workers_with_it(launch: Launch, tmp_path: Path) -> None:
    """They save; the same command goes on."""
    directory = tmp_path / "sweep"
    plan = stub.planned(directory)
    stub.behave(directory, additive_0="wait", general_0="wait")
    launcher = launch(directory)
    stub.until(lambda: len(lineages(plan, directory)) == 2, 200)
    launcher.terminate()
    assert launcher.wait(120) == 128 + signal.SIGTERM
    seen = {one.trial.name: one.state for one in look_at_all(plan, directory)}
    assert sorted(seen.values()) == [*["interrupted"] * 2, *["pending"] * 2]
    stub.behave(directory)
    assert launch(directory).wait(300) == 0
    assert {one.state for one in look_at_all(plan, directory)} == {"done"}
