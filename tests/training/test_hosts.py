"""Two processes tell each other arrays to the last bit. That they learn what one process with all rows
learns is asked in test_kill_resume.py and commands/test_several_processes.py. As a program this is one of
them, with two devices: `python -m tests.training.test_hosts 0 localhost:2345 FOLDER`.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tests.flags import FAST
from tests.processes.test_meeting import port

ROOT = Path(__file__).resolve().parents[2]
PROCESSES = 2


def agreed(index: int) -> Any:
    """What the processes tell each other: the first one's arrays bit for bit, the largest numbers,
    and whose devices are taken.
    """
    from attnlab.training.parallel import agree_with_0, backend, broadcast_from_0, largest
    from attnlab.training.settings import Parallel

    given = {
        "zeros": np.array([-0.0, 0.0, np.nan], np.float32) * (1 - index),
        "count": np.array(7 - index, np.int8),
    }
    given["half"] = np.asarray(jax.numpy.ones((2, 3), "bfloat16")) * (1 - index)
    value = [array.view(np.uint8) for array in map(np.atleast_1d, broadcast_from_0(given).values())]
    owners = [
        device.process_index for device in backend(Parallel(backend="auto", devices=2)).devices
    ]  # type: ignore[attr-defined]
    return [
        *value,
        np.array(largest([index, -index])),
        np.array(agree_with_0(["same", str(index)])),
        np.array(owners),
    ]


def main(index: int, address: str, folder: Path) -> None:
    """Write what this process has heard."""
    jax.distributed.initialize(
        address, num_processes=PROCESSES, process_id=index, initialization_timeout=60
    )
    np.savez(folder / f"agreed{index}.npz", *agreed(index))


@pytest.mark.full
def test_what_processes_tell_each_other(tmp_path: Path) -> None:
    address = f"localhost:{port()}"
    flags = f"{FAST} --xla_cpu_multi_thread_eigen=false --xla_force_host_platform_device_count=2"
    own = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    environment = {**os.environ, **own}
    commands = [
        [sys.executable, "-m", "tests.training.test_hosts", str(index), address, str(tmp_path)]
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


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
