"""A task builds a system of the right kind, with mechanisms that can do what is asked."""

from typing import Any

import pytest
from ml_collections import ConfigDict

from attnlab.errors import UserError
from attnlab.systems.protocol import Classifier
from attnlab.tasks.models import system_factory
from tests.refusals import check_refused
from tests.tasks.tiny import loader


def pooling(attention: dict[str, Any]) -> Any:
    """A factory of the system with this mechanism."""
    node = {"name": "attention_pooling", "attention": attention}
    return system_factory(ConfigDict({"system": node}), Classifier)


def test_a_slot_is_asked_what_it_needs() -> None:
    additive = {"name": "single", "score": {"name": "additive", "hidden": 3}}
    assert pooling(additive)(vocabulary=5, classes=2).classes == 2
    refused = {"name": "multihead", "positions": {"name": "rope"}}
    words = r"system.attention=multihead.positions: .* relates positions of one sequence"
    check_refused(words, pooling, refused)


def test_an_example_beyond_the_positions_is_named_before_training() -> None:
    """Dates of up to 30 letters: training leaves out those of more than 20, scores do not."""
    settings = ["data.examples=60", "data.valid=20", "batch.max_length=20", "batch.buckets=20"]
    small = ["system.layers=1", "system.width=16", "system.hidden=16", "system.positions=learned"]
    decoding = ["decoding.max_ratio=0.0", "decoding.max_extra=15"]
    read = loader("translation.py:transformer", [*settings, *small, *decoding])

    longest = int(read("system.positions.length=40").data.examples["valid"].lengths.max())
    assert 20 < longest < 40
    words = f"the valid split has an example of {longest} tokens, and scores leave none out.*"
    words += f"rows of {longest} tokens, but positions end at 21; take config.batch.longer=cut, or "
    check_refused(words, read, "system.positions.length=21")
    read(f"system.positions.length={longest}")
    twice = "decoding.max_ratio=1.0"  # 35 tokens may be written for the longest in training
    with pytest.raises(UserError, match=rf"example of {longest} .* {longest + 15} tokens may be"):
        read("system.positions.length=35", twice, f"system.positions.length={longest + 14}")
    read(f"system.positions.length={longest + 15}", twice)
    cut = read("system.positions.length=21", "batch.longer=cut").data.examples["valid"]
    assert cut.lengths.max() == 20 and len(cut) == 20
