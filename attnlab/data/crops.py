"""Random crops of a stream: pieces that begin anywhere, as small language models are often trained.

    begin_r ~ U{1, ..., N - T}, independently for every row r of every step
    source  = ids begin_r - 1 ... begin_r + T - 2,   target = ids begin_r ... begin_r + T - 1

Some ids are so read more often than others, and a row does not begin with a text. Nothing is padding.

Axis letters: b rows of a batch, T columns, N ids.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attnlab.data.blocks import ProcessBatches, windows
from attnlab.data.columns import Batch
from attnlab.errors import UserError


class Crops(ProcessBatches):
    """Batches of crops by random access: `crops(step)` depends on the arguments below and `step`,
    on nothing else.

    Args:
      ids: [N], all texts end to end; or what has a method `windows`, as `shards.Ids`.
      size: b, over all processes and devices.
      length: T.
      seed: of the draws.
      process_index, process_count, multiple, special: see `streams.Lanes`.

    Attributes:
      batches_per_epoch: steps in which as many ids are read as there are.
      shapes, counts, note: see `streams.Lanes`.

    Raises:
      UserError: rows not divisible by `multiple` or the processes, or fewer than T + 1 ids.
    """

    def __init__(self, ids: Any, *, size: int, length: int, seed: int, **shared: Any) -> None:
        super().__init__(ids, size=size, length=length, **shared)
        if len(ids) <= length:
            raise UserError(
                f"config.batch.max_length={length}: config.data has {len(ids)} tokens, which are too"
                f" few for crops of that length; lower it below {len(ids)}"
            )
        self._seed = seed
        self._set_epoch(-(-len(ids) // (size * length)))
        self.note = f"{size} crops of {length} tokens a step, of {len(ids):,}"

    def __call__(self, step: int) -> Batch:
        """The batch of `step` (from 0): "source" and "target" [b,T], "fresh" [b] ones, int32."""
        draw = np.random.default_rng((self._seed, int(step)))
        begin = draw.integers(1, len(self._ids) - self._length + 1, self._size)[self._rows]
        read = windows(self._ids, begin - 1, self._length + 1)
        return {
            "source": np.ascontiguousarray(read[:, :-1]),
            "target": np.ascontiguousarray(read[:, 1:]),
            "fresh": np.ones(len(begin), np.int32),
        }
