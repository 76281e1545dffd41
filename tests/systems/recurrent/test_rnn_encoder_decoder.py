"""The fixed vector is the only way from source to target, and every step is given it."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab import config as configs
from attnlab.tasks.pairs import build_system
from attnlab.tasks.translation import Translation
from tests.systems.checks import SPECS, batch, make, parameters
from tests.tasks.tiny import load, looked, trained

SPEC = SPECS["rnn_encoder_decoder"]
WAYS = ("first_state", "of_context", "out_context")  # from c to s_0, to every step, to every output


@functools.cache
def program() -> Any:
    """(params) to the logits [3,5,V] and their slopes by the source's embedding [3,5,V,17,6]."""
    system, (source, target) = make(SPEC), batch()

    def logits(table: jax.Array, params: Any) -> Any:
        given = params | {"embed_source": {"embedding": table}}
        return system.apply({"params": given}, source, target)

    slope = jax.jit(jax.jacrev(logits))
    return lambda params: slope(jnp.asarray(params["embed_source"]["embedding"]), params)


def test_the_source_comes_by_the_three_ways_of_the_fixed_vector_and_no_other() -> None:
    params = parameters(make(SPEC))
    for open_way in (None, *WAYS):
        shut = {way: jax.tree.map(np.zeros_like, params[way]) for way in WAYS if way != open_way}
        moved = np.abs(np.asarray(program()({**params, **shut}))).max(axis=(0, 2, 3, 4))
        assert (moved > 1e-5).all() if open_way else (moved == 0.0).all()


@pytest.mark.full
def test_it_is_as_large_as_rnnsearch() -> None:
    """At the default sizes the two have as many parameters within a sixth, so that a comparison
    starts nearly fair.
    """

    def count(name: str) -> int:
        system, _ = build_system(configs.load(f"configs/translation.py:{name}"), 64, 64)
        shapes = jax.eval_shape(system.init, jax.random.key(0), *batch())["params"]
        return sum(leaf.size for leaf in jax.tree.leaves(shapes))

    assert 5 / 6 < count("rnn_encoder_decoder") / count("rnnsearch") < 7 / 6


@pytest.mark.full
def test_who_is_asked_for_alignments_it_has_not_gives_none() -> None:
    task = load("rnn_encoder_decoder")
    params, texts = trained(task, 1), [source for source, _ in task.data.rows["test"]]
    for method in ("beam", "greedy"):
        config = configs.from_dict(configs.to_dict(task.config))
        chosen = configs.prepare(config, [f"decoding.method={method}"])
        found = Translation(chosen, task.data).translate(params, texts, alignment=True)
        assert all(best.alignment is None for best, *_ in found)
    maps, tokens = looked(task, params, texts[0], task.text(found[0][0]))
    assert maps == {} and tokens["source"][:-1] == list(texts[0])
