"""What the references of the mechanisms share: a look, its weights, and the parts of a configuration."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tests.attention.alignment_oracles import aligned
from tests.attention.position_oracles import POSITIONS, Nothing
from tests.attention.score_oracles import SCORES
from tests.layers.oracles import affine

Array = np.ndarray
Result = tuple[Array, Array]
Oracle = Callable[..., Result]
Scores = Callable[[int, int, int, Array], Array]


def part(config: Mapping[str, Any], field: str, default: str) -> tuple[str, dict[str, Any]]:
    """The name and the fields of a part of a configuration."""
    node = config.get(field, default)
    node = {"name": node} if isinstance(node, str) else dict(node)
    return node.pop("name"), node


class Look(NamedTuple):
    """One look of a mechanism: parameters, configuration, query [B,Tq,dq], source [B,Tk,ds], mask
    [B,Tq,Tk] (True may be seen), and whether no query sees a later key.
    """

    params: Any
    config: dict[str, Any]
    query: Array
    source: Array
    mask: Array
    causal: bool = False

    @property
    def first(self) -> int:
        """The position of the first query; the last one stands on the last key."""
        return self.mask.shape[2] - self.mask.shape[1]

    @property
    def heads(self) -> int:
        """H."""
        return int(self.config["heads"])

    @property
    def group(self) -> int:
        """H / K, the heads of queries that share one of keys."""
        return self.heads // (self.config.get("key_heads") or self.heads)

    def layer(self, name: str, x: Array) -> Array:
        """x W + b of a layer."""
        return affine(self.params[name], x)

    def projected(self) -> list[Array]:
        """Queries, keys and values: x W_q, s W_k and s W_v, the heads side by side."""
        sides = zip(("query", "key", "value"), (self.query, self.source, self.source), strict=True)
        return [self.layer(f"w_{name}", x) for name, x in sides]

    def place(self, width: int, params: Any = None) -> Nothing:
        """The position scheme, of heads of this width."""
        scheme, fields = part(self.config, "positions", "none")
        params = self.params.get("positions", {}) if params is None else params
        return POSITIONS[scheme](params, fields, self.config.get("heads", 1), width, self.causal)

    def weights(self, heads: int, scores: Scores) -> Array:
        """The weights [B,H,Tq,Tk] of scores, see `aligned`; real keys are those that some query may
        see.
        """
        name, fields = part(self.config, "alignment", "softmax")
        allowed = np.repeat(self.mask[:, None], heads, axis=1)
        real = self.mask.any(axis=1).sum(axis=1)
        params = self.params.get("alignment", {})
        return aligned(name, params, fields, scores, allowed, self.query, real)

    def scored(self, query: Array, keys: Array, before: Array) -> Array:
        """The scores [Tk] of a query [dq] and keys [Tk,dk], after rows of weights [i,Tk]."""
        name, fields = part(self.config, "score", "additive")
        given = self.params.get("score", {}), fields, query
        pairs = enumerate(keys)
        return np.array([SCORES[name](*given, key, j, keys, before) for j, key in pairs])


def of_look(reference: Callable[[Look], Result]) -> Oracle:
    """The oracle that hands its arguments to a reference as one `Look`."""
    return lambda *given, **named: reference(Look(*given, **named))
