"""One of two processes that tell each other arrays, as two machines would, with two devices each;
`test_hosts` starts both.

python -m tests.training.hosts 0 localhost:2345 FOLDER & python -m tests.training.hosts 1 localhost:2345 FOLDER
"""

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

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


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
