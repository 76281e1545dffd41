"""The output bias starts as the config says."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from ml_collections import ConfigDict

from attnlab.data.vocabulary import EOS
from attnlab.errors import UserError
from attnlab.tasks.output_bias import check_output_bias, with_output_bias
from attnlab.tasks.translation import Translation
from tests.tasks.tiny import load


def test_the_output_bias_starts_where_the_config_says() -> None:
    """log((n + 1) / (N + V)) of every token; as drawn by "zeros", and where a config says
    nothing.
    """
    out = {"bias": np.full(4, 0.5, np.float32), "kernel": np.ones((2, 4))}
    drawn = {"out": out, "h": np.ones(1)}
    node = ConfigDict({"system": {"name": "mine"}, "training": {"output_bias": "unigram"}})
    found = with_output_bias(node, drawn, np.array([3, 1, 3, 3]), 4)
    np.testing.assert_allclose(found["out"]["bias"], np.log(np.array([1, 2, 1, 4]) / 8), rtol=1e-6)
    assert found["out"]["kernel"] is drawn["out"]["kernel"] and drawn["out"]["bias"][0] == 0.5
    for training in ({"output_bias": "zeros"}, {}):
        config = ConfigDict({"training": training})
        assert with_output_bias(config, drawn, np.array([3]), 4) is drawn
        check_output_bias(config, {"h": np.ones(1)}, 4)
    check_output_bias(node, drawn, 4)
    for other in ({"out": {"kernel": np.ones((2, 4))}}, {"out": {"bias": np.ones((2, 4))}}):
        words = "output_bias='unigram': mine has no parameter out/bias with a number for each"
        with pytest.raises(UserError, match=words):
            check_output_bias(node, other, 4)


def test_the_output_bias_begins_at_the_frequencies_of_the_target() -> None:
    """Of all target tokens, ends of sentences among them, in the ids of the target's vocabulary; a
    run without its data may draw it.
    """
    task = load("rnnsearch", "vocabulary.shared=false")
    vocabulary = task.vocabularies[1]
    tokens = [EOS for _ in task.data.rows["train"]]
    for _, target in task.data.rows["train"]:
        tokens += vocabulary.encode_all([target])[0].tolist()
    ids, size = task.target_ids()  # type: ignore[misc]
    assert sorted(ids.tolist()) == sorted(tokens) and size == vocabulary.size
    assert task.config.training.output_bias == "unigram"
    bare = Translation(task.config, dataclasses.replace(task.data, examples={}))
    assert bare.target_ids() is None
