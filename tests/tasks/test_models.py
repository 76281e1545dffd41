"""What all tasks share: a system of the right kind with mechanisms that can do what is asked, and the cross-entropy."""

from __future__ import annotations

import numpy as np
import pytest
from ml_collections import ConfigDict

from attnlab.errors import UserError
from attnlab.systems.protocol import Classifier, LanguageModel, Seq2Seq, System
from attnlab.tasks.models import check_output_bias, cross_entropy, system_factory, with_output_bias


@pytest.mark.quick
@pytest.mark.parametrize(
    ("name", "base", "choices"),
    [
        ("bilstm_pooling", Seq2Seq, "rnn_encoder_decoder"),
        ("rnn_encoder_decoder", Classifier, "bilstm_pooling"),
        ("bilstm_pooling", LanguageModel, "lstm_lm"),
    ],
)
def test_a_system_of_another_kind_is_named_with_those_that_fit(name: str, base: type[System], choices: str) -> None:
    with pytest.raises(UserError, match=f"system={name}: expected a class derived from .*{base.__name__}; choose from: .*{choices}"):
        system_factory(ConfigDict({"system": {"name": name}}), base)


def test_what_is_no_system_or_no_mechanism_is_named() -> None:
    with pytest.raises(UserError, match="system=attnlab.data.markers:Markers: expected a class derived from"):
        system_factory(ConfigDict({"system": {"name": "attnlab.data.markers:Markers"}}), Classifier)
    system = {"name": "attention_pooling", "attention": {"name": "attnlab.data.markers:Markers"}}
    with pytest.raises(UserError, match=r"system.attention=attnlab.data.markers:Markers: expected a class derived from .*Attention"):
        system_factory(ConfigDict({"system": system}), Classifier)


def test_a_slot_is_asked_what_it_needs() -> None:
    additive = {"name": "single", "score": {"name": "additive", "hidden": 3}}
    factory = system_factory(ConfigDict({"system": {"name": "attention_pooling", "attention": additive}}), Classifier)
    assert factory(vocabulary=5, classes=2).classes == 2
    refused = {"name": "multihead", "positions": {"name": "rope"}}
    with pytest.raises(UserError, match=r"system.attention=multihead.positions: .* relates positions of one sequence"):
        system_factory(ConfigDict({"system": {"name": "attention_pooling", "attention": refused}}), Classifier)


def test_the_output_bias_starts_where_the_config_says() -> None:
    """log((n + 1) / (N + V)) of every token; as drawn by "zeros", and where a config says nothing."""
    drawn = {"out": {"bias": np.full(4, 0.5, np.float32), "kernel": np.ones((2, 4))}, "h": np.ones(1)}
    node = ConfigDict({"system": {"name": "mine"}, "training": {"output_bias": "unigram"}})
    found = with_output_bias(node, drawn, np.array([3, 1, 3, 3]), 4)
    np.testing.assert_allclose(found["out"]["bias"], np.log([1 / 8, 2 / 8, 1 / 8, 4 / 8]), rtol=1e-6)
    assert found["out"]["kernel"] is drawn["out"]["kernel"] and drawn["out"]["bias"][0] == 0.5
    for training in ({"output_bias": "zeros"}, {}):
        assert with_output_bias(ConfigDict({"training": training}), drawn, np.array([3]), 4) is drawn
        check_output_bias(ConfigDict({"training": training}), {"h": 1})
    check_output_bias(node, drawn)
    with pytest.raises(UserError, match="config.training.output_bias='unigram': mine has no output bias; set it to 'zeros'"):
        check_output_bias(node, {"out": {"kernel": 1}})


def test_cross_entropy_of_one_class_and_of_a_smoothed_one() -> None:
    logits = np.log(np.array([[0.5, 0.25, 0.25]], np.float32))
    np.testing.assert_allclose(cross_entropy(logits, np.array([1]), 0.0), [np.log(4)], rtol=1e-6)  # type: ignore[arg-type]
    smooth = 0.7 * np.log(4) + 0.1 * (np.log(2) + 2 * np.log(4))
    np.testing.assert_allclose(cross_entropy(logits, np.array([1]), 0.3), [smooth], rtol=1e-6)  # type: ignore[arg-type]
