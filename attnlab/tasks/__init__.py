"""Tasks: what is learned. A task joins data, a system, a loss and its scores."""

from typing import TYPE_CHECKING, Any

from attnlab.config.registry import Table

if TYPE_CHECKING:
    from attnlab.tasks.base import Task

    AnyTask = Task[Any, Any, Any]

TASKS: "Table[type[AnyTask]]" = Table(
    "task",
    {
        "translation": "attnlab.tasks.pairs:Translation",
        "text_to_text": "attnlab.tasks.pairs:TextToText",
        "span_corruption": "attnlab.tasks.span_corruption:SpanCorruption",
        "pronunciation": "attnlab.tasks.pairs:Pronunciation",
        "classification": "attnlab.tasks.classification:Classification",
        "language_modelling": "attnlab.tasks.language_modelling:LanguageModelling",
        "masked_language_modelling": "attnlab.tasks.masked_language_modelling:MaskedLanguageModelling",
        "question_answering": "attnlab.tasks.question_answering:QuestionAnswering",
        "tagging": "attnlab.tasks.tagging:Tagging",
        "diagnostics": "attnlab.tasks.diagnostics:Diagnostics",
        "segmentation": "attnlab.tasks.segmentation:Segmentation",
        "detection": "attnlab.tasks.detection:Detection",
        "captioning": "attnlab.tasks.captioning:Captioning",
        "image_classification": "attnlab.tasks.images:ImageClassification",
        "visual_questions": "attnlab.tasks.visual_questions:VisualQuestions",
    },
    base="attnlab.tasks.base:Task",
    given=("config", "data"),
    declares=("check", "load", "schema", "measures", "evaluated"),
)
