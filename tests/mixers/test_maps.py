"""Every mixer has a map: the matrix that its values are summed with, or what central differences say
of its outputs and inputs; and recording it changes no output.
"""

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import numpy as np
import pytest

from attnlab.attention import MECHANISMS
from attnlab.attention.mixer import MAPS
from attnlab.attention.view import CAUSAL
from attnlab.mixers import MIXERS
from tests.attention.cases import causally, inputs, make, parameters
from tests.attention.test_mixer import OTHERS
from tests.layers.test_sensitivity import differences
from tests.mixers.test_whole import CASES
from tests.systems.tiny import seldom

LENGTH = 6
NO_MAP = {"none": "it moves nothing", "by_layer": "it is one of two others"}
SETTINGS = [*OTHERS, *CASES, ("linear", {"heads": 3})]
SETTINGS += [("linear", {"heads": 3, "features": "identity", "normalise": "norm", "chunk": 1})]
SENSITIVE = ("recurrent", "convolution", "ttt_linear", "ttt_mlp")
OF_MEANS = ("average", "fourier")  # there are no values: their equations have the matrix


def over(chosen: list[tuple[str, dict[str, Any]]]) -> Any:
    """A test over some of `SETTINGS`; the second ones of a mixer only in the full mode."""
    first = list(dict(reversed(chosen)).items())
    return pytest.mark.parametrize(("name", "config"), seldom(chosen, *first))


def prepared(name: str, config: dict[str, Any]) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """Mixer, parameters, x [3,6,d], and a `valid` with holes."""
    module, x = make(name, config), inputs(queries=LENGTH)[0]
    valid = np.random.default_rng(2).random(x.shape[:2]) < 0.7
    valid[:, 0] = True
    return module, parameters(module), x, valid


def test_every_mixer_is_here_or_among_the_mechanisms() -> None:
    assert {name for name, _ in SETTINGS} | {*MECHANISMS.names(), *NO_MAP} == set(MIXERS.names())


def expected_sums(matrix: np.ndarray, values: np.ndarray) -> np.ndarray:
    """A v [B,H,Tq,D] of maps [B,H m,Tq,T] and m values for each token [B,H,m T,D], in float64."""
    rows, _, _, tokens = matrix.shape
    of_heads = matrix.reshape(rows, values.shape[1], -1, *matrix.shape[2:])
    steps = values.astype(np.float64).reshape(*values.shape[:2], tokens, of_heads.shape[2], -1)
    sums: np.ndarray = np.einsum("bhmij,bhjmd->bhid", of_heads, steps)
    return sums


@over([case for case in SETTINGS if case[0] not in (*SENSITIVE, *OF_MEANS)])
def test_outputs_are_sums_of_values_by_the_map(name: str, config: dict[str, Any]) -> None:
    """For the values of the layer and for others, of a text and of a piece that goes on, whose state
    is left out; a padded token gives nothing to a real one.
    """
    module, params, x, valid = prepared(name, config)
    rule = causally(module)

    @jax.jit
    def program(params: Any, x: Any) -> Any:
        sums: list[Any] = []

        def noted(call: Any, given: Any, named: Any, context: Any) -> Any:
            result = call(*given, **named)
            if context.method_name == "sum_values":
                context_of, v, state = (*given, None)[:3]
                contexts = [context_of(other, state)[0] for other in (0 * v, v[::-1] ** 2)]
                sums.append((v, result[0], *contexts))
            return result

        def run(*given: Any, **named: Any) -> Any:
            return module.apply({"params": params}, *given, method="mix", **named)

        view = dataclasses.replace(rule, valid=valid)
        plain, _ = run(x, view)
        with nn.intercept_methods(noted):
            (y, _), collected = run(x, view, mutable=[MAPS])
            maps = [collected]
            if rule is CAUSAL:
                begun = module.apply(
                    {"params": params}, len(x), 2 * LENGTH, x.dtype, method="begin"
                )
                (_, state), _ = run(x, view, begun, mutable=[MAPS])
                del sums[1:]
                maps.append(run(x, rule, state, mutable=[MAPS])[1])
        return plain, y, [collected[MAPS].popitem()[1][0] for collected in maps], sums

    plain, y, maps, sums = jax.device_get(program(params, x))
    np.testing.assert_array_equal(y, plain)
    for matrix, (v, context, nothing, other), real in zip(
        maps, sums, (valid, np.ones_like(valid)), strict=False
    ):
        for values, actual in ((v, context), (v[::-1] ** 2, other)):
            near, *own = np.split(values, max(values.shape[1] // matrix.shape[1], 1), axis=1)
            expected = expected_sums(matrix, near)
            for of_globals in own:  # of Longformer
                expected[:, :, [0, 5]] = expected_sums(matrix, of_globals)[:, :, [0, 5]]
            off = np.abs(expected - (actual - nothing)).max(axis=(1, 3))[real]
            assert off.max() < 1e-5 * np.abs(actual).max()
    padding = valid[:, None, :, None] & ~valid[:, None, None]
    assert (maps[0][np.broadcast_to(padding, maps[0].shape)] == 0).all()


@over([case for case in SETTINGS if case[0] in OF_MEANS])
def test_means_and_transforms_have_the_matrix_of_their_equations(
    name: str, config: dict[str, Any]
) -> None:
    """Average: that of the mean over the real tokens so far. Fourier: y = cos a + sin b."""
    module, params, x, valid = prepared(name, config)
    view = dataclasses.replace(causally(module), valid=valid)
    run = functools.partial(module.apply, method="mix", mutable=[MAPS])
    (y, _), collected = jax.device_get(jax.jit(run)({"params": params}, x, view))
    for matrix, out, given, real in zip(collected[MAPS]["weights"][0], y, x, valid, strict=True):
        among = matrix[:, real][:, :, real]
        if name == "average":
            expected = np.tri(real.sum()) / np.arange(1, real.sum() + 1)[:, None]
            np.testing.assert_allclose(among[0], expected, rtol=1e-6)
        else:
            parts = np.fft.fft(given[real], axis=-1)
            expected = among[0] @ parts.real + among[1] @ parts.imag
            np.testing.assert_allclose(out[real], expected, atol=1e-4)
        assert not matrix[:, real][:, :, ~real].any()


@over([case for case in OTHERS if case[0] in SENSITIVE])
def test_sensitivities_are_what_central_differences_give(
    name: str, config: dict[str, Any], float64: None
) -> None:
    module = make(name, config)
    params = jax.tree.map(np.float64, parameters(module))
    x = inputs(batch=1, queries=5)[0].astype(np.float64)

    def run(x: Any, **named: Any) -> Any:
        return module.apply({"params": params}, x, method="mix", **named)

    (y, _), collected = jax.jit(lambda x: run(x, mutable=[MAPS]))(x)
    np.testing.assert_array_equal(y, jax.jit(run)(x)[0])
    (actual,) = collected[MAPS]["sensitivity"]
    expected = differences(lambda x: run(x)[0], x)
    np.testing.assert_allclose(actual[0, 0], expected, rtol=1e-5, atol=1e-7 * expected.max())
    assert (np.triu(actual[0, 0], 1) == 0).all()
