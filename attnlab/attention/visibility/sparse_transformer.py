"""Sparse Transformer: strided and fixed attention (Child et al. 2019), and the two rules of blocks
that they use.

    strided(l)     j <= i and (i - j < l  or  (i - j) mod l = 0)
    fixed(l, c)    j <= i and (j // l = i // l  or  j mod l >= l - c)

l is the stride, near sqrt(T); c the width of the summary at the end of every block of l. Both are
the union of the paper's two parts ("merged" in one head). To give the parts to different heads as
the paper also does, name them: `CAUSAL & PerHead((Window(l), Stride(l)))` or `CAUSAL &
PerHead((Local(l), Summary(l, c)))`. Every j <= i is reached in two steps of a union, and in two
steps of the strided parts one after the other. Non-overlapping local blocks, i // b = j // b, are
`Local(b)`; with `reach` the neighbouring blocks are seen too. Cost in a kernel that skips blocks:
about 8 T sqrt(T) d FLOPs at l = sqrt(T). Source: R. Child, S. Gray, A. Radford, I. Sutskever,
"Generating Long Sequences with Sparse Transformers", 2019, section 4; local blocks: N. Parmar et
al., "Image Transformer", ICML 2018. Some re-implementations let every query see the first column of
a block too; we follow the paper.
"""

import flax.struct
import jax

from attnlab.attention.visibility.rule import Causal, Rule, Stride, Window, grid
from attnlab.errors import UserError, at_least


@flax.struct.dataclass
class Local(Rule):
    """A query sees the keys of its own block, and of the `reach` blocks on either side: |i // block
    - j // block| <= reach.

    Attributes:
      block: positions of a block.
      reach: 0 for its own block only.
    """

    block: int = flax.struct.field(pytree_node=False)
    reach: int = flax.struct.field(pytree_node=False, default=0)

    def __post_init__(self) -> None:
        at_least(1, "Local", block=self.block)
        at_least(0, "Local", reach=self.reach)

    def allows(self, i: jax.Array, j: jax.Array) -> jax.Array:
        """See `Rule.allows`."""
        i, j = grid(i, j)
        return abs(i // self.block - j // self.block) <= self.reach

    def touches(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.touches`."""
        low, high = self._block_distances(i0, i1, j0, j1)
        return low <= self.reach and high >= -self.reach

    def everywhere(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.everywhere`."""
        low, high = self._block_distances(i0, i1, j0, j1)
        return low >= -self.reach and high <= self.reach

    @property
    def is_causal(self) -> bool:
        """See `Rule.is_causal`."""
        return self.block == 1 and self.reach == 0

    @property
    def window(self) -> int:
        """See `Rule.window`."""
        return (self.reach + 1) * self.block

    def _block_distances(self, i0: int, i1: int, j0: int, j1: int) -> tuple[int, int]:
        """The least and the greatest i // block - j // block."""
        return i0 // self.block - (j1 - 1) // self.block, (i1 - 1) // self.block - j0 // self.block


@flax.struct.dataclass
class Summary(Rule):
    """Every query sees the last `width` keys of every block of `stride`: j mod stride >= stride -
    width.

    Attributes:
      stride: positions of a block.
      width: columns of the summary, at most the stride.
      turn: which run of `width` columns, counted from the end of the block; 0 is the last. Heads
        may use different runs.
    """

    stride: int = flax.struct.field(pytree_node=False)
    width: int = flax.struct.field(pytree_node=False)
    turn: int = flax.struct.field(pytree_node=False, default=0)

    def __post_init__(self) -> None:
        """Checks that `width` >= 1, `turn` >= 0 and the summary columns of that turn fit a block of
        `stride`; raises UserError if not.
        """
        at_least(1, "Summary", width=self.width)
        at_least(0, "Summary", turn=self.turn)
        if self._first < 0:
            raise UserError(
                f"Summary: {self.width} columns at turn={self.turn} leave a block of"
                f" stride={self.stride}; lower one of them"
            )

    def allows(self, i: jax.Array, j: jax.Array) -> jax.Array:
        """See `Rule.allows`."""
        column = grid(i, j)[1] % self.stride - self._first
        return (column >= 0) & (column < self.width)

    def touches(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.touches`."""
        return self._columns_before(j1) > self._columns_before(j0)

    def everywhere(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.everywhere`."""
        return self._columns_before(j1) - self._columns_before(j0) == j1 - j0

    @property
    def _first(self) -> int:
        return self.stride - self.width * (self.turn + 1)

    def _columns_before(self, position: int) -> int:
        """How many summary columns lie at 0 <= j < position."""
        blocks, column = divmod(position, self.stride)
        return blocks * self.width + min(max(column - self._first, 0), self.width)


def sparse_strided(stride: int) -> Rule:
    """Strided attention of the Sparse Transformer: the last `stride` keys, and every `stride`-th
    before them.
    """
    return Causal() & (Window(stride) | Stride(stride))


def sparse_fixed(stride: int, summary: int) -> Rule:
    """Fixed attention of the Sparse Transformer: the keys of one's own block, and the last
    `summary` of every block before it.
    """
    return Causal() & (Local(stride) | Summary(stride, summary))
