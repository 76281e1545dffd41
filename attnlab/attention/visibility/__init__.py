"""Who may see whom: rules that combine with `&` and `|`, kept as structure and turned into a mask only where a kernel wants one.

    CAUSAL & Window(256)        CAUSAL & (Local(64) | Global((0,)))        Visibility(longformer(512, marked))

A rule is a statement about the absolute positions of a query and a key; a `Visibility`, which is what mechanisms take, is a rule
together with where the queries stand. `CAUSAL` and `EVERYTHING` are visibilities, and so is whatever is combined with one.
Key padding is the memory's own business and not here.
"""

from attnlab.attention.visibility.bands import Causal, Stride, Window, dilated
from attnlab.attention.visibility.bigbird import RandomBlocks, bigbird
from attnlab.attention.visibility.given import Dense, Prefix, Segments, prefix_lm
from attnlab.attention.visibility.longformer import Global, longformer
from attnlab.attention.visibility.rule import AllOf, AnyOf, Everything, PerHead, Rule
from attnlab.attention.visibility.sparse_transformer import Local, Summary, sparse_fixed, sparse_strided
from attnlab.attention.visibility.whole import CAUSAL, EVERYTHING, Visibility

__all__ = [
    "CAUSAL",
    "EVERYTHING",
    "AllOf",
    "AnyOf",
    "Causal",
    "Dense",
    "Everything",
    "Global",
    "Local",
    "PerHead",
    "Prefix",
    "RandomBlocks",
    "Rule",
    "Segments",
    "Stride",
    "Summary",
    "Visibility",
    "Window",
    "bigbird",
    "dilated",
    "longformer",
    "prefix_lm",
    "sparse_fixed",
    "sparse_strided",
]
