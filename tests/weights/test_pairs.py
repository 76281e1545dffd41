"""What our encoder-decoders compute with the weights of T5 and BART, against numbers of
`transformers`, and the way back; `golden_pairs.py` says how these came about. Nothing here needs
torch.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from safetensors.numpy import save_file

from attnlab import weights
from attnlab.config.registry import build
from attnlab.systems import SYSTEMS
from attnlab.weights.names import flat
from tests.weights import comparing, models

NAMES = sorted(f"pairs/{file.stem}" for file in (models.GOLDEN / "pairs").glob("*.json"))
IDS = jnp.zeros((1, 2), jnp.int32)


def loaded(name: str, path: Path) -> tuple[Any, Any, Any]:
    """System, parameters and lines of names of a golden model."""

    def system_of(node: Any, content: Any) -> Any:
        sizes = dict.fromkeys(("source_vocabulary", "target_vocabulary"), content["vocab_size"])
        return build(SYSTEMS, node, "system")(pad_id=content["pad_token_id"], **sizes)

    return comparing.loaded(name, path, system_of, IDS, IDS)


@comparing.over(NAMES)
def test_logits_loss_and_gradients(name: str, tmp_path: Path) -> None:
    system, params, lines = loaded(name, tmp_path)
    golden = models.numbers(name)

    def loss(params: Any) -> tuple[jax.Array, jax.Array]:
        logits = system.apply({"params": params}, golden["source"], golden["target_in"])
        cost = optax.softmax_cross_entropy_with_integer_labels(logits, golden["target"])
        return cost.mean(), logits

    (value, logits), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    comparing.assert_numbers(name, loss=value, logits=logits)
    comparing.assert_gradients(name, gradients, lines, "final_logits_bias", "k_proj.bias")


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_ninety_greedy_tokens(name: str, tmp_path: Path) -> None:
    """Each the likeliest of those not yet written."""
    system, params, _ = loaded(name, tmp_path)
    golden = models.numbers(name)
    start = jnp.asarray(golden["target_in"][:1, 0])

    @jax.jit
    def written(source: jax.Array) -> jax.Array:
        bound = functools.partial(system.apply, {"params": params})
        memory = bound(source, method="encode")

        def one(carry: Any, _: Any) -> tuple[Any, jax.Array]:
            token, state, free = carry
            logits, state = bound(state, memory, token, method="step")
            token = jnp.where(free, logits, -jnp.inf).argmax(-1)
            return (token, state, free.at[0, token[0]].set(False)), token

        free = jnp.ones((1, system.target_vocabulary), bool)
        first = (start, bound(memory, 90, method="start"), free)
        return jax.lax.scan(one, first, length=90)[1][:, 0]

    found = np.asarray(written(jnp.asarray(golden["source"][:1])))
    assert found.tolist() == golden["greedy"].tolist()


@comparing.over(NAMES, comparing.BACK)
def test_out_and_back_is_equal_to_the_last_bit(name: str, tmp_path: Path) -> None:
    _, params, _ = loaded(name, tmp_path / "in")
    comparing.assert_out_and_back(name, params, tmp_path / "in", tmp_path / "out")


def test_the_tensors_say_whether_a_head_is_the_embedding(tmp_path: Path) -> None:
    """Not the config, which says "tied" of every T5 that transformers 5 writes."""
    untied = models.folder("pairs/t5_untied", tmp_path / "untied")
    assert json.loads((untied / "config.json").read_text())["tie_word_embeddings"] is True
    assert weights.system(untied)["share"] == "input"
    tied = models.folder("pairs/t5", tmp_path / "tied", tie_word_embeddings=False)
    assert weights.system(tied)["share"] == "all"
    tensors = models.tensors("pairs/t5")
    copies = dict.fromkeys(
        ("lm_head.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"),
        tensors["shared.weight"],
    )
    save_file({**tensors, **copies}, tied / "model.safetensors", metadata={"format": "pt"})
    assert weights.system(tied)["share"] == "all"
    _, wanted, _ = loaded("pairs/t5", tmp_path / "plain")
    for path, one in flat(weights.parameters(tied, wanted)).items():
        np.testing.assert_array_equal(one, flat(wanted)[path])


def test_scaled_outputs_go_with_the_old_flag_where_the_new_one_is_missing(tmp_path: Path) -> None:
    config = models.described("pairs/t5")["config"]
    without = {key: one for key, one in config.items() if key != "scale_decoder_outputs"}
    folder = models.folder("pairs/t5", tmp_path)
    for tied in (True, False):
        text = json.dumps({**without, "tie_word_embeddings": tied})
        (folder / "config.json").write_text(text)
        assert weights.system(folder)["scaled_output"] is tied
