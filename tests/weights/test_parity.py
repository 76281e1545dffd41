"""Our systems compute with the weights of others what these compute, and write the same tokens; what
is written again is what was read. `golden.py`, and the files named after it, say how the numbers came
about. Nothing here needs torch.
"""

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
from attnlab.errors import UserError
from tests.attention.cases import wide
from tests.sampling import full_mode
from tests.weights import comparing, models
from tests.weights.comparing import NAMES, loaded

STILL = {
    "": ("-", "-"),
    "encoders/": ("-", "key.bias"),
    "pairs/": ("final_logits_bias", "k_proj.bias"),
    "images/": ("running", "key.bias"),
}
"""Of each kind, tensors without a gradient on the other side, and biases whose gradient is 0."""


def computed(name: str, system: Any, params: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The loss of a golden model, and its outputs by name."""
    golden, apply = models.numbers(name), functools.partial(system.apply, {"params": params})
    cost = optax.softmax_cross_entropy_with_integer_labels
    if name.startswith("encoders/"):
        ids, types = golden["ids"], golden["types"]
        outputs = apply(*((ids[:, 1:5], ids[:, 5:]) if "texts" in name else (ids, types)))
        total = cost(outputs, golden["labels"].reshape(outputs.shape[:-1])).mean()
        if "related" not in golden:
            return total, {"outputs": outputs}
        related = apply(ids, types, method="follows")
        total += cost(related, jnp.array([0, 1])).mean()
        return total, {"outputs": outputs, "related": related}
    read = [golden[key] for key in ("source", "target_in", "images") if key in golden]
    logits = apply(*read) if read else apply(golden["ids"])
    labels = golden.get("target", golden.get("labels"))
    if labels is None:
        return cost(logits[:, :-1], golden["ids"][:, 1:]).mean(), {"logits": logits}
    return cost(logits, labels).mean(), {"logits": logits}


@comparing.over(comparing.ALL)
def test_outputs_loss_and_gradients(name: str, tmp_path: Path) -> None:
    """Encoders in float64, since the gradient of the bias of `cls.seq_relationship` is a difference
    of two terms 70 times its size, and rounds like them; in the full mode their values in float32
    too. By default no gradients of language models that differ from llama in their values alone.
    """
    kind = comparing.kind_of(name)
    system, params, lines = loaded(name, tmp_path)
    loss, double = functools.partial(computed, name, system), kind == "encoders/"
    slopes = bool(kind) or full_mode() or name in ("gpt2", "llama")
    if not slopes or (double and full_mode()):
        value, outputs = jax.jit(loss)(params)
        comparing.assert_numbers(name, loss=value, **outputs)
    if slopes:
        with jax.enable_x64(double):
            run = jax.jit(jax.value_and_grad(loss, has_aux=True))
            (value, outputs), gradients = run(wide(params) if double else params)
        comparing.assert_numbers(name, loss=value, **outputs)
        kinds = {leaf.dtype for leaf in jax.tree.leaves(gradients)}
        assert kinds == {np.dtype(np.float64 if double else np.float32)}
        comparing.assert_gradients(name, gradients, lines, *STILL[kind])


@comparing.over(comparing.ALL, comparing.BACK)
def test_out_and_back_is_equal_to_the_last_bit(name: str, tmp_path: Path) -> None:
    """The model type that is found is its own."""
    _, params, _ = loaded(name, tmp_path / "in")
    comparing.assert_out_and_back(name, params, tmp_path / "in", tmp_path / "out")


@pytest.mark.full
@pytest.mark.parametrize("name", [*NAMES[""], *NAMES["pairs/"]])
def test_greedy_tokens(name: str, tmp_path: Path) -> None:
    """A language model's over a cache that five given tokens begin; of pairs each is the likeliest of
    those not yet written.
    """
    system, params, _ = loaded(name, tmp_path)
    golden, pair = models.numbers(name), bool(comparing.kind_of(name))
    given = golden["target_in"][0, :1] if pair else golden["ids"][0, :5]
    room = len(given) + len(golden["greedy"]) - 1

    @jax.jit
    def written(tokens: jax.Array) -> jax.Array:
        bound = functools.partial(system.apply, {"params": params})
        memory = (bound(golden["source"][:1], method="encode"),) if pair else ()
        state = bound(*(memory or (1,)), room, method="start")

        def step(carry: Any, given: jax.Array) -> tuple[Any, jax.Array]:
            chosen, state, free = carry
            token = jnp.where(given < 0, chosen, given)
            logits, state = bound(state, *memory, token, method="step")
            chosen = jnp.where(free, logits, -jnp.inf).argmax(-1)
            return (chosen, state, free.at[0, chosen[0]].set(not pair)), chosen

        free = jnp.ones(
            (1, params["embed_target" if pair else "embed"]["embedding"].shape[0]), bool
        )
        return jax.lax.scan(step, (jnp.zeros(1, int), state, free), tokens)[1][:, 0]

    actual = written(jnp.pad(given, (0, room - len(given)), constant_values=-1))
    assert actual[len(given) - 1 :].tolist() == golden["greedy"].tolist()


def test_the_tensors_say_whether_a_head_is_the_embedding(tmp_path: Path) -> None:
    """Not the config, which says "tied" of every T5 that transformers 5 writes."""
    untied = models.folder("pairs/t5_untied", tmp_path / "untied")
    assert json.loads((untied / "config.json").read_text())["tie_word_embeddings"] is True
    assert weights.system(untied)["share"] == "input"
    tied = models.folder("pairs/t5", tmp_path / "tied", tie_word_embeddings=False)
    assert weights.system(tied)["share"] == "all"
    tensors = models.tensors("pairs/t5")
    names = ("lm_head.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    copies = dict.fromkeys(names, tensors["shared.weight"])
    save_file({**tensors, **copies}, tied / "model.safetensors", metadata={"format": "pt"})
    assert weights.system(tied)["share"] == "all"
    _, expected, _ = loaded("pairs/t5", tmp_path / "plain")
    jax.tree.map(np.testing.assert_array_equal, weights.parameters(tied, expected), expected)


def test_scaled_outputs_go_with_the_old_flag_where_the_new_one_is_missing(tmp_path: Path) -> None:
    config = models.described("pairs/t5")["config"]
    without = {key: value for key, value in config.items() if key != "scale_decoder_outputs"}
    folder = models.folder("pairs/t5", tmp_path)
    for tied in (True, False):
        text = json.dumps({**without, "tie_word_embeddings": tied})
        (folder / "config.json").write_text(text)
        assert weights.system(folder)["scaled_output"] is tied


def test_published_files_have_older_names_and_more_tensors(tmp_path: Path) -> None:
    """gamma and beta; pooler and the head for pairs, which a masked language model has not; copies
    of tied tensors; a table of positions.
    """
    _, expected, _ = loaded("encoders/bert_masked", tmp_path / "new")
    tensors = models.tensors("encoders/bert_masked")
    older = lambda key: key.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta")
    old = {older(key): tensor for key, tensor in tensors.items()}
    unread = {"bert.pooler.dense.weight": (36, 36), "bert.pooler.dense.bias": (36,)}
    unread |= {"cls.seq_relationship.weight": (2, 36), "cls.seq_relationship.bias": (2,)}
    old |= {key: np.zeros(shape, np.float32) for key, shape in unread.items()}
    old |= {
        "bert.embeddings.position_ids": np.arange(31)[None],
        "cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"],
        "cls.predictions.decoder.bias": tensors["cls.predictions.bias"],
    }
    folder = models.folder("encoders/bert_masked", tmp_path / "old")
    save_file(old, folder / "model.safetensors", metadata={"format": "pt"})
    actual = weights.parameters(folder, expected)
    np.testing.assert_equal(actual, expected)


def test_missing_tensors_of_a_head_are_named(tmp_path: Path) -> None:
    folder = models.folder("encoders/bert_tokens", tmp_path, architectures=["BertForMaskedLM"])
    _, params = comparing.system_and_shapes("encoders/bert_tokens", folder)
    with pytest.raises(UserError, match=r"5 missing: cls\.predictions\.bias.*classifier\.bias"):
        weights.parameters(folder, params)
