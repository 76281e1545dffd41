"""Rules named in a config: each is what its line says, joins nest, and mistakes are one line."""

from typing import Any

import numpy as np
import pytest

from attnlab import config as configs
from attnlab.attention import visibility
from attnlab.attention.view import CAUSAL, View
from attnlab.attention.visibility import VISIBILITIES, Causal, Everything, PerHead, Rule, Window
from attnlab.config.registry import build, made
from attnlab.errors import UserError

T = 9
BOTH, BLOK = {"one": "full", "other": "full"}, {"name": "local", "blok": 2}
NEAR = {"name": "window", "width": 2}
# fields, and the rule; what a rule shows: visibility_oracles.py
RULES: dict[str, tuple[dict[str, Any], Rule]] = {
    "full": ({}, Everything()),
    "causal": ({}, Causal()),
    "window": ({"width": 3}, Window(3)),
    "dilated": ({"width": 2, "dilation": 3}, visibility.dilated(2, 3)),
    "stride": ({"stride": 4}, visibility.Stride(4)),
    "local": ({"block": 2, "reach": 1}, visibility.Local(2, 1)),
    "summary": ({"stride": 4, "width": 1, "turn": 1}, visibility.Summary(4, 1, 1)),
    "first": ({"length": 2}, visibility.Prefix(2)),
    "global": ({"positions": (0, 5)}, visibility.Global((0, 5))),
    "prefix": ({"length": 3}, visibility.prefix_lm(3)),
    "strided": ({"stride": 3}, visibility.sparse_strided(3)),
    "fixed": ({"stride": 3, "summary": 1}, visibility.sparse_fixed(3, 1)),
    "longformer": ({"window": 2, "tokens": (4,)}, visibility.longformer(2, (4,))),
    "bigbird": ({"length": 8, "block": 2, "random": 0}, visibility.bigbird(8, 1, 2, random=0)),
    "all_of": ({"one": "causal", "other": NEAR}, Causal() & Window(2)),
    "any_of": (
        {"one": {"name": "first", "length": 1}, "other": NEAR},
        visibility.Prefix(1) | Window(2),
    ),
    "per_head": ({"one": "causal", "other": NEAR, "heads": 2}, PerHead((Causal(), Window(2)))),
}


def shown(node: Any) -> np.ndarray:
    """What a node of a config lets be seen, [H,T,T]."""
    mask = View(made(VISIBILITIES, node)()).mask(T, T, T)
    return np.ones((1, T, T), bool) & (True if mask is None else np.asarray(mask)[0])


@pytest.mark.quick
@pytest.mark.parametrize("name", [one for one in VISIBILITIES.names() if one != "by_layer"])
def test_every_name_is_the_rule_that_it_says(name: str) -> None:
    fields, rule = RULES[name]
    assert made(VISIBILITIES, {"name": name, **fields})() == rule


@pytest.mark.parametrize("name", [one for one in VISIBILITIES.names() if one != "by_layer"])
def test_a_window_is_the_least_that_holds_what_is_seen(name: str) -> None:
    """Over more positions than the rule repeats after; None where what is seen has no bound."""
    rule, many = made(VISIBILITIES, {"name": name, **RULES[name][0]})(), 40
    mask = View(rule).mask(many, many, many)
    seen = np.ones((many, many), bool) & (True if mask is None else np.asarray(mask).any((0, 1)))
    furthest = (np.arange(many)[:, None] - np.arange(many))[seen].max()
    bounded = name in ("window", "dilated", "local", "all_of")
    assert rule.window == (furthest + 1 if bounded else None)
    assert bounded or furthest > 20 or name in ("global", "summary", "bigbird")


def test_windows_of_joins() -> None:
    near, far, all_ = Window(3), Window(5), Everything()
    assert (near & far).window == 3 and (near & all_).window == 3 and (near | far).window == 5
    assert (near | all_).window is None and CAUSAL.rule.window is None
    assert PerHead((near, far)).window == 5 and PerHead((near, all_)).window is None


@pytest.mark.quick
def test_joins_nest_and_heads_part() -> None:
    inner = {"name": "any_of", "one": NEAR, "other": {"name": "first", "length": 1}}
    expected = np.array([[j <= i and (i - j < 2 or j == 0) for j in range(T)] for i in range(T)])
    nested = shown({"name": "all_of", "one": "causal", "other": inner})
    np.testing.assert_array_equal(nested[0], expected)
    parted = shown({"name": "per_head", "one": "causal", "other": inner, "heads": 3})
    np.testing.assert_array_equal(parted[:2], np.tril(np.ones((2, T, T), bool)))
    np.testing.assert_array_equal(parted[2] & parted[0], expected)
    assert isinstance(made(VISIBILITIES, {"name": "per_head", **BOTH})(), PerHead)
    assert isinstance(made(VISIBILITIES, "full")(), Everything)
    assert View(made(VISIBILITIES, "full")()) & CAUSAL == CAUSAL  # nothing is added to the program


@pytest.mark.quick
def test_a_config_says_everything_about_its_rules() -> None:
    chosen = "=any_of .one=window .one.width=3 .other=all_of .other.one=first .other.other=stride"
    flags = [f"system.decoder_visibility{field}" for field in chosen.split()]
    config = configs.load("configs/translation.py:transformer", flags)
    assert config.system.encoder_visibility.to_dict() == {"name": "full"}
    assert config.system.decoder_visibility.to_dict() == {
        "name": "any_of",
        "one": {"name": "window", "width": 3},
        "other": {
            "name": "all_of",
            "one": {"name": "first", "length": 1},
            "other": {"name": "stride", "stride": 32},
        },
    }


@pytest.mark.quick
@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({"name": "windwo"}, "unknown visibility 'windwo'; did you mean 'window'?"),
        ({"name": "window", "widht": 3}, "where: window has no field 'widht' .* mean 'width'?"),
        ({"name": "window", "width": "3"}, "where.width='3' is of type str, expected int"),
        ({"name": "window", "width": 0}, "Window: width=0, must be at least 1"),
        ({"name": "longformer", "window": 3}, "longformer: window=3 is to be halved"),
        ({"name": "global", "positions": ("a",)}, "visibility global: .* whole numbers from 0"),
        ({"name": "longformer", "tokens": (-1,)}, "visibility longformer: global tokens"),
        ({"name": "prefix", "length": -1}, "prefix: length=-1, must be at least 0"),
        ({"name": "per_head", **BOTH, "heads": 1}, "heads=1, must be at least 2"),
        ({"name": "any_of", **BOTH, "other": BLOK}, "where.other: local has no field 'blok'"),
    ],
)
def test_mistakes_are_one_line(node: Any, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        build(VISIBILITIES, node, "where")()
    assert "\n" not in str(caught.value)


@pytest.mark.quick
def test_a_join_without_its_parts_is_refused_with_the_choices() -> None:
    words = "any_of leaves its parts to you; set --config.system.decoder_visibility.one"
    with pytest.raises(UserError, match=rf"{words} \(one of: full, "):
        configs.load("configs/translation.py:transformer", ["system.decoder_visibility=any_of"])
