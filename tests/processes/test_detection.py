"""Who is one of several processes: by flags, by what launchers leave in the environment, by JAX's
own detection.
"""

import importlib.util
from collections.abc import Mapping
from typing import Any

import pytest
from jax._src.clusters import ClusterEnv

from attnlab.errors import UserError
from attnlab.processes import Member, find

SRUN = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4"}
SRUN |= {"SLURM_STEP_NODELIST": "gpu[03-04]", "SLURM_PROCID": "2", "SLURM_LOCALID": "0"}
# the shell of a job, without srun
BATCH = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
MPIRUN = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3"}
MPIRUN |= {"OMPI_COMM_WORLD_LOCAL_RANK": "1"}
OLD_MPIRUN = {**MPIRUN, "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911"}
OLD_PORT = 65535 - 2**12 + 1 + 1531576320 // 2**12 % 2**12
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "1"}


@pytest.fixture(autouse=True)
def no_tpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def of(monkeypatch: pytest.MonkeyPatch, flags: str, environ: Mapping[str, str]) -> Member | None:
    """What is found with this environment, which JAX's detection reads for itself."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return find(["--config=a.py", "--workdir", "w", *flags.split()], environ)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("flags", "environ", "expected"),
    [
        ("--coordinator=node7:8476 --processes=2 --process=1", {}, Member("node7", 8476, 2, 1)),
        ("--coordinator [fe80::1]:80 --processes 2 --process 0", {}, Member("fe80::1", 80, 2, 0)),
        ("", SRUN, Member("gpu03", 61447, 4, 2, 0)),  # the port that JAX takes for job 7
        ("", {**SRUN, "JAX_COORDINATOR_PORT": "1234"}, Member("gpu03", 1234, 4, 2, 0)),
        ("--coordinator=gpu03:99", SRUN, Member("gpu03", 99, 4, 2, 0)),
        ("", {**SRUN, "JAX_COORDINATOR_ADDRESS": "gpu03:98"}, Member("gpu03", 98, 4, 2, 0)),
        ("", OLD_MPIRUN, Member("10.96.0.1", OLD_PORT, 4, 3, 1)),
        ("--coordinator=node7:8476", MPIRUN, Member("node7", 8476, 4, 3, 1)),
        ("--coordinator=pod.set:8476 --processes=2", POD, Member("pod.set", 8476, 2, 1)),
    ],
)
def test_one_of_several(
    flags: str, environ: Mapping[str, str], expected: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert of(monkeypatch, flags, environ) == expected


@pytest.mark.quick
@pytest.mark.parametrize(
    ("flags", "environ"),
    [
        ("", {}),
        ("", BATCH),
        # as a worker of a sweep is started
        ("", {**SRUN, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}),
        ("", {**MPIRUN, "OMPI_COMM_WORLD_SIZE": "1"}),
        ("--processes=1", SRUN),
        ("--processes=1", OLD_MPIRUN),
    ],
)
def test_alone(flags: str, environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A job's own shell, one task, and whoever says so; JAX is not even asked."""
    monkeypatch.setattr(ClusterEnv, "auto_detect_unset_distributed_params", None)
    assert of(monkeypatch, flags, environ) is None


@pytest.mark.parametrize(
    ("flags", "environ", "words"),
    [
        ("--processes=2 --process=1", {}, "give --coordinator=HOST:PORT too"),
        ("--coordinator=a:1 --processes=2", {}, "give --process=I too"),
        ("--coordinator=a --processes=2 --process=1", {}, "--coordinator=a: expected HOST:PORT"),
        ("--coordinator=a:0 --processes=2 --process=1", {}, "=a:0: expected HOST:PORT"),
        (
            "--coordinator=a:1 --processes=2 --process=2",
            {},
            "--process=2: with --processes=2 it is a whole number from 0 to 1",
        ),
        (
            "--coordinator=a:1 --processes=0 --process=0",
            {},
            "--processes: '0' is no whole number from 1 to",
        ),
        ("--processes=two", {}, "--processes: 'two' is no whole number from 1 to 65,536"),
        ("--process", {}, "--process: expected one argument"),
        (
            "",
            MPIRUN,
            "mpirun has started 4 processes: give --coordinator=HOST:PORT too, or --processes=1",
        ),  # newer: JAX knows no address
    ],
)
def test_too_little_is_known(
    flags: str, environ: Mapping[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=words):
        of(monkeypatch, flags, environ)


def detected(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    def ask(*_: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(ClusterEnv, "auto_detect_unset_distributed_params", ask)


def test_jax_is_asked_in_a_pod(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where it can ask Kubernetes; where it cannot, a pod works alone and says so, and one that may
    not ask is told what to do.
    """
    detected(monkeypatch, ("train-0.train:55527", 2, 1, [0]))
    assert of(monkeypatch, "", POD) == Member("train-0.train", 55527, 2, 1)
    detected(monkeypatch, (None, None, None, [0]))
    assert of(monkeypatch, "", POD) is None
    assert (
        "note: a pod of an indexed job works alone, unless you give --coordinator=HOST:PORT and"
        " --pro" in capsys.readouterr().err
    )
    detected(monkeypatch, RuntimeError("403 - Forbidden"))
    with pytest.raises(UserError, match="JAX cannot find the other processes .*403.*--processes=1"):
        of(monkeypatch, "", POD)


def test_jax_is_asked_beside_the_library_of_tpus(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pod slice has several hosts; on one host, and where nobody answers, the process is
    alone.
    """
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "libtpu")
    detected(monkeypatch, ("10.0.0.5:8482", 4, 3, None))
    assert of(monkeypatch, "", {}) == Member("10.0.0.5", 8482, 4, 3)
    detected(monkeypatch, ("10.0.0.5:8482", 1, 0, None))
    assert of(monkeypatch, "", {}) is None and capsys.readouterr().err == ""
    detected(monkeypatch, ConnectionError("no metadata"))
    assert of(monkeypatch, "", {}) is None and "this process works alone" in capsys.readouterr().err
