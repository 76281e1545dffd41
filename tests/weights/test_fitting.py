"""Weights of one model are the first weights of another: kept, averaged, drawn or left out as is said."""

import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import pytest

import attnlab
from attnlab.errors import UserError
from attnlab.training.updates import first_params
from attnlab.weights.fitting import Heads, Model, fit, fit_parameters, join_paths, pool_heads
from attnlab.weights.names import flat
from tests.api.test_pretrained import with_tokenizer
from tests.rounding import assert_close
from tests.sampling import full_mode

MATCHING = {"pretrained.take": "matching"}
FEWER = {**MATCHING, "system.attention.key_heads": 2}
SWAPPED = {**FEWER, "system.attention.positions": "alibi", "system.positions": "none"}


def oracle(parameter: np.ndarray, before: int, after: int) -> np.ndarray:
    """The mean of every `before / after` neighbouring heads, one by one."""
    width, group = parameter.shape[-1] // before, before // after
    heads = [parameter[..., k * width : (k + 1) * width] for k in range(before)]
    means = [sum(heads[g * group : (g + 1) * group]) / group for g in range(after)]
    return np.concatenate(means, axis=-1)


@pytest.mark.parametrize("after", [1, 2, 3, 6])
def test_heads_are_the_means_of_their_neighbours(after: int) -> None:
    kernel = np.random.default_rng(0).normal(size=(5, 6 * 4))
    actual = pool_heads(kernel, Heads(6, after, 4))
    np.testing.assert_allclose(actual, oracle(kernel, 6, after), rtol=0, atol=1e-15)
    if after == 6:
        np.testing.assert_array_equal(actual, kernel)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a tokenizer."""
    return with_tokenizer(tmp_path_factory.mktemp("in"))


@pytest.fixture(scope="module")
def before(folder: Path) -> attnlab.Run:
    """The model as it is."""
    return attnlab.load_pretrained(folder)


@pytest.fixture(scope="module")
def swapped(folder: Path) -> attnlab.Run:
    """The model with other attention."""
    return attnlab.load_pretrained(folder, SWAPPED)


def test_equal_heads_read_the_same_after_pooling(before: attnlab.Run, tmp_path: Path) -> None:
    """Queries of a group then see the keys that each of them saw before: the same logits."""
    equal = dataclasses.replace(before, params=jax.tree.map(np.array, before.params))
    for name in ("w_key", "w_value"):
        for layer in range(3):
            for part in equal.params[f"layer_{layer}"]["attention"][name].values():
                width = part.shape[-1] // 4
                part[..., width : 2 * width] = part[..., :width]
                part[..., 3 * width :] = part[..., 2 * width : 3 * width]
    attnlab.save_pretrained(equal, tmp_path)
    few, ids = attnlab.load_pretrained(tmp_path, FEWER), np.arange(12, dtype=np.int32).reshape(2, 6)
    logits = [jax.jit(run.task.system.apply)({"params": run.params}, ids) for run in (equal, few)]
    assert_close(*logits, eps=16)


def test_what_happens_to_each_parameter() -> None:
    shapes: dict[str, tuple[int, ...]] = {
        "embed/embedding": (9, 4),
        "layer_0/attention/w_key/kernel": (4, 4),
        "layer_0/attention/w_value/kernel": (4, 4),
        "layer_1/attention/w_key/kernel": (4, 4),
        "positions/table": (7, 4),
        "top/scale": (4,),
    }
    heads = {f"layer_{n}/attention": Heads(4, 4, 1) for n in range(2)}
    source = Model(shapes, heads, (("a", "b"),))
    fewer = {f"layer_{n}/attention/w_key/kernel": (4, 2) for n in range(2)}
    shapes = {path: shape for path, shape in shapes.items() if path != "positions/table"}
    heads = {"layer_0/attention": Heads(4, 2, 1), "layer_1/attention": Heads(2, 2, 1)}
    target = Model({**shapes, **fewer, "head/kernel": (4, 3)}, heads, (("a", "b"),))
    actual = fit(source, target)
    assert actual.kept == ("embed/embedding", "layer_0/attention/w_value/kernel", "top/scale")
    assert actual.pooled == ("layer_0/attention/w_key/kernel",)
    assert actual.drawn == ("layer_1/attention/w_key/kernel", "head/kernel")  # other query heads
    assert actual.left_out == ("layer_1/attention/w_key/kernel", "positions/table")
    arrays = {path: np.full(shape, 2.0) for path, shape in source.shapes.items()}
    initial = {path: np.full(shape, 1.0) for path, shape in target.shapes.items()}
    params = fit_parameters(arrays, initial, source, target)
    assert {path: leaf.shape for path, leaf in params.items()} == target.shapes
    assert {path for path, leaf in params.items() if (leaf == 1.0).all()} == set(actual.drawn)


def test_rows_of_other_pieces_are_not_kept() -> None:
    shapes = {"embed/embedding": (2, 4), "top/scale": (4,)}
    first, other = Model(shapes, {}, (("a", "b"),)), Model(shapes, {}, (("a", "c"),))
    assert fit(first, first).drawn == () and fit(first, other).drawn == ("embed/embedding",)


def test_paths_of_layers_are_told_together() -> None:
    paths = [f"layer_{n}/w/{end}" for n in (0, 1, 3) for end in ("kernel", "bias")]
    assert join_paths([*paths, "top/scale"]) == ["layer_{0-1,3}/w/{kernel,bias}", "top/scale"]
    assert join_paths(["layer_2/w/kernel", "table"]) == ["layer_2/w/kernel", "table"]


def test_a_loaded_model_takes_other_attention(before: attnlab.Run, swapped: attnlab.Run) -> None:
    old, new = flat(before.params), flat(swapped.params)
    assert set(old) - set(new) == {"positions/table"} and not set(new) - set(old)
    for path, parameter in new.items():
        if path.split("/")[-2] in ("w_key", "w_value"):
            np.testing.assert_allclose(parameter, oracle(old[path], 4, 2), rtol=0, atol=1e-7)
        else:
            np.testing.assert_array_equal(parameter, old[path])
    if full_mode():
        assert swapped.generate(["A dog"])[0].startswith("A dog")


def test_weights_that_do_not_fit(folder: Path) -> None:
    for changes, message in (
        ({"system.attention.key_heads": 2}, "the config changes its system: set pretrained.take"),
        ({**MATCHING, "system": "lstm_lm"}, "none of its 52 parameters fits the system lstm_lm"),
    ):
        with pytest.raises(UserError, match=message) as error:
            attnlab.load_pretrained(folder, changes)
        assert "\n" not in str(error.value)


def test_the_report_is_kept_with_the_run(
    folder: Path, before: attnlab.Run, swapped: attnlab.Run, tmp_path: Path
) -> None:
    swapped.task.beginning.keep_report(tmp_path)
    record = json.loads((tmp_path / "pretrained.json").read_text())
    assert record["left_out"] == ["positions/table"] and len(record["pooled"]) == 12
    assert record["drawn"] == [] and record["folder"] == str(folder)
    lines = swapped.task.beginning.lines()
    assert lines[-1] == "pretrained: 1 parameters left out: positions/table"
    assert before.task.beginning.lines() == []


def test_what_is_not_given_is_drawn_as_without_weights(folder: Path, before: attnlab.Run) -> None:
    """In two of three layers the mechanism is another one: its own parameters are drawn, and no
    others; the layer between has all it had.
    """
    node = before.config.system.attention.to_dict()
    mixed = {"name": "by_layer", "one": node, "other": {"name": "gated", "heads": 4}}
    changes = {**MATCHING, "system.attention": {**mixed, "pattern": ("other", "one", "other")}}
    run = attnlab.load_pretrained(folder, changes)
    old, new = flat(before.params), flat(run.params)
    fresh = flat(first_params(run.task.init, jax.random.key(run.config.seed)))
    drawn = {f"layer_{n}/attention/w_gate/kernel" for n in (0, 2)}
    assert set(new) - set(old) == drawn == set(run.task.beginning.drawn_paths())
    for path, parameter in new.items():
        expected = (fresh if path in drawn else old)[path]
        np.testing.assert_array_equal(parameter, expected, err_msg=path)
    biases = {"w_query/bias", "w_key/bias", "w_value/bias", "out/bias"}
    gone = {f"layer_{n}/attention/{bias}" for n in (0, 2) for bias in biases}
    assert set(old) - set(new) == gone
