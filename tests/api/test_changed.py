"""A run without a part is the run whose output projection lacks the rows of that part."""

import dataclasses
import types
from typing import Any

import jax
import numpy as np
import pytest

import attnlab
from attnlab.analysis.ablation import mean_values
from attnlab.analysis.inside import first_rows
from attnlab.analysis.passes import Passes, filled
from attnlab.api.changed import MEANT, changed_system, switched_off
from tests.analysis.planted import loaded, noisy
from tests.commands.tiny import Runs

CROSS = "decoder_0/cross_attention"


@pytest.fixture(scope="module")
def run(runs: Runs) -> attnlab.Run:
    return attnlab.load(runs("transformer")[0])


def test_a_run_without_a_head_scores_writes_and_is_evaluated_without_it(run: attnlab.Run) -> None:
    params: Any = jax.device_get(run.params)
    kernel = params["decoder_0"]["cross_attention"]["out"]["kernel"]
    heads = run.maps("4.5.1999", "1999-05-04")[CROSS].weights.shape[0]
    kernel = kernel.copy()
    kernel[: len(kernel) // heads] = 0
    params["decoder_0"]["cross_attention"]["out"]["kernel"] = kernel
    expected, changed = dataclasses.replace(run, params=params), run.without(CROSS, 0)
    pair = "4.5.1999", "1999-05-04"
    assert changed.score(*pair) == pytest.approx(expected.score(*pair), rel=1e-5)
    assert changed.score(*pair) != pytest.approx(run.score(*pair), rel=1e-4)
    assert changed.generate(["4.5.1999"]) == expected.generate(["4.5.1999"])
    losses = [x.evaluate("valid")["loss"] for x in (changed, expected, run)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5) and losses[0] != losses[2]


def test_other_values_in_place_of_a_part(run: attnlab.Run) -> None:
    """Uniform weights show on the maps' effect; a mean is a constant; layers go by number too."""
    pair, scores = ("4.5.1999", "1999-05-04"), {}
    for kind in ("zero", "mean", "uniform"):
        scores[kind] = run.without(CROSS, kind=kind).score(*pair)
    assert len({*scores.values(), run.score(*pair)}) == 4
    assert run.without(2).score(*pair) == pytest.approx(scores["zero"], rel=1e-6)


@pytest.mark.parametrize("head", [None, 0])
@pytest.mark.parametrize("kind", ["zero", "mean", "uniform"])
def test_a_layer_that_is_called_twice_is_changed_in_both_calls(kind: str, head: int | None) -> None:
    """By its name with a number, the second call is changed alone."""
    task = loaded("lstm", "system=tests.analysis.planted:Repeater", "training.output_bias=zeros")
    params, ids = noisy(task, 0.7), np.array([[2, 5, 6]], np.int32)
    model: Any = types.SimpleNamespace(task=task, params=params, with_split=lambda split: task)
    value, out = (params["attention"][name]["kernel"] for name in ("w_value", "out"))
    means = mean_values(Passes(task, params), filled(first_rows(task, "valid", MEANT)))
    x = params["embed"]["embedding"][ids]
    for call in ("attention", "attention_1"):
        seen = np.cumsum(x @ value, axis=1) / np.arange(1, 4)[:, None]
        x = x + {"zero": 0 * x, "mean": means[f"{call}/heads"][0], "uniform": seen}[kind] @ out
    for layer in (0, "attention"):
        changes = switched_off(model, layer, head, kind, "valid")
        logits = changed_system(task.system, changes).apply({"params": params}, ids)
        np.testing.assert_allclose(logits, x, rtol=1e-5, atol=1e-6)
    second = switched_off(model, "attention_1", head, kind, "valid")
    assert list(second) == list(changes)[1:]


@pytest.mark.parametrize(
    "part, line",
    [
        ({"layer": 7}, "no layer 7; there are 0 .'encoder_0/self_attention'., 1 "),
        ({"layer": CROSS, "head": 9}, "has no head 9; 0 to "),
        ({"layer": CROSS, "kind": "men"}, "did you mean 'mean'"),
        ({"layer": CROSS, "kind": "mean", "split": "tset"}, "tset"),
    ],
)
def test_no_such_part(run: attnlab.Run, part: dict[str, Any], line: str) -> None:
    with pytest.raises(attnlab.UserError, match=line):
        run.without(**part)


def test_patches_restore_what_the_source_said(run: attnlab.Run) -> None:
    """All of it by the source's embeddings, nothing by the target's, which is the same in both."""
    clean = "4.5.1999", "1999-05-04"
    records = run.patch(clean, "7.8.1982", at="embedding")
    assert [round(x["restored"], 3) for x in records] == [1.0, 0.0]
    each = run.patch(clean, "4.5.1982", at="embedding", by_position=True)
    moved = [x["position"] for x in each if x["restored"] and x["place"] == records[0]["place"]]
    assert moved == [6, 7]
    with pytest.raises(attnlab.UserError, match="tokens; both need the same number"):
        run.patch(clean, "4.5.19")
