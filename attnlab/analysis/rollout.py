"""Attention through all layers: rollout, flow, and relevance weighted by gradients.

All take the self-attention maps of one text, first layer first, [H,T,T] for each of L layers (H may
differ). Axis letters: L layers, H heads, T tokens.

Sources: S. Abnar, W. Zuidema, "Quantifying Attention Flow in Transformers", ACL 2020; H. Chefer, S.
Gur, L. Wolf, "Generic Attention-model Explainability", ICCV 2021.
"""

import itertools
from collections.abc import Sequence

import numpy as np
from scipy import linalg, sparse
from scipy.sparse import csgraph

from attnlab.analysis.heads import DUST
from attnlab.errors import UserError

LONGEST = 128  # tokens of a text whose flow is computed
_UNIT = 1 << 30  # a capacity of 1, in the whole numbers that scipy's maximum flow takes


def mixing(maps: Sequence[np.ndarray]) -> np.ndarray:
    """Returns A~ [L,T,T] of L layers from their maps [H,T,T], the mean over heads plus the identity
    for the residual connection, each row divided by its sum; raises `UserError` for weights below
    0.

    Raises:
      UserError: a map has weights below 0.
      ValueError: the maps are not square, of one T.
    """
    if min(np.min(layer) for layer in maps) < -DUST:
        raise UserError("rollout and flow are for maps without weights below 0; these have some")
    means = np.maximum([np.mean(layer, axis=0, dtype=np.float64) for layer in maps], 0.0)
    mixed = means + np.eye(means.shape[-1])
    return mixed / mixed.sum(-1, keepdims=True)


def rollout(maps: Sequence[np.ndarray]) -> np.ndarray:
    """Computes attention rollout R_l = A~_l R_{l-1} with R_0 = A~_0, [L,T,T]: how far each token
    above layer l is made of each token of the text. Rows sum to 1.

    Raises:
      UserError: as `mixing`.
    """
    layers = itertools.accumulate(mixing(maps), lambda below, layer: layer @ below)
    return np.stack([*layers])


def flow(maps: Sequence[np.ndarray], query: int) -> np.ndarray:
    """Returns attention flow [T], the largest flow from position `query` above the last of L layers
    with maps [H,T,T] to each token of the text, through edges with the capacities A~ of `mixing`;
    raises `UserError` for more than `LONGEST` tokens.

    Raises:
      UserError: more than `LONGEST` tokens, or as `mixing`.
    """
    mixed = mixing(maps)
    length, top = mixed.shape[-1], mixed.shape[0] * mixed.shape[-1]
    if length > LONGEST:
        raise UserError(f"flow: {length} tokens; it is computed for at most {LONGEST}")
    graph = np.zeros((top + length,) * 2, np.int32)  # the text, then what is above each layer
    graph[length:, :top] = np.rint(linalg.block_diag(*mixed) * _UNIT)
    edges, source = sparse.csr_array(graph), top + query
    flows = [csgraph.maximum_flow(edges, source, key).flow_value for key in range(length)]
    return np.array(flows) / _UNIT


def gradient_relevance(maps: Sequence[np.ndarray], gradients: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the relevance R [T,T] of each token of the text (columns) for each position above the
    last layer (rows): from the identity, mean_h max(A_h G_h, 0) R is added for every layer, with
    its map A and gradient G [H,T,T].

    Args:
      maps: A of L layers, which may have weights below 0.
      gradients: G of L layers, the gradient of what is explained (a logit, a loss) with respect to
        the weights, [H,T,T] each.
    """
    relevance = np.eye(np.shape(maps[0])[-1])
    for weights, gradient in zip(maps, gradients, strict=True):
        mean = np.maximum(np.asarray(weights, np.float64) * gradient, 0.0).mean(0)
        relevance = relevance + mean @ relevance
    return relevance
