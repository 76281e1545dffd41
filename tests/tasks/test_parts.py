"""Every registered part in every slot of every small config that attnlab ships, by shapes alone: it
fits with its defaults, or is refused in one line that names the setting.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from attnlab import config as configs
from attnlab.config.registry import Table
from attnlab.config.tree import ConfigNode
from attnlab.errors import UserError
from attnlab.layers import CELLS, FEED_FORWARDS
from attnlab.layers.gates import GATES
from attnlab.tasks import TASKS
from tests.tasks.test_configs import AGAIN, FILES, load, systems

SMALL = [
    (file, name)
    for file in FILES
    if file not in AGAIN
    for name in systems(file)
    if not name.endswith(("_paper", "_base", "_small"))
]
SETTING = r"config\.\w+\.|system[.=]|auxiliary\."
"""How a refusal names what to set."""
FITTING = (CELLS, FEED_FORWARDS, GATES)
"""Tables whose parts all fit everywhere; what the others cannot do depends on what is asked of them."""


def slots(config: Any) -> Iterator[tuple[str, Table]]:
    """The settings of a config's system that hold parts, and the table of each."""
    tree = configs.from_dict(configs.to_dict(config))
    below = [ConfigNode(tree, "", type(config)).child("system")]
    while below:
        node = below.pop()
        yield from ((node.full_name(key), table) for key, table in node.tables.items())
        below += node.children()


def _cases() -> list[Any]:
    """One config for each part in a slot of a system. What is drawn by default has every file and
    every slot; systems and parts are numbered, for numbers are all alike to the sample.
    """
    actual = {}
    for place, (file, name) in enumerate(SMALL, 2):
        config = load(file, name)
        for slot, table in slots(config):
            for number, part in enumerate(table.names(), 2):
                drawn = {"file": file, "slot": slot, "part": number, "config": place}
                id_of = f"{file}:{name}-{slot}-{part}"
                actual.setdefault((config.system.name, slot, part), pytest.param(drawn, id=id_of))
    return list(actual.values())


@pytest.mark.parametrize("case", _cases())
def test_every_part_fits_every_slot_or_is_refused_by_its_setting(case: dict[str, Any]) -> None:
    config = SMALL[case["config"] - 2]
    table = dict(slots(load(*config)))[case["slot"]]
    try:
        tried = load(*config, [f"{case['slot']}={table.names()[case['part'] - 2]}"])
        TASKS.resolve(tried.task).check(tried)
    except UserError as error:
        assert "\n" not in str(error)
        assert re.search(SETTING, str(error)), f"names no setting: {error}"
        assert table not in FITTING, error
        assert "sequences have up to" not in str(error), "a default does not fit"
