"""The protocol's own parts: memories and the switch for maps. What a slot asks for and a mechanism does
not declare is refused in one line; parts in slots: test_composition.py.
"""

import functools
import types
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention import MECHANISMS
from attnlab.attention.alignments import ALIGNMENTS
from attnlab.attention.alignments.protocol import SAMPLES
from attnlab.attention.mechanisms.multi_step import MultiStep
from attnlab.attention.mechanisms.multihead import MultiHead
from attnlab.attention.mechanisms.single import Single
from attnlab.attention.memories import Memory, first_memory, written
from attnlab.attention.needs import Need, hands_out_weights
from attnlab.attention.positions import POSITIONS
from attnlab.attention.protocol import MAPS, Attention, Capabilities, Reading
from attnlab.attention.scores import SCORES
from attnlab.attention.view import EVERYTHING
from attnlab.config.registry import made
from attnlab.errors import UserError


@pytest.mark.quick
def test_written_pads_to_the_capacity_and_counts() -> None:
    source = jnp.zeros((2, 3, 4))
    known, length = written(source, None, None)
    assert known.tolist() == [[True] * 3] * 2 and int(length) == 3 and length.dtype == jnp.int32
    valid = np.array([[True, True, False], [True, False, False]])
    known, length = written(source, valid, 5)
    np.testing.assert_array_equal(known, np.pad(valid, ((0, 0), (0, 2))))
    assert int(length) == 3
    known, length = written(source[:, :0], None, 2)
    assert known.tolist() == [[False, False]] * 2 and int(length) == 0
    with pytest.raises(ValueError, match="capacity 2 is smaller than the source's length 3"):
        written(source, None, 2)


class Bare(Attention):
    """Reads a fixed context and records fixed weights."""

    capabilities = Capabilities(
        roles=frozenset({"self"}),
        directions=frozenset({"causal"}),
        padding=False,
        cache=False,
        maps="none",
    )

    def remember(self, source: Any, valid: Any = None, capacity: Any = None) -> Any:
        """The mean of the source."""
        return source.mean(axis=1, keepdims=True)

    def read(self, query: Any, memory: Any, visibility: Any = None) -> Reading:
        """That mean, for every query."""
        return Reading(memory + 0 * query, self.capture(jnp.ones((1, 1, query.shape[1], 1))))


def test_maps_have_one_switch_and_calling_is_remembering_and_reading() -> None:
    module, x = Bare(width=4), jnp.arange(24.0).reshape(1, 6, 4)
    plain = module.apply({}, x, x)
    assert plain.weights is None and plain.losses == {}
    reading, collected = module.apply({}, x, x, mutable=[MAPS])
    np.testing.assert_array_equal(collected[MAPS]["weights"][0], reading.weights)
    memory = module.apply({}, x, method="remember")
    read = module.apply({}, x, memory, method="read")
    np.testing.assert_array_equal(reading.context, read.context)
    with pytest.raises(NotImplementedError):
        module.apply({}, first_memory(Memory, x, None, None, 0), x, method="extend")


@pytest.mark.quick
def test_initialising_sows_nothing() -> None:
    """So the first maps and samples of a later pass with these variables are its own, and an
    optimizer gets parameters alone.
    """
    x = jnp.ones((1, 3, 4))
    module = MECHANISMS.resolve("single")(width=4, alignment="hard")
    init = functools.partial(module.init_with_output, jax.random.key(0))
    reading, variables = jax.eval_shape(init, x, x[:, :2])
    assert set(variables) == {"params"} and reading.weights is None
    look = functools.partial(module.apply, mutable=[MAPS, SAMPLES])
    _, collected = jax.eval_shape(look, variables, x, x)
    assert [one.shape for one in collected[MAPS]["weights"]] == [(1, 1, 3, 3)]
    assert [one.shape for one in jax.tree.leaves(collected[SAMPLES])] == [(1, 1, 3)] * 2


@pytest.mark.parametrize("name", MECHANISMS.names())
def test_every_memory_leads_with_the_batch(name: str) -> None:
    """All arrays of a memory but `length` lead with B, so that beams can be tiled; with and without
    spare room.
    """
    module = MECHANISMS.resolve(name)(width=12)
    init = functools.partial(module.init_with_output, jax.random.key(0), method="remember")
    shapes = jax.eval_shape(init, jnp.zeros((3, 5, 12)))[0]
    assert all(leaf.shape == () or leaf.shape[0] == 3 for leaf in jax.tree.leaves(shapes))
    assert shapes.valid.shape == (3, 5)
    assert module.width == 12 and isinstance(module.capabilities, Capabilities)


def unwrapped(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method behind a decorator that hides its arguments."""

    def call(self: Any, *given: Any, **named: Any) -> Any:
        return method(self, *given, **named)

    return call


def brief(self: Any, query: Any, memory: Any, view: Any = EVERYTHING) -> Reading:
    return Single.read(self, query, memory, view)


def whole(
    self: Any,
    query: Any,
    memory: Any,
    view: Any = EVERYTHING,
    weights: bool = False,
    history: Any = None,
) -> Reading:
    return Single.read(self, query, memory, view, weights, history)


class Mixin:
    read = brief


@pytest.mark.parametrize(
    ("bases", "fields", "hands_out"),
    [
        ((Single,), {"read": brief}, False),
        ((Mixin, Single), {}, False),
        ((Single,), {"read": unwrapped(brief)}, True),
        ((Single,), {"read": nn.remat(whole)}, True),
        ((Single,), {"read": nn.jit(whole)}, True),
    ],
    ids=["short", "from a mixin", "behind a decorator", "rematerialised", "compiled"],
)
def test_a_read_of_the_users_gets_no_argument_at_its_default(
    bases: tuple[type, ...], fields: dict[str, Any], hands_out: bool
) -> None:
    """However it is defined; and one that leaves weights out is known not to hand them out."""
    x = jax.random.normal(jax.random.key(0), (2, 5, 8))
    expected, _ = Single(8).init_with_output(jax.random.key(0), x, x)
    own = types.new_class("Own", bases, exec_body=lambda space: space.update(fields))
    reading, _ = own(8).init_with_output(jax.random.key(0), x, x)
    np.testing.assert_allclose(reading.context, expected.context, rtol=1e-6)
    assert hands_out_weights(own) is hands_out
    inner, outer = (MultiStep(8, looks=kind) for kind in (own, Single))
    readings = [each.init_with_output(jax.random.key(0), x, x)[0] for each in (inner, outer)]
    np.testing.assert_allclose(readings[0].context, readings[1].context, rtol=1e-6)


def test_a_subclass_makes_a_part_that_it_adds_and_need_not_offer_one_that_it_inherits() -> None:
    class Placed(Single):
        positions: str = "none"
        parts = {**Single.parts, "positions": POSITIONS}

        def setup(self) -> None:
            super().setup()
            self.scheme = made(POSITIONS, self.positions)(name="positions")

    class Fixed(MultiHead):
        parts = {"score": SCORES, "alignment": ALIGNMENTS}

    x = jax.random.normal(jax.random.key(0), (2, 5, 8))
    for own, base in ((Placed, Single), (Fixed, MultiHead)):
        expected, _ = base(8).init_with_output(jax.random.key(0), x, x)
        reading, _ = own(8).init_with_output(jax.random.key(0), x, x)
        np.testing.assert_array_equal(reading.context, expected.context)


def test_a_base_makes_the_parts_of_a_class_that_names_them_once() -> None:
    class Near(Single):
        """A class below keeps those of its base."""

        parts = {**Single.parts, "positions": POSITIONS}

    assert list(Single.made_parts) == list(Near.made_parts) == ["score", "alignment"]
    assert list(MultiHead.made_parts) == ["score", "alignment", "positions"]


def test_a_hook_of_a_subclass_of_multihead_counts_in_short_looks_too() -> None:
    class Silent(MultiHead):
        def result(self, *given: Any) -> Any:
            return 0 * super().result(*given)

    x = jax.random.normal(jax.random.key(0), (2, 5, 8))
    assert not Silent(8).init_with_output(jax.random.key(0), x, x)[0].context.any()


own = functools.partial(Need, role="self", direction="causal")  # as `Bare` declares it


@pytest.mark.quick
@pytest.mark.parametrize(
    ("need", "words"),
    [
        (Need(role="cross"), "slot=bare: Bare does not support the role 'cross'; it offers 'self'"),
        (Need(role="self"), "does not support the direction 'bidirectional'; it offers 'causal'"),
        (own(), "does not support padding; it needs sequences of one length"),
        (own(padding=False, cache=True), "does not support cached decoding"),
        (own(padding=False), "does not support attention maps"),
        (
            own(padding=False, maps=False, values=True),
            "does not support values apart from keys; choose 'single'",
        ),
        (
            own(padding=False, maps=False, positions=frozenset({"score"})),
            "does not support position hooks 'score'; it offers 'embedding'",
        ),
    ],
)
def test_what_is_not_declared_is_refused_with_what_is(need: Need, words: str) -> None:
    with pytest.raises(UserError, match=words):
        need.check(Bare, "slot=bare")


def test_what_is_declared_is_granted() -> None:
    own(padding=False, maps=False, positions=frozenset({"embedding"})).check(Bare, "slot")
    nothing = Capabilities(roles=frozenset())
    with pytest.raises(UserError, match="it offers none"):
        Need(role="self").check(type("Nothing", (Bare,), {"capabilities": nothing}), "slot")
