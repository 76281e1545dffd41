"""What `launch.py list systems` says of each system; names and layouts of parameters, as the page
docs/mechanisms.md lists them.
"""

import dataclasses
import re

import pytest

from attnlab.attention import MECHANISMS
from attnlab.commands import networks
from attnlab.layers.cards import card_of
from attnlab.systems import SYSTEMS
from tests.commands.tiny import run_command


@pytest.mark.parametrize("name", SYSTEMS.names())
def test_every_system_carries_a_card_of_its_own(name: str) -> None:
    card = card_of(SYSTEMS.resolve(name))
    assert card and not card.family and 1960 <= card.year <= 2026, f"{name} carries no card"


def test_systems_say_where_they_come_from_what_they_are_for_and_how_large_they_are() -> None:
    lines = run_command(["list", "systems", "convs2s"]).out
    cells = dict(re.findall(r"^(\w+)  +(\S.*)$", lines, re.MULTILINE))
    assert (cells["task"], cells["year"]) == ("translation", "2017")
    assert cells["source"].startswith("Gehring et al., ")
    f, d, v, layers, places = 64, 64, 1000, 3, 256
    # two in a decoder layer, four around the stacks
    linear = {(f, d): 2 * layers + 4, (f, v): 1, (3 * d, 2 * d): 2 * layers}
    normed = sum(count * outputs * (inputs + 2) for (inputs, outputs), count in linear.items())
    assert int(cells["parameters"].replace(",", "")) == normed + 2 * (v + places) * f
    assert networks.system_cells("mine", int) == {"task": "", "parameters": ""}


@pytest.mark.parametrize("name", MECHANISMS.names())
def test_every_axis_of_every_mechanism_has_a_letter(name: str) -> None:
    """A new mechanism needs its sizes in `networks.MECHANISMS`; no two of its letters may stand for
    one size.
    """
    listed = networks.mechanism_parameters(name)
    assert listed and not re.findall(r"\[[^\]]*\b\d\d+\b", listed), listed
    sizes = networks.MECHANISMS[name]
    values = [*sizes.letters.values(), *sizes.widths.values()]
    assert len(set(values)) == len(values)


def test_inside_multihead_a_score_has_one_set_of_parameters_as_wide_as_a_head() -> None:
    sizes = dataclasses.replace(
        networks.MECHANISMS["multihead"], fields={"heads": 4, "score": "general"}, letters={"D": 6}
    )
    assert "`score/w/kernel` [D, D]" in networks.mechanism_parameters("multihead", sizes)
