"""The compiled looks of a case, which its tests share: tracing and compiling are what a case costs,
the numbers cost nothing.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.needs import hands_out_weights
from attnlab.attention.protocol import LOSSES, MAPS
from attnlab.attention.view import EVERYTHING, View
from tests.attention.cases import causally, inputs, kept, make, parameters, recorded, wide

PLACED = View(positions=2)  # queries stay where they are when the source grows or shrinks


class Found(NamedTuple):
    """A look whose map is recorded and whose weights are asked for, if they are handed out, and the
    gradients for params, query and source.
    """

    context: Any
    weights: Any  # the map
    slopes: Any


class Exact(NamedTuple):
    """A causal look (or one at everything) in float64, and its derivatives in both modes, and with `remat`."""

    context: np.ndarray
    numeric: np.ndarray  # central difference along `tangents`
    forward: np.ndarray
    tangents: Any
    cotangent: np.ndarray
    backward: Any
    remat: Any


def drawn(shape: tuple[int, ...], seed: int = 5) -> np.ndarray:
    """Numbers that a context or its weights are summed up with, float32."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


class Forward(NamedTuple):
    """Looks without gradients, of one program."""

    plain: Any  # a `Reading`
    recorded: Any  # while maps are recorded: a `Reading` and its collections
    asked: Any  # as well; weights asked for, if they are handed out
    longer: Any  # contexts [3,5,d] where four keys more are padding
    rows: Any  # as well, of rows alone, vmapped, with four keys; causal where that is declared
    low: Any  # as well, in bfloat16, of rounded numbers


class Looks:
    """A mechanism of a case, its parameters, and programs, each compiled when first asked for."""

    def __init__(self, name: str, config: dict[str, Any]) -> None:
        self.module = make(name, config)
        self.params = parameters(self.module)
        self.weighs = hands_out_weights(type(self.module))
        # of this object, so that the programs go with it
        self.forward = functools.cache(self._forward)
        self.program = functools.cache(self._program)
        self.exact = functools.cache(self._exact)

    def look(self, params: Any, query: Any, source: Any, *seen: Any, **how: Any) -> Any:
        """A `Reading`, or what `apply` makes of one."""
        return self.module.apply({"params": params}, query, source, *seen, **how)

    def _forward(self) -> Forward:
        query, source, valid = inputs()
        longer = np.pad(source, ((0, 0), (0, 4), (0, 0)), constant_values=1e4)
        more = np.pad(valid, ((0, 0), (0, 4)))
        alone = View(causally(self.module).rule, positions=2)
        weights = {"weights": True} if self.weighs else {}

        @jax.jit
        def program(params: Any, query: Any, source: Any, valid: Any, more: Any) -> Forward:
            look = functools.partial(self.look, params, query, source, EVERYTHING, valid)
            row = lambda *row: self.look(params, *(one[None] for one in row), alone).context[0]
            low = jax.tree.map(lambda one: one.astype(jnp.bfloat16), (params, query, source))
            return Forward(
                look(),
                look(mutable=[MAPS]),
                look(**weights, mutable=[LOSSES]),
                self.look(params, query, longer, PLACED, more).context,
                jax.vmap(row)(query, source[:, :4]),
                self.look(*low, EVERYTHING, valid).context,
            )

        found = program(self.params, query, source, valid, more)
        return jax.tree.map(np.asarray, found)  # type: ignore[no-any-return]

    def _program(self, view: View) -> Any:
        """(params, query, source, valid, who [Tq]) to `Found`. Its slopes are those of context *
        drawn(its shape) + weights * drawn(their shape), summed up over those queries that `who` is
        1 for.
        """
        how: dict[str, Any] = {"weights": True} if self.weighs else {}

        def total(given: Any, valid: Any, who: Any) -> Any:
            reading, collected = self.look(*given, view, valid, **how, mutable=[MAPS])
            numbers = (reading.context, reading.weights) if how else (reading.context,)
            sums = ((one * drawn(one.shape) * who[:, None]).sum() for one in numbers)
            return sum(sums), (reading.context, recorded(collected))

        @jax.jit
        def program(params: Any, query: Any, source: Any, valid: Any, who: Any) -> Found:
            given = (params, query, source)
            slopes, (context, weights) = jax.grad(total, has_aux=True)(given, valid, who)
            return Found(context, weights, slopes)

        return program

    def found(self, view: View = EVERYTHING, **other: Any) -> Found:
        """What is found in `inputs()`, or in others, as arrays: `params`, `query`, `source`,
        `valid`, `who`.
        """
        query, source, valid = inputs()
        given = {"params": self.params, "query": query, "source": source, "valid": valid}
        given = given | {"who": np.ones(query.shape[1], np.float32)} | other
        found = self.program(view)(*given.values())
        return jax.tree.map(np.asarray, found)  # type: ignore[no-any-return]

    def _exact(self) -> Exact:
        """`Exact` of a small look with padding."""
        query, source, valid = inputs(batch=2, queries=3, keys=4)
        given, rng = wide((self.params, query, source)), np.random.default_rng(7)
        tangents = jax.tree.map(lambda one: rng.normal(size=one.shape), given)
        cotangent = rng.normal(size=(*query.shape[:2], self.module.width))
        with jax.enable_x64(True):
            look = lambda *given: self.look(*given, causally(self.module), valid).context
            context = jax.jit(look)  # traced once

            @jax.jit
            def program(given: Any, tangents: Any) -> Any:
                value, forward = jax.linearize(context, *given)
                backward = jax.linear_transpose(forward, *given)(cotangent)
                remat = jax.vjp(jax.checkpoint(context), *given)[1](cotangent)
                return value, forward(*tangents), backward, remat

            value, forward, backward, remat = program(given, tangents)
            moved = lambda by: jax.tree.map(lambda x, t: x + by * t, given, tangents)
            after, before = (np.asarray(program(moved(by), tangents)[0]) for by in (1e-5, -1e-5))
        numeric = (after - before) / 2e-5
        found = (value, numeric, forward, tangents, cotangent, backward, remat)
        return Exact(*jax.tree.map(np.asarray, found))


looks = kept(Looks)
