"""Positions in a dependency tree (Wang, Tu, Wang, Shi 2019): the depth of a word, and the relation
of two words.

    x_t + tanh(W [PE(t); PE(depth_t)])                 absolute: PE the sinusoid, depth the steps up to the root, 0 at the root itself
    depth_i - depth_j         where one word is an ancestor of the other, or the same word
    sgn(i - j) (depth_i + depth_j)         for all other pairs                         relative: `structural_distance`

The trees come as the index of each word's head, so all functions here are pure functions of integer
arrays. `tree_distance` is the number of edges between two words, beside the paper's signed form.

The relative form is Shaw's with a second distance: its vectors are added to those of the distance
in the sentence. The view has the distances of a batch, `View(rule, trees=structural_distance(heads,
valid))`. They are indexed by position, so they cover the whole sequence in cached decoding too.
Without trees, and beyond them, the distance is 0.

Axis letters: B batch, T words, d model width. Cost: depths B T log T steps, relations B T^2 log T,
tree distances 2 B T^3 FLOPs, once for a batch and not for each layer. Parameters of the absolute
form: 2 d^2. Source: X. Wang, Z. Tu, L. Wang, S. Shi, "Self-Attention with Structural Position
Representations", EMNLP 2019 (D19-1145, arXiv 1909.00383). The paper merges both positions by a
non-linear function; that it is tanh without a bias is our choice, as is reading "related" as
ancestry (`mode="edge"`: joined by an edge). Words without a head are children of one artificial
root.
"""

from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.positions.absolute import sinusoid
from attnlab.attention.positions.protocol import PositionScheme
from attnlab.attention.positions.relative import Shaw, clipped, key_part, value_part
from attnlab.attention.view import View
from attnlab.attention.visibility.given import looked_up
from attnlab.errors import UserError
from attnlab.layers.dense import GLOROT, inner_dtype, matmul, widened


class Syntax(PositionScheme):
    """Sinusoids of the position in the sentence and the depth in its tree, merged by a trained
    layer and added to embeddings.

    Attributes:
      base: the ratio of the longest to the shortest wavelength of both.

    Card: structural; Wang et al., Structural Position Representations, EMNLP 2019; time T d^2.
    """

    base: float = 10000.0

    hooks = frozenset({"embedding"})

    @nn.compact
    def embed(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """Adds to x [B,T,d] a learned tanh layer of the sinusoids of each word's index and of its
        depth in the dependency tree, which is given as `positions` [B,T]; raises UserError for
        positions of another shape.

        Raises:
          UserError: positions [T] instead of one depth for each word of each sentence.
        """
        batch, length, width = x.shape
        if positions.shape != (batch, length):
            raise UserError(
                f"position scheme syntax: wants a depth for each word, {(batch, length)}, and was"
                f" given positions {positions.shape}; a system without dependency trees can use"
                " 'sinusoidal' or 'learned'"
            )
        places = jnp.broadcast_to(jnp.arange(length), (batch, length))
        sines = jnp.concatenate(
            [sinusoid(where, width, self.base, inner_dtype(x)) for where in (places, positions)],
            axis=-1,
        )
        kernel = jnp.asarray(self.param("merge", GLOROT, (2 * width, width)))
        return x + jnp.tanh(matmul(sines, widened(kernel))).astype(x.dtype)


class SyntaxRelative(Shaw):
    """The sum of two of Shaw's vectors: for the distance in the sentence and for the one in the
    dependency tree.

    Attributes:
      clip: k; all larger distances share one vector, in both tables.
      sides: "both" adds to keys and values, "key" to keys only.

    Card: structural; Wang et al., Structural Position Representations, EMNLP 2019;
    time T^2 + T k D.
    """

    trees = True

    def bias(self, q: jax.Array, view: View, scale: float = 1.0) -> jax.Array:
        """Computes the bias scale * q_i . (a^K + b^K), float32 [B,H,Tq,Tk], for queries q
        [B,H,Tq,D], with learned vectors a^K of the distance in the sentence and b^K of that in the
        tree. See `PositionScheme.bias`.
        """
        rows = self.tree_rows(view, len(q))
        of_tree = key_part(q, self.table("tree_keys", q.shape[-1]), rows)
        return super().bias(q, view, scale) + scale * of_tree

    def values(self, weights: jax.Array, view: View, width: int) -> jax.Array | None:
        """Computes from weights w the term sum_j w_ij (a^V + b^V) of the context, float32
        [B,H,Tq,width], with learned vectors a^V of the distance in the sentence and b^V of that in
        the tree, or returns None if the field `sides` is "key". See `PositionScheme.values`.
        """
        of_sentence = super().values(weights, view, width)
        if of_sentence is None:
            return None
        rows = self.tree_rows(view, len(weights))
        return of_sentence + value_part(weights, self.table("tree_values", width), rows)

    def tree_rows(self, view: View, batch: int) -> jax.Array:
        """Returns for each query and key of the view the row, in a learned table, of their tree
        distance clipped to -`clip` ... `clip`, int32 [B,Tq,Tk] with B = `batch`; the row of
        distance 0 without trees, or beyond them.
        """
        shape = (batch, *view.size)
        if view.trees is None:
            return jnp.full(shape, self.clip)
        padded = jnp.pad(view.trees, ((0, 0), (0, 1), (0, 1)))  # beyond its end the last entry, 0
        picked, _ = looked_up(looked_up(padded, view.i, axis=1)[0], view.j, axis=2)
        return jnp.broadcast_to(clipped(picked, self.clip), shape)


def depth(heads: jax.Array, valid: jax.Array | None = None) -> jax.Array:
    """Computes the depth of each word in its dependency tree, int32 [B,T], the number of steps up
    to the root, from the position of each word's syntactic head, `heads` [B,T]; 0 at a root and at
    padding (`valid` False).

    Args:
      heads: [B,T] int, the position of each word's head in its sentence; negative or the word's own
        position at a root. No cycles.
      valid: [B,T] bool, True at real words; None means all are.
    """
    above = _above(heads, valid)
    steps = (above != jnp.arange(heads.shape[1])).astype(jnp.int32)
    for _ in range(_doublings(heads)):
        steps = steps + jnp.take_along_axis(steps, above, axis=1)
        above = jnp.take_along_axis(above, above, axis=1)
    return steps


def ancestors(heads: jax.Array, valid: jax.Array | None = None) -> jax.Array:
    """Returns a bool array [B,T,T], True at (i, j) if word j is word i or an ancestor of it in the
    dependency tree, from the position of each word's syntactic head, `heads` [B,T]. Arguments as of
    `depth`.
    """
    above = _above(heads, valid)
    reached = jnp.broadcast_to(jnp.eye(heads.shape[1], dtype=bool), (*heads.shape, heads.shape[1]))
    # `above` is 1, 2, 4, ... steps up, `reached` holds all that are fewer
    for _ in range(_doublings(heads)):
        reached = reached | jnp.take_along_axis(reached, above[:, :, None], axis=1)
        above = jnp.take_along_axis(above, above, axis=1)
    return reached


def structural_distance(
    heads: jax.Array, valid: jax.Array | None = None, mode: Literal["ancestor", "edge"] = "ancestor"
) -> jax.Array:
    """Computes from syntactic heads [B,T] the signed tree distance of words i and j, int32 [B,T,T]:
    depth_i - depth_j if one is an ancestor (mode "edge": head) of the other, else sgn(i - j)
    (depth_i + depth_j); 0 where either is padding. Arguments as of `depth`, and:

    Args:
      mode: which pairs get the difference of depths: "ancestor" (one above the other), "edge" (one
        the other's head).
    """
    place = jnp.arange(heads.shape[1])
    up = (
        ancestors(heads, valid)
        if mode == "ancestor"
        else (_above(heads, valid)[:, :, None] == place) | jnp.eye(len(place), dtype=bool)
    )
    deep = depth(heads, valid)
    deep_i, deep_j = deep[:, :, None], deep[:, None, :]
    across = jnp.sign(place[:, None] - place) * (deep_i + deep_j)
    return _between_words(jnp.where(up | up.mT, deep_i - deep_j, across), valid)


def tree_distance(heads: jax.Array, valid: jax.Array | None = None) -> jax.Array:
    """Counts the edges between words i and j in the dependency tree, int32 [B,T,T], from the
    position of each word's syntactic head, `heads` [B,T]; 0 where either word is padding (`valid`
    False). That is depth_i + depth_j - 2 depth of their lowest common ancestor. Arguments as of
    `depth`.

    Words of different trees of one sentence are joined by a root above both.
    """
    up, deep = ancestors(heads, valid).astype(jnp.float32), depth(heads, valid)
    # common ancestors: the lowest is at depth shared - 1
    shared = jnp.einsum("bin,bjn->bij", up, up).astype(jnp.int32)
    return _between_words(deep[:, :, None] + deep[:, None, :] - 2 * (shared - 1), valid)


def _above(heads: jax.Array, valid: jax.Array | None) -> jax.Array:
    """The position of the head, [B,T]; the word's own position at a root and at padding."""
    word = (heads >= 0) if valid is None else (heads >= 0) & valid
    return jnp.where(word, heads, jnp.arange(heads.shape[1]))


def _doublings(heads: jax.Array) -> int:
    """How often one step must be doubled to reach at least T steps."""
    return max(heads.shape[1] - 1, 0).bit_length()


def _between_words(distance: jax.Array, valid: jax.Array | None) -> jax.Array:
    return (
        distance if valid is None else jnp.where(valid[:, :, None] & valid[:, None, :], distance, 0)
    )
