"""What the references of the mechanisms share: the weights of a look, row by row, and the parts of a
configuration.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tests.attention.alignment_oracles import ALIGNMENTS, Row
from tests.attention.score_oracles import SCORES

Array = np.ndarray
Config = dict[str, Any]
Result = tuple[Array, Array]
Oracle = Callable[..., Result]


def part(config: Mapping[str, Any], field: str, default: str) -> tuple[str, dict[str, Any]]:
    """The name and the fields of a part of a configuration."""
    node = config.get(field, default)
    node = {"name": node} if isinstance(node, str) else dict(node)
    return node.pop("name"), node


def weights_of(
    params: Any,
    config: Mapping[str, Any],
    heads: int,
    scores: Callable[[int, int, int, np.ndarray], np.ndarray],
    query: np.ndarray,
    mask: np.ndarray,
) -> np.ndarray:
    """The weights [B,H,Tq,Tk] of scores: each row aligned on its own, after the rows before it.

    Args:
      scores: (b, h, i, the weights [i,Tk] of the rows before) to the scores [Tk] of a row.
    """
    align, how = part(config, "alignment", "softmax")
    batch, queries, keys = mask.shape
    weights, raw = (np.zeros((batch, heads, queries, keys)) for _ in range(2))
    for b, h, i in np.ndindex(batch, heads, queries):
        raw[b, h, i] = scores(b, h, i, weights[b, h, :i])
        row = Row(
            params.get("alignment", {}),
            how,
            raw[b, h, i],
            mask[b, i],
            query[b, i],
            keys - queries + i,
            head=h,
            length=real(mask[b]),
            before=weights[b, h, :i],
            scores_before=raw[b, h, :i],
            allowed_before=mask[b, :i],
            first_before=np.where(mask[b, :i], raw[b, 0, :i], -np.inf),
            real_before=[mask[b, :, keys - queries + l].any() for l in range(i)],
        )
        weights[b, h, i] = ALIGNMENTS[align](row)
    return weights


def scored(
    params: Any,
    config: Mapping[str, Any],
    default: str,
    query: np.ndarray,
    keys: np.ndarray,
    before: np.ndarray,
) -> np.ndarray:
    """The scores [Tk] of a query [dq] and keys [Tk,dk], after rows of weights [i,Tk]."""
    score, fields = part(config, "score", default)
    given = params.get("score", {}), fields
    return np.array(
        [SCORES[score](*given, query, key, j, keys, before) for j, key in enumerate(keys)]
    )


def real(mask: np.ndarray) -> int:
    """How many keys of a row [Tq,Tk] are real: those that some query may see."""
    return int(mask.any(axis=0).sum())


def affine(params: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """x W + b."""
    return x @ params["kernel"] + params.get("bias", 0.0)
