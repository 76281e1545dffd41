"""Whole mechanisms that reduce to one another do so exactly.

Those of scores, alignments, position schemes, rules and kernels stand with their own tests.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from attnlab.attention.mechanisms.latent import Latent
from attnlab.attention.protocol import MAPS
from attnlab.attention.view import CAUSAL
from tests.attention.cases import WIDTH, inputs, make, parameters
from tests.rounding import assert_close

derived = pytest.mark.full  # follows from the oracles, which a default run asks

EYE = {"kernel": np.eye(WIDTH, dtype=np.float32)}


def read(
    name: str, config: dict[str, Any], params: Any, query: Any, source: Any, valid: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Context and weights under causal visibility."""

    @jax.jit
    def look(*given: Any) -> Any:
        variables, *seen = given
        reading = make(name, config).apply(variables, *seen, CAUSAL, valid, mutable=[MAPS])[0]
        return reading.context, reading.weights

    return look({"params": params}, query, source)


def of(name: str, config: dict[str, Any]) -> Any:
    """Parameters of a mechanism."""
    return parameters(make(name, config))


def assert_same(found: tuple[Any, Any], expected: tuple[Any, Any]) -> None:
    """Contexts and weights are equal up to the order of summation."""
    for actual, wanted in zip(found, expected, strict=True):
        assert_close(actual, wanted, eps=8)


def repeated(kernel: np.ndarray, key_heads: int, heads: int) -> np.ndarray:
    """A kernel [d,K*D] whose heads stand as often as query heads read them, [d,H*D]."""
    of_heads = kernel.reshape(len(kernel), key_heads, -1)
    return of_heads.repeat(heads // key_heads, axis=1).reshape(len(kernel), -1)


@derived
@pytest.mark.quick
@pytest.mark.parametrize("key_heads", [1, 2, 6])
def test_grouped_queries_are_multihead_attention_with_keys_and_values_repeated(
    key_heads: int,
) -> None:
    params = of("multihead", {"heads": 6, "key_heads": key_heads})
    full = params | {
        side: {"kernel": repeated(params[side]["kernel"], key_heads, 6)}
        for side in ("w_key", "w_value")
    }
    grouped = read("multihead", {"heads": 6, "key_heads": key_heads}, params, *inputs())
    assert_same(grouped, read("multihead", {"heads": 6}, full, *inputs()))


def test_one_head_without_projections_is_single_attention() -> None:
    query, source, valid = inputs()
    bare = {"w_query": EYE, "w_key": EYE, "w_value": EYE, "out": EYE}
    for score in ("scaled_dot", "euclidean"):
        heads = read("multihead", {"heads": 1, "score": score}, bare, query, source, valid)
        assert_same(heads, read("single", {"score": score}, {}, query, source, valid))


@derived
def test_constant_scores_give_the_mean_of_what_may_be_seen() -> None:
    query, source, valid = inputs()
    seen = np.tri(5, 7, 2, dtype=bool) & valid[:, None]
    mean = (seen / seen.sum(-1, keepdims=True)) @ source
    assert_close(read("single", {"score": "dot"}, {}, 0 * query, source, valid)[0], mean, eps=8)
    params = of("multihead", {"heads": 3})
    silent = params | {"w_query": {"kernel": 0 * params["w_query"]["kernel"]}}
    expected = mean @ params["w_value"]["kernel"] @ params["out"]["kernel"]
    assert_close(read("multihead", {"heads": 3}, silent, query, source, valid)[0], expected, eps=8)
    params = of("hops", {"hops": 2, "hidden": 5})
    even = params | {"w_hops": {"kernel": 0 * params["w_hops"]["kernel"]}}
    expected = np.concatenate([mean, mean], axis=-1) @ params["out"]["kernel"]
    assert_close(
        read("hops", {"hops": 2, "hidden": 5}, even, query, source, valid)[0], expected, eps=8
    )


@derived
def test_one_hop_is_additive_attention_with_a_silent_query() -> None:
    query, source, valid = inputs()
    params = of("hops", {"hops": 1, "hidden": 5})
    fit = {
        "w_query": {"kernel": np.zeros((WIDTH, 5), np.float32)},
        "w_key": params["w_hidden"],
        "v": params["w_hops"]["kernel"][:, 0],
    }
    context, weights = read(
        "single", {"score": {"name": "additive", "hidden": 5}}, {"score": fit}, query, source, valid
    )
    found = read("hops", {"hops": 1, "hidden": 5}, params, query, source, valid)
    assert_same(found, (context @ params["out"]["kernel"], weights))


@derived
@pytest.mark.quick
def test_refinements_at_rest_are_multihead_attention() -> None:
    """Talking heads that mix nothing, gates wide open, and the first of each pair of a difference
    without a strength.
    """
    query, source, valid = inputs()
    query[..., 0] = 1.0
    params = of("multihead", {"heads": 6})
    context, weights = read("multihead", {"heads": 6}, params, query, source, valid)
    still = {mix: np.eye(6, dtype=np.float32) for mix in ("mix_scores", "mix_weights")}
    talking = read("talking_heads", {"heads": 6}, params | still, query, source, valid)
    assert_same(talking, (context, weights))
    for gate, width in (("element", WIDTH), ("head", 6)):
        kernel = np.eye(WIDTH, width, dtype=np.float32)[:, :1].repeat(width, axis=1) * 100
        opened = params | {"w_gate": {"kernel": kernel}}
        found = read("gated", {"heads": 6, "gate": gate}, opened, query, source, valid)
        assert_close(found[0], context, eps=8)
    nothing = {name: np.zeros(2, np.float32) for name in ("a1", "b1", "a2", "b2")}
    nothing |= {"gain": np.ones(4, np.float32)}
    found = read("differential", {"heads": 6, "start": 0.0}, params | nothing, query, source, valid)
    assert_close(found[1], weights[:, 0::2], eps=8)


@derived
def test_latent_attention_is_multihead_attention_to_its_latents() -> None:
    """Keys and values out of a latent as wide as the source or narrower; both of its forms, and
    with the query's own latent.
    """
    query, source, valid = inputs()
    for latent in (5, WIDTH):
        params = of("latent", {"heads": 3, "latent": latent})
        raw = source @ params["w_latent"]["kernel"]
        raw /= np.sqrt((raw**2).mean(-1, keepdims=True) + 1e-6)
        latents = raw * params["norm_latent"]["scale"]
        grown = {
            f"w_{side}": {"kernel": params[f"up_{side}"].reshape(latent, WIDTH)}
            for side in ("key", "value")
        }
        same = {"w_query": params["w_query"], "out": params["out"], **grown}
        expected = read("multihead", {"heads": 3}, same, query, latents.astype(np.float32), valid)
        found = read("latent", {"heads": 3, "latent": latent}, params, query, source, valid)
        assert_same(found, expected)


@pytest.mark.parametrize("rotary", [0, 4])
def test_both_forms_of_latent_attention_are_one(
    rotary: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"heads": 3, "latent": 5, "rotary": rotary, "positions": "rope" if rotary else "none"}
    found = []
    for absorbed in (True, False):
        monkeypatch.setattr(Latent, "absorbs", lambda *_, absorbed=absorbed: absorbed)
        found.append(read("latent", config, of("latent", config), *inputs()))
    assert_same(*found)


@derived
def test_one_step_is_the_mechanism_itself() -> None:
    query, source, valid = inputs()
    inner = of("multihead", {"heads": 2})
    kernel = np.random.default_rng(4).normal(size=(WIDTH, WIDTH)).astype(np.float32) / 4
    w_query = {"kernel": kernel}
    config = {"steps": 1, "looks": {"name": "multihead", "heads": 2}}
    found = read("multi_step", config, {"w_query": w_query, "looks": inner}, query, source, valid)
    moved = query @ w_query["kernel"]
    assert_same(found, read("multihead", {"heads": 2}, inner, moved, source, valid))


@derived
def test_a_predictor_that_is_the_value_makes_key_value_predict_key_value() -> None:
    """Thirds (k, v, v) against halves (k, v): as wide for both, so that the parameters are the
    same.
    """
    query, source, valid = inputs()
    thirds = [x[..., :4] for x in (query, source)], [x[..., 4:8] for x in (query, source)]
    three = [np.concatenate([k, v, v], axis=-1) for k, v in zip(*thirds, strict=True)]
    two = [np.concatenate([k, v], axis=-1) for k, v in zip(*thirds, strict=True)]
    params = of("key_value_predict", {"score": "dot"})
    found = read("key_value_predict", {"score": "dot"}, params, *three, valid)
    assert_same(found, read("key_value", {"score": "dot"}, params, *two, valid))
