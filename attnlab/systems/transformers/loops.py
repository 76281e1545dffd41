"""How the layers of a stack are run: written out one after another, or as a loop of the compiled
program; with what they compute kept for the backward pass, or computed again.

    written out     x = f(p_0, x);  x = f(p_1, x);  ...                    a program n layers long
    scan            P = stack(p_0, p_1, ...);  x = loop over P of f        a program one layer long, which is compiled n times faster
    remat           the backward pass gets the x before each layer and computes the layer again

Neither changes what is computed beyond rounding, but dropout draws other numbers. Parameters stay
`layer_0`, `layer_1`, ...: the loop stacks them inside the program, so checkpoints and weights know
nothing of it; the stack takes the memory of the parameters once more while a step runs. Layers that
differ by a pattern are looped over by periods of the pattern; what is left over is written out.
Parameters that all layers share (the table of T5's positions) are not stacked: the loop reads them.

Source: T. Chen, B. Xu, C. Zhang, C. Guestrin, "Training Deep Nets with Sublinear Memory Cost", 2016
(remat).
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.alignments.protocol import SAMPLES
from attnlab.attention.interventions import intervening
from attnlab.attention.protocol import LOSSES, MAPS
from attnlab.gathering import gathered_as, in_parts
from attnlab.layers.block import Block

STREAMS = ("dropout", "sample")
Step = Callable[[Any, int, jax.Array, Any], tuple[jax.Array, Any]]
"""`step(block, number, x, extra)`: x [B,T,d] and what else a layer is given, to x and what it leaves."""


class Sharing(functools.partial[Any]):
    """A factory of mixers that share one position scheme, which is no part of any of them.

    Attributes:
      factory: the factory of mixers that have a scheme each.
      scheme: the shared one, bound.
    """

    factory: Callable[..., Any]
    scheme: nn.Module

    @classmethod
    def make(cls, factory: Callable[..., Any], scheme: nn.Module) -> "Sharing":
        """That factory."""
        sharing = cls(factory, positions=lambda **_: scheme)
        sharing.factory, sharing.scheme = factory, scheme
        return sharing


@dataclasses.dataclass(frozen=True)
class Layers:
    """The layers of a stack, as pure functions of their parameters.

    Attributes:
      stack: the blocks, bound.
      step: one layer.
      extras: what each layer is given besides, such as its state; empty for nothing.
      remat: whether the backward pass computes a layer again.
    """

    stack: Sequence[Block]
    step: Step
    extras: Sequence[Any]
    remat: bool

    def inputs(self, number: int) -> tuple[Any, list[Any]]:
        """Parameters of a layer, and the arrays among what it is given that may differ."""
        leaves = jax.tree.leaves(self.extras[number]) if self.extras else []
        traced = [leaf for leaf in leaves if not isinstance(leaf, np.ndarray)]
        return in_parts(self.stack[number].variables.get("params", {})), traced

    def apply(
        self, number: int, x: jax.Array, inputs: tuple[Any, list[Any]], keys: Mapping[str, Any]
    ) -> jax.Array:
        """Computes the layer `number` on x [B,T,d], to [B,T,d], with `inputs`, a pair of its
        parameters and extra arrays, and random `keys` by stream name, which may be those of another
        layer like it. With `remat` it is recomputed in the backward pass.

        Arrays of NumPy are known while the program is made, and stay it: kernels use their values.
        """
        like = self.stack[number].variables.get("params", {})

        def run(inputs: tuple[Any, list[Any]], x: jax.Array, keys: Mapping[str, Any]) -> jax.Array:
            """Gathers the parameters, puts the traced inputs back in their places and applies the
            layer to x.
            """
            params, traced = inputs
            params, extra = gathered_as(like, params), None
            if self.extras:
                leaves, tree = jax.tree.flatten(self.extras[number])
                values = iter(traced)
                leaves = [leaf if isinstance(leaf, np.ndarray) else next(values) for leaf in leaves]
                extra = jax.tree.unflatten(tree, leaves)
            block, params = _alone(self.stack[number], params)
            called = nn.apply(lambda block: self.step(block, number, x, extra)[0], block)
            y: jax.Array = called({"params": params}, rngs=dict(keys))
            return y

        return (jax.checkpoint(run) if self.remat else run)(inputs, x, keys)

    def static(self, number: int) -> list[Any]:
        """What `inputs` leaves out, as values that can be compared."""
        leaves = jax.tree.leaves(self.extras[number]) if self.extras else []
        return [leaf.tolist() for leaf in leaves if isinstance(leaf, np.ndarray)]


def _alone(block: Block, params: Any) -> tuple[Block, Any]:
    """Returns a copy of a block that is bound to no module, and its nested parameters `params`
    completed by those of shared position schemes, put where each mixer would have its own.
    """
    shared = {name: mixer for name, mixer in block.mixers if isinstance(mixer, Sharing)}
    mixers = tuple(
        (name, shared[name].factory if name in shared else mixer) for name, mixer in block.mixers
    )
    complete = dict(params)
    for name, sharing in shared.items():
        table = sharing.scheme.variables.get("params", {})
        complete[name] = {**complete.get(name, {}), **({"positions": table} if table else {})}
    return block.clone(parent=None, name=None, mixers=mixers), complete


def loops(module: nn.Module) -> bool:
    """Whether layers may be pure functions in this call: not while parameters are made, nor while
    layers leave maps, losses or samples aside, nor while a pass intervenes in each.
    """
    aside = any(map(module.is_mutable_collection, (MAPS, LOSSES, SAMPLES)))
    return not aside and not intervening() and not module.is_initializing()


def keys_of(module: nn.Module, layers: int) -> dict[str, jax.Array]:
    """Returns a dictionary with n = `layers` random keys, [n], one for each layer, by the name of
    each random stream that the module has.
    """
    return {
        name: jax.random.split(module.make_rng(name), layers)
        for name in STREAMS
        if module.has_rng(name)
    }


def looped(layers: Layers, x: jax.Array, keys: Mapping[str, jax.Array], period: int) -> jax.Array:
    """Computes x [B,T,d] through all `layers`, with `keys` [n] for each random stream, by a `scan`
    over whole periods of `period` layers if there are at least two and the NumPy arrays given to
    their layers agree, the other layers in turn; `period` 0 for no scan.
    """
    count = len(layers.stack)
    rounds = count // period if period else 0
    alike = all(
        layers.static(number) == layers.static(number % period) for number in range(rounds * period)
    )
    rounds = rounds if rounds > 1 and alike else 0
    if rounds:
        places = [
            [layers.inputs(number) for number in range(place, rounds * period, period)]
            for place in range(period)
        ]
        stacked = [jax.tree.map(lambda *leaves: jnp.stack(leaves), *layer) for layer in places]
        by_round = {
            name: key[: rounds * period].reshape(rounds, period) for name, key in keys.items()
        }

        def body(x: jax.Array, now: Any) -> tuple[jax.Array, None]:
            inputs, round_keys = now
            for place in range(period):
                x = layers.apply(
                    place, x, inputs[place], {name: key[place] for name, key in round_keys.items()}
                )
            return x, None

        x, _ = jax.lax.scan(body, x, (stacked, by_round))
    for number in range(rounds * period, count):
        layer_keys = {name: key[number] for name, key in keys.items()}
        x = layers.apply(number, x, layers.inputs(number), layer_keys)
    return x
