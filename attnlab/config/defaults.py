"""What is known of settings before a config names its task."""

from __future__ import annotations

import dataclasses
from typing import Any

from attnlab.config import image_tasks, nodes, token_tasks
from attnlab.config.nodes import TABLES
from attnlab.config.schema import described, is_node

WHOLE = (
    nodes.Classification,
    nodes.Translation,
    nodes.Pronunciation,
    nodes.LanguageModelling,
    token_tasks.MaskedLanguageModelling,
    token_tasks.Tagging,
    token_tasks.SpanCorruption,
    token_tasks.QuestionAnswering,
    token_tasks.Diagnostics,
    image_tasks.ImageClassification,
    image_tasks.Segmentation,
    image_tasks.Detection,
    image_tasks.Captioning,
    image_tasks.VisualQuestions,
)
"""The configs of our tasks as a whole."""


def known_defaults() -> dict[str, Any]:
    """The default of every setting of our own nodes by its full name, with no component and
    nothing that must be set; imports no table.
    """
    found: dict[str, Any] = {}
    for whole in WHOLE:
        for key, one in described(whole).items():
            below = described(one.hint) if is_node(one.hint) else {}
            named = {f"{key}.{name}": inner.default for name, inner in below.items()}
            found |= named or {key: one.default}
    components = {key for key in found if key in TABLES}
    return {
        name: value
        for name, value in found.items()
        if value is not dataclasses.MISSING and name not in components
    }
