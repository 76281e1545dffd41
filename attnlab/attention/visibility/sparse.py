"""Sparse patterns of published models, and the rules that they are made of; a kernel may skip the blocks
that nobody sees.

    strided(l), fixed(l, c)    Sparse Transformer: the last l keys and every l-th; one's own block and summaries     Child et al. 2019
    longformer(w)              a sliding window, and a few global tokens that see all and are seen by all             Beltagy et al. 2020
    bigbird                    blocks of global tokens, a window of blocks, and random blocks (the ITC form)          Zaheer et al. 2020

The function of each has its formula, cost and source.
"""

import functools
import itertools

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.visibility.given import looked_up
from attnlab.attention.visibility.rule import Causal, Rule, Stride, Window, dilated, grid
from attnlab.errors import UserError, at_least


@flax.struct.dataclass
class Local(Rule):
    """A query sees the keys of its own block, and of the `reach` blocks on either side: |i // block
    - j // block| <= reach (local blocks: N. Parmar et al., "Image Transformer", ICML 2018).

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
    """Builds the strided attention of the Sparse Transformer: the last `stride` keys, and every
    `stride`-th before them.

        strided(l)     j <= i and (i - j < l  or  (i - j) mod l = 0)

    l is the stride, near sqrt(T). It is the union of the paper's two parts ("merged" in one head).
    To give the parts to different heads as the paper also does, name them: `CAUSAL &
    PerHead((Window(l), Stride(l)))`. Every j <= i is reached in two steps of the union, and in two
    steps of the parts one after the other. Cost in a kernel that skips blocks: about 8 T sqrt(T) d
    FLOPs at l = sqrt(T). Source: R. Child, S. Gray, A. Radford, I. Sutskever, "Generating Long
    Sequences with Sparse Transformers", 2019, section 4.
    """
    return Causal() & (Window(stride) | Stride(stride))


def sparse_fixed(stride: int, summary: int) -> Rule:
    """Builds the fixed attention of the Sparse Transformer: the keys of one's own block, and the
    last `summary` of every block before it.

        fixed(l, c)    j <= i and (j // l = i // l  or  j mod l >= l - c)

    l is the stride, near sqrt(T); c the width of the summary at the end of every block of l. The
    parts in different heads: `CAUSAL & PerHead((Local(l), Summary(l, c)))`. Every j <= i is reached
    in two steps of the union. Cost and source: those of `sparse_strided`. Some re-implementations
    let every query see the first column of a block too; we follow the paper.
    """
    return Causal() & (Local(stride) | Summary(stride, summary))


@flax.struct.dataclass
class Global(Rule):
    """Global tokens see everything and are seen by everything; a pair of two others is not allowed.

    Attributes:
      positions: static positions of global tokens.
      marked: [B or 1,T] bool, further global tokens by position (True is global; positions outside
        are not); None for none.
    """

    positions: tuple[int, ...] = flax.struct.field(pytree_node=False, default=())
    marked: jax.Array | None = None

    def __post_init__(self) -> None:
        """Checks that `positions` is a tuple; raises UserError if not (arrays belong in `marked`)."""
        if not isinstance(self.positions, tuple):
            raise UserError(
                f"Global: positions={self.positions!r} must be a tuple of static integers; arrays"
                " of [B,T] bool go to marked="
            )

    def allows(self, i: jax.Array, j: jax.Array) -> jax.Array:
        """See `Rule.allows`."""
        return self._globals(i)[:, None, :, None] | self._globals(j)[:, None, None, :]

    def touches(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.touches`."""
        return self.marked is not None or any(i0 <= p < i1 or j0 <= p < j1 for p in self.positions)

    def everywhere(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.everywhere`."""
        positions = set(self.positions)
        return positions.issuperset(range(i0, i1)) or positions.issuperset(range(j0, j1))

    def _globals(self, positions: jax.Array) -> jax.Array:
        """Returns whether the tokens at positions [t] or [B,t] are global, listed in `positions` or
        True in `marked`: bool [B or 1,t].
        """
        listed = jnp.any(positions[..., None] == np.array(self.positions, np.int32), axis=-1)
        listed = listed if positions.ndim == 2 else listed[None]
        if self.marked is None:
            return listed
        marks, exists = looked_up(self.marked, positions, axis=1)
        return listed | (marks & exists)


def half_of(window: int) -> int:
    """Returns how many keys a Longformer's window of `window` keys has on each side of the query;
    raises UserError if it is odd or negative.
    """
    if window < 0 or window % 2:
        raise UserError(
            f"longformer: window={window} is to be halved; the nearest even one is"
            f" {max(window - 1, 0)}"
        )
    return window // 2


def longformer(window: int, tokens: tuple[int, ...] | jax.Array = (), dilation: int = 1) -> Rule:
    """Builds Longformer's rule: a dilated window of `window` keys beside the query's own, and
    global `tokens` (static positions, or [B,T] bool); raises UserError if the window is odd or
    negative.

        i sees j   if   |i - j| <= w / 2   or   i is global   or   j is global

    w is the whole window, w / 2 on each side, beside the query itself: w + 1 keys. With dilation r
    the window is j = i + r m, |m| <= w / 2. Cost in a kernel that skips blocks: 4 T (w + 1 + g) d
    FLOPs for the g global keys, and 4 g T d for the global queries. Source: I. Beltagy, M. E.
    Peters, A. Cohan, "Longformer: The Long-Document Transformer", 2020, section 3.1. This is the
    rule only; it has no separate projections of global queries and keys.
    """
    rule = Global(tokens) if isinstance(tokens, tuple) else Global(marked=tokens)
    return dilated(half_of(window) + 1, dilation) | rule


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

    With positions in blocks of b, block row I sees block column J if

        |I - J| <= 1   or   I or J is the first or the last block   or   J is one of r blocks drawn for (head, I)

    The r blocks are drawn without replacement from those that the row does not see anyway; all of
    these if there are no more than r. They are drawn once, with NumPy from the seed, when the rule
    is first used. They are constants of the compiled program, the same in training and after it.
    Cost in a kernel that skips blocks: 4 T (5 + r) b d FLOPs. Source: M. Zaheer et al., "Big Bird:
    Transformers for Longer Sequences", NeurIPS 2020, section 2. For encoders: the last block is
    global, so the pattern depends on T and cannot be causal. The authors' code turns to full
    attention on short sequences; ours never does.
    """
    random_blocks = RandomBlocks(length, block, random, heads, seed)
    last = (length - 1) // block * block
    return (
        Local(block, reach=1)
        | Global((*range(min(block, length)), *range(max(last, block), length)))
        | random_blocks
    )
