"""A text goes on from its prompt as full passes over the whole text say, in whatever company it is
read.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from attnlab.config.registry import build
from attnlab.data.vocabulary import BOS, EOS, PAD
from attnlab.decoding.settings import Decoding
from attnlab.systems import SYSTEMS
from attnlab.tasks.decoders import continuing
from tests.tasks.tiny import log_softmax, noise
from tests.tasks.tiny_language import APART, drawn, load, passed


def test_prompts_of_any_length_and_rows_of_padding() -> None:
    """Greedy, token by token: what the loop in NumPy finds most probable after all that stands
    before.
    """
    task = load(*APART)
    params = drawn(task)
    prompts = [[BOS], [EOS, 5, 6], [BOS, 4, 5, 6, 7]]
    source = np.array([[*one, *[PAD] * (5 - len(one))] for one in [*prompts, []]], np.int32)
    decoder = continuing(task.system, Decoding(method="greedy", max_ratio=0.0, max_extra=4))
    actual = decoder(params, [(np.array([0, 1, 2, -1]), {"source": source})])
    assert len(actual) == 3
    for prompt, together in zip(prompts, actual, strict=True):
        (alone,) = decoder(params, [(np.array([0]), {"source": np.array([prompt], np.int32)})])
        assert alone[0].tokens.tolist() == together[0].tokens.tolist()
        np.testing.assert_allclose(alone[0].log_prob, together[0].log_prob, atol=1e-5)
    for prompt, (best,) in zip(prompts, actual, strict=True):
        read = list(prompt)
        for token in best.tokens:
            log_p = passed(params, read)[0][-1]
            log_p[[PAD, BOS]] = -np.inf
            assert token == log_p.argmax()
            read.append(int(token))
        assert best.tokens[-1] == EOS or len(best.tokens) == 4


def away(system: Any, *read: Any) -> Any:
    """Parameters that make some tokens far more probable than others."""
    return noise(jax.eval_shape(system.init, jax.random.key(0), *read)["params"], 0.6)


HEADS = {"name": "multihead", "heads": 2, "positions": "rope"}
NEAR = {"name": "window", "width": 3}
MIXERS: dict[str, dict[str, Any]] = {
    "cache": {"attention": HEADS},
    "state": {"attention": {"name": "recurrent"}},
    "learner": {"attention": {"name": "ttt_linear", "heads": 2, "mini_batch": 3}},
    "window": {"attention": HEADS, "visibility": NEAR},
    "latent window and all": {
        "attention": {"name": "latent", "heads": 2, "latent": 5},
        "visibility": {"name": "by_layer", "one": NEAR, "other": {"name": "full"}},
    },
}


full = pytest.mark.full  # caches are tested where mechanisms are at home
CASES = [pytest.param(one, id=n, marks=() if n == "cache" else full) for n, one in MIXERS.items()]


@pytest.mark.parametrize("mixer", CASES)
def test_ragged_beginnings_pieces_and_beams_over_a_cache(mixer: dict[str, Any]) -> None:
    """A decoder whose state grows, or not: what every method writes has the log-probability that
    full passes over the whole text give, and greedy search takes their most probable token.
    """
    node = {"name": "decoder", **mixer, "positions": {"name": "none"}, "dropout": 0.0}
    small = {"width": 12, "layers": 2 if "visibility" in mixer else 1, "hidden": 16}
    system: Any = build(SYSTEMS, ConfigDict({**node, **small}), "system")(vocabulary=9)
    params = away(system, jnp.ones((1, 2), jnp.int32))
    prompts = [[BOS], [BOS, 5, 6], [BOS, 4, 5, 6, 7, 8, 3, 4]]
    source = np.array([[*one, *[PAD] * (8 - len(one))] for one in prompts], np.int32)
    run = jax.jit(lambda tokens: system.apply({"params": params}, tokens))
    for how in ({"method": "greedy", "prefill": 3}, {"method": "beam"}):
        settings = Decoding(max_ratio=0.0, max_extra=4, length_penalty=0.0, **how)  # type: ignore[arg-type]
        actual = continuing(system, settings)(params, [(np.arange(3), {"source": source})])
        for prompt, best in zip(prompts, actual, strict=True):
            tokens = best[0].tokens.tolist()
            whole = np.array([[*prompt, *tokens, *[PAD] * (12 - len(prompt) - len(tokens))]])
            log_p = log_softmax(run(whole)[0, len(prompt) - 1 :][: len(tokens)])
            log_p[:, [PAD, BOS]] = -np.inf  # what is never written
            if how["method"] == "greedy":
                assert tokens == log_p.argmax(axis=1).tolist()
            expected = log_p[np.arange(len(tokens)), tokens].sum()
            np.testing.assert_allclose(best[0].log_prob, expected, atol=1e-4)
