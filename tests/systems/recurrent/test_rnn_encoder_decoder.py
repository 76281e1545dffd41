"""What is said of the fixed vector: it is the only way from source to target, every step is given
it, and there is nothing to look at.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab import config as configs
from attnlab.data.vocabulary import BOS, EOS, PAD
from attnlab.tasks.pairs import build_system
from attnlab.tasks.translation import Translation
from tests.systems.checks import SPECS, batch, make, parameters
from tests.tasks.tiny import load, looked, trained

SPEC = SPECS["rnn_encoder_decoder"]
WAYS = ("first_state", "of_context", "out_context")  # from c to s_0, to every step, to every output


def only(params: Any, *ways: str) -> Any:
    """The parameters with all other ways out of the fixed vector shut."""
    shut = {way: jax.tree.map(np.zeros_like, params[way]) for way in WAYS if way not in ways}
    return {**params, **shut}


@functools.cache
def slopes(*ways: str) -> np.ndarray:
    """How much the logits [T,V] at each target position move with the source's embedding, over a
    batch, as [T].
    """
    system, (source, target) = make(SPEC), batch()
    params = only(parameters(system), *ways)

    def logits(table: jax.Array) -> jax.Array:
        return system.apply(
            {"params": params | {"embed_source": {"embedding": table}}}, source, target
        )  # type: ignore[return-value]

    slope = jax.jit(jax.jacrev(logits))(jnp.asarray(params["embed_source"]["embedding"]))
    return np.abs(np.asarray(slope)).max(axis=(0, 2, 3, 4))


def test_the_source_comes_by_the_three_ways_of_the_fixed_vector_and_no_other() -> None:
    assert (slopes() == 0.0).all()
    for way in WAYS:
        assert slopes(way).shape == (5,) and (slopes(way) > 1e-5).all()


def test_the_fixed_vector_forgets_no_position() -> None:
    """Every real word of the source has a gradient, and padding exactly none: c is read at the last
    real token.
    """
    system, (source, target) = make(SPEC), batch()
    params = parameters(system)
    by_position = (
        np.arange(18).reshape(3, 6) % 17
    )  # every place reads a row of its own, as nearly as 17 rows allow
    by_position = np.where(source != 0, np.maximum(by_position, 1), 0)

    def total(table: jax.Array) -> jax.Array:
        logits = system.apply(
            {"params": params | {"embed_source": {"embedding": table}}}, by_position, target
        )
        return (logits**2).sum()  # type: ignore[operator]

    table = jnp.asarray(params["embed_source"]["embedding"])
    slope = np.abs(np.asarray(jax.jit(jax.grad(total))(table))).max(axis=1)
    assert slope[0] == 0.0 and (slope[np.unique(by_position[source != 0])] > 1e-6).all()


@functools.cache
def tiny() -> tuple[Translation, Any]:
    """The mirrored words of `tests.tasks.tiny`, a little trained."""
    task = load("rnn_encoder_decoder")
    return task, trained(task, 20)


@pytest.mark.parametrize("method", ["beam", "greedy"])
def test_the_one_interface_decodes_it(method: str) -> None:
    """A hypothesis has the log-probability that teacher forcing gives it; asked for alignments it
    has none.
    """
    task, params = tiny()
    task = Translation(
        configs.prepare(
            configs.from_dict(configs.to_dict(task.config)), [f"decoding.method={method}"]
        ),
        task.data,
    )
    texts, apply = [source for source, _ in task.data.pairs["test"]], jax.jit(task.system.apply)
    found = task.translate(params, texts, alignment=True)
    maps, tokens = looked(task, params, texts[0], task.text(found[0][0]))
    assert maps == {} and tokens["source"][:-1] == list(texts[0])
    assert all(best.alignment is None for best, *_ in found)
    for text, (best, *_) in list(zip(texts, found, strict=True))[:2]:
        ids = np.asarray([*task.vocabularies[0].encode_all([text])[0], EOS])[None]
        target_in = np.asarray([BOS, *best.tokens[:-1]])[None]
        logits = np.array(apply({"params": params}, ids, target_in), np.float64)[0]
        logits[:, [PAD, BOS]] = -np.inf  # never written
        log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        assert best.log_prob == pytest.approx(
            log_probs[np.arange(len(best.tokens)), best.tokens].sum(), abs=1e-3
        )


def test_it_is_as_large_as_rnnsearch() -> None:
    """At the default sizes the two have as many parameters within a sixth, so that a comparison
    starts nearly fair.
    """

    def count(name: str) -> int:
        system, _ = build_system(configs.load(f"configs/translation.py:{name}"), 64, 64)
        ids = jax.ShapeDtypeStruct((1, 2), jnp.int32)
        return sum(
            leaf.size
            for leaf in jax.tree.leaves(
                jax.eval_shape(system.init, jax.random.key(0), ids, ids)["params"]
            )
        )

    ratio = count("rnn_encoder_decoder") / count("rnnsearch")
    assert 5 / 6 < ratio < 7 / 6
