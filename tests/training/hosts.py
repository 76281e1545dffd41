"""One of two processes that train together, as two machines would, with two devices each;
`test_hosts` starts both.

python -m tests.training.hosts 0 localhost:2345 FOLDER & python -m tests.training.hosts 1 localhost:2345 FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from tests.training.toy import ROWS, Trailing, points

STEPS, PROCESSES = 3, 2
ADAM = optax.adam(3e-3, eps=1e-3)


def trained(name: str, index: int) -> Any:
    """The state after some steps, put back on the devices and fetched once more before the last; of
    process `index` of PROCESSES.
    """
    from attnlab.training.parallel import backend
    from attnlab.training.settings import Parallel
    from attnlab.training.step import first_state, make_step

    task, place = Trailing(), backend(Parallel(backend=name))
    mine = slice(index * ROWS // PROCESSES, (index + 1) * ROWS // PROCESSES)
    batches = [
        {key: rows[mine] for key, rows in points(3 * number + 2).items()} for number in range(STEPS)
    ]
    first = first_state(task.init(jax.random.key(0)), ADAM, 0.0, remembered=task.remembered())
    state = place.place(jax.device_get(first))
    program = place.compile(make_step(task.loss, task.weight, ADAM), state, place.feed(batches[0]))
    for number, batch in enumerate(batches):
        state = place.place(place.fetch(state)) if number == STEPS - 1 else state
        state, _ = program(state, place.feed(batch))
    return place.fetch(state)


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
    found = [array.view(np.uint8) for array in map(np.atleast_1d, broadcast_from_0(given).values())]
    owners = [
        device.process_index for device in backend(Parallel(backend="auto", devices=2)).devices
    ]  # type: ignore[attr-defined]
    return [
        *found,
        np.array(largest([index, -index])),
        np.array(agree_with_0(["same", str(index)])),
        np.array(owners),
    ]


def main(index: int, address: str, folder: Path) -> None:
    """Write what this process knows of the state in the end, by backend."""
    jax.distributed.initialize(
        address, num_processes=PROCESSES, process_id=index, initialization_timeout=60
    )
    for name in ("mesh", "pmap"):
        np.savez(folder / f"{name}{index}.npz", *jax.tree.leaves(trained(name, index)))
    np.savez(folder / f"agreed{index}.npz", *agreed(index))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
