"""Which part a layer has, where it stands, and what is refused."""

from typing import Any

import pytest

from attnlab.config.registry import build
from attnlab.errors import UserError
from attnlab.layers.by_layer import chosen, of_layer, varies
from attnlab.mixers import MIXERS

HEADS = {"name": "multihead", "heads": 2}


def made(node: Any) -> Any:
    return build(MIXERS, node, "system.attention")


@pytest.mark.quick
def test_patterns_repeat_and_nest_and_count_all_layers() -> None:
    inner = {"name": "by_layer", "one": HEADS, "other": "convolution", "pattern": ["one", "other"]}
    outer = {"name": "by_layer", "one": "none", "other": inner}
    outer["pattern"] = ("other", "other", "one")
    factory = made(outer)
    actual = [chosen(factory, layer) for layer in range(6)]
    assert [part.func.__name__ for part, _ in actual] == [
        *("MultiHead", "ConvolutionMixer", "NoMixer"),
        *("ConvolutionMixer", "MultiHead", "NoMixer"),
    ]
    expected = [*(".other.one", ".other.other", ".one", ".other.other", ".other.one", ".one")]
    assert [where for _, where in actual] == expected
    assert of_layer(factory, 0).keywords["heads"] == 2  # type: ignore[attr-defined]
    assert varies(factory) and not varies(made(HEADS))


@pytest.mark.quick
def test_what_is_no_pattern_is_told() -> None:
    node = {"name": "by_layer", "one": "none", "other": "recurrent"}
    with pytest.raises(UserError, match="at least one layer"):
        of_layer(made({**node, "pattern": ()}), 0)
    with pytest.raises(UserError, match=r"pattern=\('one', 'two'\): .*'one' or 'other'"):
        of_layer(made({**node, "pattern": ("one", "two")}), 0)
