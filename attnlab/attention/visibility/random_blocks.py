"""BigBird: blocks of global tokens, a window of blocks, and random blocks (Zaheer et al. 2020, the
ITC form).

With positions in blocks of b, block row I sees block column J if

    |I - J| <= 1   or   I or J is the first or the last block   or   J is one of r blocks drawn for (head, I)

The r blocks are drawn without replacement from those that the row does not see anyway; all of these
if there are no more than r. They are drawn once, with NumPy from the seed, when the rule is first
used. They are constants of the compiled program, the same in training and after it. Cost in a
kernel that skips blocks: 4 T (5 + r) b d FLOPs. Source: M. Zaheer et al., "Big Bird: Transformers
for Longer Sequences", NeurIPS 2020, section 2. For encoders: the last block is global, so the
pattern depends on T and cannot be causal. The authors' code turns to full attention on short
sequences; ours never does.
"""

import functools
import itertools

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.visibility.global_tokens import Global
from attnlab.attention.visibility.rule import Rule
from attnlab.attention.visibility.sparse_transformer import Local
from attnlab.errors import at_least


@flax.struct.dataclass
class RandomBlocks(Rule):
    """Each block of queries sees a few random blocks of keys, but not its neighbours and not the
    first or last block. The first and last block of queries draw none.

    Attributes:
      length: T; positions outside see nothing and are not seen.
      block: positions of a block; the last may be shorter.
      count: r, blocks drawn for each row and head.
      heads: H, or 1 for the same blocks in all heads.
      seed: of the draw.
    """

    length: int = flax.struct.field(pytree_node=False)
    block: int = flax.struct.field(pytree_node=False)
    count: int = flax.struct.field(pytree_node=False)
    heads: int = flax.struct.field(pytree_node=False, default=1)
    seed: int = flax.struct.field(pytree_node=False, default=0)

    def __post_init__(self) -> None:
        at_least(1, "RandomBlocks", length=self.length, block=self.block, heads=self.heads)
        at_least(0, "RandomBlocks", count=self.count, seed=self.seed)

    def allows(self, i: jax.Array, j: jax.Array) -> jax.Array:
        """Returns a bool array [1 or B,heads,tq,tk], True where the block of the query at position
        i sees the block of the key at position j in the random mask drawn for each head; positions
        beyond the length are in the last block. See `Rule.allows`.
        """
        mask = self._mask()
        rows, columns = (jnp.clip(x // self.block, 0, mask.shape[1] - 1) for x in (i, j))
        if i.ndim == j.ndim == 1:
            return jnp.take(jnp.take(jnp.asarray(mask), rows, axis=1), columns, axis=2)[None]
        picked = jnp.asarray(mask)[:, rows[..., :, None], columns[..., None, :]]
        return picked.swapaxes(0, 1)

    def touches(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.touches`."""
        return bool(self._drawn_between(i0, i1, j0, j1).any())

    def everywhere(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.everywhere`."""
        return bool(self._drawn_between(i0, i1, j0, j1).all())

    def _drawn_between(self, i0: int, i1: int, j0: int, j1: int) -> np.ndarray:
        """Returns the bool mask of drawn blocks, cut to the rows of blocks with queries i0 <= i <
        i1 and the columns of blocks with keys j0 <= j < j1: [heads,rows,columns].
        """
        mask = self._mask()
        first_row, last_row, first_column, last_column = (
            min(max(p // self.block, 0), mask.shape[1] - 1) for p in (i0, i1 - 1, j0, j1 - 1)
        )
        return mask[:, first_row : last_row + 1, first_column : last_column + 1]

    def _mask(self) -> np.ndarray:
        # Positions outside may be looked up in the first and last block: those are empty.
        return draw(-(-self.length // self.block), self.count, self.heads, self.seed)


@functools.lru_cache(maxsize=64)
def draw(blocks: int, count: int, heads: int, seed: int) -> np.ndarray:
    """Draws with `seed` a read-only bool mask [heads,blocks,blocks]: `count` (or all, if there are
    fewer) random columns for each row but the first and last, among the inner columns that are not
    the row's own or next to it.
    """
    rng = np.random.default_rng(seed)
    mask = np.zeros((heads, blocks, blocks), bool)
    inner = np.arange(1, max(blocks - 1, 1))
    for head, row in itertools.product(range(heads), inner):
        mask[head, row, rng.permutation(inner[abs(inner - row) > 1])[:count]] = True
    mask.flags.writeable = False
    return mask


def bigbird(length: int, heads: int = 1, block: int = 64, random: int = 3, seed: int = 0) -> Rule:
    """Builds BigBird's rule for sequences of `length`: neighbouring blocks, the first and the last
    block global, and `random` drawn blocks for each row of blocks and each of the `heads`.
    """
    random_blocks = RandomBlocks(length, block, random, heads, seed)
    last = (length - 1) // block * block
    return (
        Local(block, reach=1)
        | Global((*range(min(block, length)), *range(max(last, block), length)))
        | random_blocks
    )
