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
    full passes over the whole text give, and greedy search takes their most probable token, in
    whatever company it is read, rows of padding too.
    """
    node = {"name": "decoder", **mixer, "positions": {"name": "none"}, "dropout": 0.0}
    small = {"width": 12, "layers": 2 if "visibility" in mixer else 1, "hidden": 16}
    system: Any = build(SYSTEMS, ConfigDict({**node, **small}), "system")(vocabulary=9)
    params = away(system, jnp.ones((1, 2), jnp.int32))
    prompts = [[BOS], [EOS, 5, 6], [BOS, 4, 5, 6, 7, 8, 3, 4]]
    source = np.array([[*one, *[PAD] * (8 - len(one))] for one in [*prompts, []]], np.int32)
    run = jax.jit(lambda tokens: system.apply({"params": params}, tokens))
    for how in ({"method": "greedy", "prefill": 3}, {"method": "beam"}):
        settings = Decoding(max_ratio=0.0, max_extra=4, length_penalty=0.0, **how)  # type: ignore[arg-type]
        rows = np.array([0, 1, 2, -1]), {"source": source}
        actual = continuing(system, settings)(params, [rows])
        for prompt, best in zip(prompts, actual, strict=True):
            tokens = best[0].tokens.tolist()
            assert tokens[-1] == EOS or len(tokens) == 4
            whole = np.array([[*prompt, *tokens, *[PAD] * (12 - len(prompt) - len(tokens))]])
            log_p = log_softmax(run(whole)[0, len(prompt) - 1 :][: len(tokens)])
            log_p[:, [PAD, BOS]] = -np.inf  # what is never written
            if how["method"] == "greedy":
                assert tokens == log_p.argmax(axis=1).tolist()
            expected = log_p[np.arange(len(tokens)), tokens].sum()
            np.testing.assert_allclose(best[0].log_prob, expected, atol=1e-4)
