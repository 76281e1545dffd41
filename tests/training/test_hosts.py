"""Two processes, each with rows of its own, learn what one process with all of them learns."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from attnlab.training.step import first_state, make_step
from tests.flags import FAST
from tests.training.hosts import ADAM, PROCESSES, STEPS
from tests.training.toy import Trailing, points

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.full
def test_two_processes_are_one(tmp_path: Path) -> None:
    """Both backends: parameters, optimizer, and what is remembered of all rows, on every
    process.
    """
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    flags = f"{FAST} --xla_cpu_multi_thread_eigen=false --xla_force_host_platform_device_count=2"
    own = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    environment = {**os.environ, **own}
    commands = [
        [sys.executable, "-m", "tests.training.hosts", str(index), address, str(tmp_path)]
        for index in range(PROCESSES)
    ]
    running = [
        subprocess.Popen(one, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
        for one in commands
    ]
    errors = [one.communicate(timeout=300)[1] for one in running]
    assert [one.returncode for one in running] == [0] * PROCESSES, "\n".join(errors)

    task = Trailing()
    state = first_state(task.init(jax.random.key(0)), ADAM, 0.0, remembered=task.remembered())
    step = jax.jit(make_step(task.loss, task.weight, ADAM))
    for number in range(STEPS):
        state, _ = step(state, points(3 * number + 2))
    assert state.remembered["steps"].tolist() == [STEPS] * 6 + [0] * 2
    for name in ("mesh0", "mesh1", "pmap0", "pmap1"):
        found = np.load(tmp_path / f"{name}.npz")
        for number, leaf in enumerate(jax.tree.leaves(state)):
            np.testing.assert_allclose(found[f"arr_{number}"], leaf, atol=2e-6, err_msg=name)
    for index in range(PROCESSES):
        found = list(np.load(tmp_path / f"agreed{index}.npz").values())
        given = (
            np.array(7, np.int8),
            np.asarray(jax.numpy.ones((2, 3), "bfloat16")),
            np.array([-0.0, 0.0, np.nan], np.float32),
        )
        for bits, array in zip(found[:3], given, strict=True):
            np.testing.assert_array_equal(bits, np.atleast_1d(array).view(np.uint8))
        assert [one.tolist() for one in found[3:]] == [[1, 0], [True, index == 0], [0, 1]]
