"""Which query may see which key: rules that combine with `&` and `|`. A rule becomes a mask only if
a kernel needs one.

    CAUSAL & Window(256)        CAUSAL & (Local(64) | Global((0,)))        View(longformer(512, marked))

A rule is a statement about the absolute positions of a query and a key. Mechanisms take a `View`
(`view.py`): a rule, the positions of the tokens, and which of them are real. `CAUSAL` and
`EVERYTHING` are views; a rule combined with a view is a view. A config names a rule by
`VISIBILITIES`: a new one is one line there.
"""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attnlab.attention.visibility.rule import AllOf as AllOf
from attnlab.attention.visibility.rule import AnyOf as AnyOf
from attnlab.attention.visibility.rule import Causal as Causal
from attnlab.attention.visibility.rule import Everything as Everything
from attnlab.attention.visibility.rule import PerHead as PerHead
from attnlab.attention.visibility.rule import Rule as Rule
from attnlab.attention.visibility.rule import Stride as Stride
from attnlab.attention.visibility.rule import Window as Window
from attnlab.attention.visibility.rule import dilated as dilated
from attnlab.config.registry import Table

if TYPE_CHECKING:
    from attnlab.attention.visibility.given import Dense as Dense
    from attnlab.attention.visibility.given import Prefix as Prefix
    from attnlab.attention.visibility.given import Segments as Segments
    from attnlab.attention.visibility.given import prefix_lm as prefix_lm
    from attnlab.attention.visibility.sparse import Global as Global
    from attnlab.attention.visibility.sparse import Local as Local
    from attnlab.attention.visibility.sparse import RandomBlocks as RandomBlocks
    from attnlab.attention.visibility.sparse import Summary as Summary
    from attnlab.attention.visibility.sparse import bigbird as bigbird
    from attnlab.attention.visibility.sparse import longformer as longformer
    from attnlab.attention.visibility.sparse import sparse_fixed as sparse_fixed
    from attnlab.attention.visibility.sparse import sparse_strided as sparse_strided

_PATTERNS = "attnlab.attention.visibility.patterns"
VISIBILITIES: Table[Callable[..., Rule]] = Table(
    "visibility",
    {
        "full": f"{_PATTERNS}:full",
        "causal": f"{_PATTERNS}:causal",
        "window": f"{_PATTERNS}:window",
        "dilated": f"{_PATTERNS}:dilated",
        "stride": f"{_PATTERNS}:stride",
        "local": f"{_PATTERNS}:local",
        "summary": f"{_PATTERNS}:summary",
        "first": f"{_PATTERNS}:first",
        "global": f"{_PATTERNS}:tokens",
        "prefix": f"{_PATTERNS}:prefix",
        "strided": f"{_PATTERNS}:strided",
        "fixed": f"{_PATTERNS}:fixed",
        "longformer": f"{_PATTERNS}:longformer",
        "bigbird": f"{_PATTERNS}:bigbird",
        "all_of": f"{_PATTERNS}:all_of",
        "any_of": f"{_PATTERNS}:any_of",
        "per_head": f"{_PATTERNS}:per_head",
        "by_layer": f"{_PATTERNS}:RuleByLayer",
    },
)

_FOUND_IN = {
    ("Dense", "Prefix", "Segments", "prefix_lm"): "given",
    ("Global", "Local", "RandomBlocks", "Summary"): "sparse",
    ("bigbird", "longformer", "sparse_fixed", "sparse_strided"): "sparse",
}  # imported on first use


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        for names, module in _FOUND_IN.items():
            if name in names:
                return getattr(importlib.import_module(f"{__name__}.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
