"""Published Transformers as settings of one system, and what share_positions shares."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from attnlab import config as configs
from attnlab.config.registry import build
from attnlab.systems import SYSTEMS
from tests.systems.checks import CHECKS, SPECS, batch, prepared

IDS = jnp.ones((1, 2), jnp.int32)


def shapes(spec: dict[str, Any], vocabulary: int) -> Any:
    """The parameters of a Transformer of this size, without making any."""
    system = build(SYSTEMS, ConfigDict({"name": "transformer", **spec}), "system")(
        source_vocabulary=vocabulary, target_vocabulary=vocabulary
    )
    return jax.eval_shape(system.init, jax.random.key(0), IDS, IDS)["params"]


def count(params: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def t5(width: int, layers: int, hidden: int, heads: int, head_width: int = 0) -> dict[str, Any]:
    """T5 (Raffel et al. 2020) in its first version."""
    looks = {"name": "multihead", "heads": heads, "head_width": head_width, "score": "dot"}
    itself = {**looks, "positions": {"name": "t5", "buckets": 32, "max_distance": 128}}
    return {
        "width": width,
        "layers": layers,
        "hidden": hidden,
        "norm": "pre",
        "normalisation": "rms_norm",
        "feed_forward": {"name": "relu", "bias": False},
        "positions": "none",
        "scaled_embedding": False,
        "share_positions": True,
        "encoder_attention": itself,
        "decoder_attention": itself,
        "cross_attention": looks,
    }


def test_t5_has_the_published_number_of_parameters() -> None:
    """T5-3B, where 32 heads of 128 are not its width; for T5-small see the next."""
    assert count(shapes(t5(1024, 24, 16384, 32, head_width=128), 32128)) == 2_851_598_336


def test_t5_and_bart_of_the_file_have_the_published_numbers_of_parameters() -> None:
    """BART's 139,420,416, and here the bias of its logits too."""
    for name, size, parameters in (
        ("t5_small", 32128, 60_506_624),
        ("bart_base", 50265, 139_420_416 + 50265),
    ):
        node = configs.load(f"configs/text_to_text.py:{name}").system
        assert count(shapes(configs.to_dict(node), size)) == parameters


def test_one_table_of_positions_for_a_stack_or_one_for_each_layer() -> None:
    shared = shapes(SPECS["transformer-t5"], 17)
    alone = shapes({**SPECS["transformer-t5"], "share_positions": False}, 17)
    assert {"encoder_positions", "decoder_positions"} <= set(shared)
    table = count(shared["encoder_positions"])
    assert table == 12 and count(alone) == count(shared) + 2 * table  # 4 tables instead of 2


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
@pytest.mark.parametrize(
    "mixer",
    [{"name": "recurrent", "cell": "gru", "state": 5}, {"name": "convolution", "kernel": 2}],
)
def test_a_mixer_that_is_no_attention_in_the_decoder(mixer: dict[str, Any], check: Any) -> None:
    """All that is promised of the Transformer holds: no look ahead, inert padding, stepwise
    decoding, rows of different lengths, ...
    """
    small = {"layers": 1, "share": "none"}  # untied: causality is told by the same program
    check({**SPECS["transformer"], **small, "decoder_attention": mixer})


CAUSAL = {**SPECS["transformer"], "layers": 1}
LEAKING = {**CAUSAL, "leaking": True}


def test_a_leaking_decoder_sees_later_words_but_no_padding() -> None:
    """That is told by what changes with the last word, and with padding behind it."""
    call, system = prepared(LEAKING)
    source, target = batch()
    before = call(source, target)
    changed = target.copy()
    changed[:, -1] = changed[:, -1] % 12 + 5
    assert (np.abs(call(source, changed) - before).max(axis=-1) > 1e-4).all()
    padded = call(source, np.pad(target, ((0, 0), (0, 3))))
    np.testing.assert_allclose(padded[:, :5], before, atol=2e-6)
    assert "system.leaking=true: the decoder sees its targets" in system.notes()[0]


def test_a_leaking_decoder_writes_as_a_causal_one_with_its_parameters() -> None:
    """Since nothing that is yet to be written can be seen."""
    (leaking, _), (causal, plain) = prepared(LEAKING), prepared(CAUSAL)
    assert plain.notes() == []
    source, target = batch()
    memory = leaking(source, method="encode")
    state, found = leaking(memory, 5, method="start"), []
    for t in range(5):
        logits, state = leaking(state, memory, target[:, t], method="step")
        found.append(logits)
    np.testing.assert_allclose(np.stack(found, 1), causal(source, target), atol=2e-6)
