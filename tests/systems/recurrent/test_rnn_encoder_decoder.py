"""The RNN Encoder-Decoder beside RNNsearch: its size, and that it has no alignment."""

from __future__ import annotations

import jax
import pytest

from attnlab import config as configs
from attnlab.tasks.pairs import build_system
from attnlab.tasks.translation import Translation
from tests.systems.checks import batch
from tests.tasks.tiny import load, looked, trained


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
    params, texts = trained(task, 1), [source for source, _ in task.data.pairs["test"]]
    for method in ("beam", "greedy"):
        config = configs.from_dict(configs.to_dict(task.config))
        chosen = configs.prepare(config, [f"decoding.method={method}"])
        found = Translation(chosen, task.data).translate(params, texts, alignment=True)
        assert all(best.alignment is None for best, *_ in found)
    maps, tokens = looked(task, params, texts[0], task.text(found[0][0]))
    assert maps == {} and tokens["source"][:-1] == list(texts[0])
