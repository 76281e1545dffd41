"""All registered systems that read images keep the promises of their kind, those that `--system`
puts one of somebody's own through.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.systems import image_systems
from tests.systems.image_systems import CHECKS, SPECS

FIRST = {spec["name"]: spec for spec in reversed(SPECS.values())}
SMALL: dict[str, dict[str, Any]] = {  # what learns by heart with fewer layers
    "detr": {"decoder_layers": 1},
    "segmenter": {"backbone": SPECS["cnn"]},
    "vit": {"layers": 1},
    "glimpses": {"glimpses": 2},
}


@pytest.mark.parametrize("promise", CHECKS)
@pytest.mark.parametrize("name", SPECS)
def test_promises(name: str, promise: str) -> None:
    check_promise = CHECKS[promise]
    check_promise(SPECS[name])


@pytest.mark.parametrize("name", FIRST)
def test_learning_by_heart(name: str) -> None:
    image_systems.check_learning({**FIRST[name], **SMALL.get(name, {})})
