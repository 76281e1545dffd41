"""Any look at all: shapes, padding, rules joined by & and |, and offsets that hypothesis thinks of,
for mechanisms with and without parts; and mechanisms under every rule by its predicate.

Draws are the same in every run (the profile stands in `conftest.py`). Shapes come from a short
list, so that few programs are compiled.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.attention import visibility
from attnlab.attention.protocol import MAPS
from attnlab.attention.view import View
from tests.attention import visibility_oracles
from tests.attention.cases import TOLERANCE, WIDTH, inputs, make, parameters, wide
from tests.attention.oracles import ORACLES
from tests.rounding import assert_close

IDS = np.array([0, 0, 1, 1, 1, 2, 2], np.int32)
SQUARE = np.random.default_rng(0).random((7, 7)) < 0.5
Seen = tuple[visibility.Rule, Callable[[int, int], bool]]
ATOMS: list[Seen] = [
    (visibility.Causal(), lambda i, j: j <= i),
    (visibility.Window(2), lambda i, j: abs(i - j) < 2),
    (visibility.Stride(3), lambda i, j: (i - j) % 3 == 0),
    (visibility.Local(3), lambda i, j: i // 3 == j // 3),
    (visibility.Summary(3, 1), lambda i, j: j % 3 == 2),
    (visibility.Global((1,)), lambda i, j: 1 in (i, j)),
    (visibility.Prefix(2), lambda i, j: j < 2),
    (visibility.Segments(IDS[None]), lambda i, j: bool(IDS[i] == IDS[j])),
    (visibility.Dense(SQUARE), lambda i, j: bool(SQUARE[i, j])),
]
SHAPES = ((1, 5), (5, 5), (3, 7))
COSINE = {"name": "cosine", "strength": "fixed"}
MECHANISMS: list[tuple[str, dict[str, Any]]] = [
    ("multihead", {"heads": 3}),
    ("multihead", {"heads": 6, "key_heads": 2, "alignment": "entmax"}),
    ("multihead", {"heads": 2, "key_heads": 1, "alignment": "sink", "bias": True}),
    ("multihead", {"heads": 3, "score": COSINE, "alignment": "sigmoid"}),
    ("talking_heads", {"heads": 2, "alignment": "softmax_plus_one"}),
    ("latent", {"heads": 3, "latent": 5}),
    ("hops", {"hops": 2, "hidden": 5, "alignment": "sparsemax"}),
    ("single", {"score": "general"}),
]


def joined(parts: tuple[str, Seen, Seen]) -> Seen:
    """Two rules by & or |, and their predicates likewise."""
    word, (one, of_one), (other, of_other) = parts
    if word == "and":
        return one & other, lambda i, j: of_one(i, j) and of_other(i, j)
    return one | other, lambda i, j: of_one(i, j) or of_other(i, j)


rules = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.tuples(st.sampled_from(["and", "or"]), inner, inner).map(joined),
    max_leaves=4,
)


@dataclasses.dataclass(frozen=True)
class Look:
    """One look, and who may see whom in it: [B,Tq,Tk], padding counted."""

    name: str
    config: dict[str, Any]
    view: View
    query: np.ndarray
    source: np.ndarray
    valid: np.ndarray
    mask: np.ndarray
    first: int

    @functools.cached_property
    def read(self) -> Callable[[np.ndarray], Any]:
        """Contexts and weights at another source; one program."""
        module = make(self.name, self.config)
        params = {"params": parameters(module)}

        @jax.jit
        def program(source: Any) -> Any:
            given = (self.query, source, self.view, self.valid)
            return module.apply(params, *given, mutable=[MAPS])[0]

        return program


@st.composite
def looks(draw: Any) -> Look:
    """Any mechanism, shape, rule, offset and padding; a batch of two."""
    name, config = draw(st.sampled_from(MECHANISMS))
    queries, keys = draw(st.sampled_from(SHAPES))
    rule, sees = draw(rules)
    offset = draw(st.none() | st.integers(0, keys - queries))
    real = draw(st.lists(st.booleans(), min_size=2 * keys, max_size=2 * keys))
    valid = np.array(real).reshape(2, keys)
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    query, source = (
        rng.normal(size=(2, length, WIDTH)).astype(np.float32) for length in (queries, keys)
    )
    first = keys - queries if offset is None else offset
    pairs = np.array([[sees(first + i, j) for j in range(keys)] for i in range(queries)], bool)
    return Look(
        name, config, View(rule, offset), query, source, valid, pairs & valid[:, None], first
    )


@given(looks())
def test_any_look_equals_the_oracle_and_its_rows_sum_as_declared(look: Look) -> None:
    module = make(look.name, look.config)
    reading = look.read(look.source)
    params, query, source = wide((parameters(module), look.query, look.source))
    context, weights = ORACLES[look.name](
        params, config=look.config, query=query, source=source, mask=look.mask
    )
    off = np.abs(reading.context - context).max()
    assert off <= TOLERANCE["float32"] * max(1.0, np.abs(context).max())
    np.testing.assert_allclose(reading.weights, weights, rtol=0, atol=TOLERANCE["float32"])
    actual = np.asarray(reading.weights)
    assert (actual[np.broadcast_to(~look.mask[:, None], actual.shape)] == 0.0).all()
    sums = actual.sum(axis=-1)
    alive = np.broadcast_to(look.mask.any(axis=-1)[:, None], actual.shape[:3])
    if module.rows() == "one":
        np.testing.assert_allclose(sums, alive, atol=TOLERANCE["float32"])
    elif module.rows() == "at most one":
        assert (actual >= 0.0).all() and (sums <= 1.0 + TOLERANCE["float32"]).all()


@given(looks(), st.sampled_from([1.0, 1e4]))
def test_what_a_query_may_not_see_changes_nothing_for_it(look: Look, garbage: float) -> None:
    """Padding, the future, and whatever else a rule keeps from it: any key is replaced, and only
    who sees it may notice.
    """
    before = np.asarray(look.read(look.source).context)
    for key in range(look.source.shape[1]):
        dirty = look.source.copy()
        dirty[:, key] = garbage
        blind = ~look.mask[:, :, key]
        assert_close(np.asarray(look.read(dirty).context)[blind], before[blind], eps=8)
    if look.view.is_causal:
        places = look.first + np.arange(look.query.shape[1])[:, None]
        ahead = np.arange(look.source.shape[1])[None] > places
        assert not look.mask[:, ahead].any()


RULED: list[tuple[str, dict[str, Any]]] = [
    ("multihead", {"heads": 2}),
    ("multihead", {"heads": 2, "key_heads": 1, "alignment": "entmax", "positions": "alibi"}),
    ("latent", {"heads": 2, "latent": 5}),
    ("hops", {"hops": 2, "hidden": 5}),
]
OTHERS = "sliding", "dilated", "prefix-LM by row", "packed", "longformer", "strided", "nested"
RULES = ["bigbird", "factorised", *(pytest.param(rule, marks=pytest.mark.full) for rule in OTHERS)]


@pytest.mark.parametrize(("name", "config"), RULED)
@pytest.mark.parametrize("rule", RULES)
def test_values_equal_the_oracle_under_any_rule(
    rule: str, name: str, config: dict[str, Any]
) -> None:
    """Rules that tell heads apart too: the oracle, which does not, is asked once for each head."""
    asked, predicate = visibility_oracles.cases()[rule]
    length = visibility_oracles.T
    x, _, _ = inputs(batch=2, queries=length)
    valid = np.arange(length)[None] < np.array([length, length - 2])[:, None]
    mask = visibility_oracles.mask(predicate) & valid[:, None, None]
    module, params = make(name, config), parameters(make(name, config))
    look = functools.partial(module.apply, {"params": params}, mutable=[MAPS])
    reading, _ = jax.jit(lambda x: look(x, x, View(asked), valid))(x)
    for head in range(2):
        oracle = functools.partial(
            ORACLES[name], wide(params), config=config, causal=asked.is_causal
        )
        context, weights = oracle(query=wide(x), source=wide(x), mask=mask[:, head])
        assert_close(reading.weights[:, head], weights[:, head], eps=8)
    if (mask[:, 0] == mask[:, 1]).all():
        assert_close(reading.context, context, eps=16)
