"""Two processes tell each other arrays to the last bit. That they learn what one process with all rows
learns is asked in test_kill_resume.py and commands/test_several_processes.py.
"""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.flags import FAST
from tests.processes.test_meeting import port
from tests.training.hosts import PROCESSES

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.full
def test_what_processes_tell_each_other(tmp_path: Path) -> None:
    address = f"localhost:{port()}"
    flags = f"{FAST} --xla_cpu_multi_thread_eigen=false --xla_force_host_platform_device_count=2"
    own = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    environment = {**os.environ, **own}
    commands = [
        [sys.executable, "-m", "tests.training.hosts", str(index), address, str(tmp_path)]
        for index in range(PROCESSES)
    ]
    running = [
        subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
        for command in commands
    ]
    errors = [process.communicate(timeout=300)[1] for process in running]
    assert [process.returncode for process in running] == [0] * PROCESSES, "\n".join(errors)

    for index in range(PROCESSES):
        actual = list(np.load(tmp_path / f"agreed{index}.npz").values())
        expected = (
            np.array(7, np.int8),
            np.asarray(jax.numpy.ones((2, 3), "bfloat16")),
            np.array([-0.0, 0.0, np.nan], np.float32),
        )
        for bits, array in zip(actual[:3], expected, strict=True):
            np.testing.assert_array_equal(bits, np.atleast_1d(array).view(np.uint8))
        assert [array.tolist() for array in actual[3:]] == [[1, 0], [True, index == 0], [0, 1]]
