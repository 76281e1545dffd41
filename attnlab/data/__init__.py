"""Examples and how they reach the training loop: sources, vocabularies, batches as a function of
(seed, step).

A *source* is a frozen dataclass whose fields are its configuration, with at least one of these
methods, for `split` in `SPLITS`: `pairs(split) -> list[(source text, target text)]` for translation
and the like, `texts(split) -> list[text]` for language modelling, `labelled(split) -> list[(texts,
label)]` for classification, with `sentences`, how many texts an example has (1 or 2), beside it,
`tagged(split) -> list[attnlab.data.tagged.Sentence]` for tagging, `asked(split) ->
list[attnlab.data.asked.Row]` for diagnostic tasks, `images(split) ->
attnlab.data.images.annotated.Labelled` for classification of images, for images with more beside
them `captions`, `objects` and `masks`, see `attnlab.data.images.annotated`, and
`visual_questions(split) -> attnlab.data.images.texts.Asked`. A source whose texts are ids already has
`loaded(vocabulary settings, vocabulary of the run, splits) -> Texts` instead, see
`attnlab.data.shards`. What is read of a source is an `attnlab.data.dataset.Dataset`, of a kind for
each of these methods.
"""

from collections.abc import Callable
from typing import Any

from attnlab.config.registry import Table

SPLITS = ("train", "valid", "test")

SOURCES: Table[Callable[..., Any]] = Table(
    "data source",
    {
        "dates": "attnlab.data.generated_pairs:Dates",
        "grammar": "attnlab.data.grammar:Grammar",
        "copying": "attnlab.data.generated_pairs:Copying",
        "spelling": "attnlab.data.generated_pairs:Spelling",
        "files": "attnlab.data.files:ParallelFiles",
        "json": "attnlab.data.json_files:JsonLines",
        "table": "attnlab.data.files:TabFiles",
        "rows": "attnlab.data.rows:Rows",
        "text": "attnlab.data.files:TextFiles",
        "shards": "attnlab.data.shards:Shards",
        "associations": "attnlab.data.generated_texts:Associations",
        "markers": "attnlab.data.generated_texts:Markers",
        "lookup": "attnlab.data.generated_texts:Lookup",
        "agreement": "attnlab.data.grammar:Agreement",
        "deeds": "attnlab.data.questions:Deeds",
        "squad": "attnlab.data.questions:Squad",
        "conllu": "attnlab.data.tagged:Conllu",
        "columns": "attnlab.data.tagged:Columns",
        "entailment": "attnlab.data.generated_texts:Entailment",
        "none": "attnlab.data.dataset:NoData",
        "one_side": "attnlab.data.of_pairs:OneSide",
        "prefixed": "attnlab.data.of_pairs:Prefixed",
        "joined": "attnlab.data.of_pairs:Joined",
        "of_length": "attnlab.data.of_pairs:OfLength",
        "tfds": "attnlab.data.tfds:Tfds",
        "mqar": "attnlab.data.diagnostics.recall:MultiQueryRecall",
        "associative_recall": "attnlab.data.diagnostics.recall:SingleQueryRecall",
        "needle": "attnlab.data.diagnostics.recall:Needle",
        "in_a_row": "attnlab.data.of_pairs:InARow",
        "selective_copying": "attnlab.data.diagnostics.recall:SelectiveCopying",
        "induction": "attnlab.data.diagnostics.recall:Induction",
        "state_tracking": "attnlab.data.diagnostics.computing:StateTracking",
        "list_ops": "attnlab.data.diagnostics.computing:ListOps",
        "shapes": "attnlab.data.images.painted:Shapes",
        "scenes": "attnlab.data.images.scenes:Scenes",
        "sort_of_clevr": "attnlab.data.images.sort_of_clevr:SortOfClevr",
        "easy_vqa": "attnlab.data.images.question_files:EasyVqa",
        "image_questions": "attnlab.data.images.question_files:ImageQuestions",
        "idx": "attnlab.data.images.files:Idx",
        "npz": "attnlab.data.images.files:Npz",
        "coco_boxes": "attnlab.data.images.coco:CocoBoxes",
        "coco_captions": "attnlab.data.images.coco:CocoCaptions",
        "caption_folder": "attnlab.data.images.texts:CaptionFolder",
        "image_rows": "attnlab.data.images.rows:ImageRows",
        "image_folder": "attnlab.data.images.files:ImageFolder",
        "tfds_images": "attnlab.data.tfds:TfdsImages",
        "mask_folder": "attnlab.data.images.regions:MaskFolder",
        "translated": "attnlab.data.images.painted:Translated",
    },
)
