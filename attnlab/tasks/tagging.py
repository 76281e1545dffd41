"""Tagging: a tag for every word of a sentence, a system that gives numbers at every token, and
cross-entropy at the first piece of each word.

Tags of a scheme of spans (B-X, I-X, O and others, see `attnlab.tasks.spans`) are scored as spans
too. Dependency trees, where the source has them,
reach the position schemes that read them (`syntax_relative`).

Axis letters: B batch, T length, C tags.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from attnlab.attention.positions import POSITIONS
from attnlab.attention.positions.syntax import structural_distance
from attnlab.data import tagged
from attnlab.data.columns import IDS, Declared, Examples
from attnlab.data.tagged import Sentence, TaggedTexts
from attnlab.data.vocabulary import OURS, Special
from attnlab.errors import UserError
from attnlab.records.items import Items
from attnlab.records.measures import Measure, share
from attnlab.systems.protocol import TokenClassifier
from attnlab.tasks import schemas
from attnlab.tasks.base import Task
from attnlab.tasks.models import (
    check_output_bias,
    longest_row,
    refuse_terms,
    shapes_of,
    sums_of_rows,
    system_factory,
)
from attnlab.tasks.protocol import (
    Axis,
    Batch,
    Params,
    Response,
    Scores,
    Smoothing,
    Sums,
    Totals,
    Tree,
    Typed,
)
from attnlab.tasks.spans import SCHEMES, counts, look_like_spans, scheme, scores
from attnlab.tasks.tokens import cross_entropy, token_rows, token_scores, tokens_or_rows

SPANS = ("precision", "recall", "f1")
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class TaggedExample:
    """Words whose maps are drawn, and their heads if there are any."""

    words: tuple[str, ...]
    heads: tuple[int, ...] | None = None

    def shown(self) -> str:
        """See `Example`."""
        return " ".join(self.words)

    def record(self) -> dict[str, Any]:
        """See `Example`."""
        return {"source": self.shown(), "target": None}


def build_system(
    config: schemas.Tagging, vocabulary: int, tags: int, special: Special = OURS
) -> TokenClassifier:
    """The system of a config.

    Raises:
      UserError: another kind of system, a mechanism that does not fit, samples or has a loss, no
        output bias where one is to be set.
    """
    factory = system_factory(config, TokenClassifier)
    system: TokenClassifier = factory(
        vocabulary=vocabulary, outputs=tags, pad_id=special.pad, bos_id=special.bos
    )
    shapes = shapes_of(system, longest_row(config))
    refuse_terms(config, shapes)
    check_output_bias(config, shapes["params"], tags)
    return system


def reads_trees(node: Any) -> bool:
    """Whether a part of a config node is a position scheme that reads dependency trees."""
    if not isinstance(node, Mapping | ConfigDict):
        return False
    for key, below in node.items():
        name = below.get("name") if isinstance(below, Mapping | ConfigDict) else below
        if key == "positions" and isinstance(name, str):
            if getattr(POSITIONS.resolve(name), "trees", False):
                return True
        elif reads_trees(below):
            return True
    return False


class Tagging(Task[schemas.Tagging, TaggedTexts, TokenClassifier]):
    """Tagging: words to tags; see `attnlab.tasks.base.Task`.

    Attributes:
      config: see `configs/tagging.py`.
      data: the sentences, their ids and their tags.
      system: the model.
    """

    systems: ClassVar[type[TokenClassifier]] = TokenClassifier
    schema = schemas.Tagging
    loads = TaggedTexts
    columns: ClassVar[Mapping[str, Declared]] = {
        "source": IDS,
        "target": Declared("int32", ("T",)),
        "heads": Declared("int32", ("T",), optional=True),
    }
    inputs = ("source",)
    measures: Mapping[str, Measure | str] = {
        "loss": Measure("min", low=0.0),
        "perplexity": Measure("min", low=1.0),
        "accuracy": share("words"),
        **{name: Measure("max", low=0.0, high=1.0) for name in SPANS},
    }
    """Of the class, all there may be; those of spans only where tags are of that form."""
    evaluated: ClassVar[Sequence[str]] = ("loss", "perplexity", "accuracy")
    units: ClassVar[Mapping[str, str]] = {
        "loss": "nats per word",
        "perplexity": "per word",
        "accuracy": "share of words with the right tag",
        "f1": "of spans",
        "precision": "of spans",
        "recall": "of spans",
    }
    examples: ClassVar[str] = "sentences"
    outputs: ClassVar[str] = "tags.tsv"

    def __init__(self, config: schemas.Tagging, data: TaggedTexts) -> None:
        self.special, self.tags = data.vocabulary.special, data.learned.classes
        system = build_system(config, data.vocabulary.size, len(self.tags), self.special)
        super().__init__(config, data, system)
        self._trees = "trees" in system.reads and reads_trees(config.system)
        if reads_trees(config.system) and any(
            sentence.heads is None for rows in data.rows.values() for sentence in rows[:1]
        ):
            raise UserError(
                f"config.system: its positions read dependency trees, which config.data={config.data.name}"
                " does not give; take a source with trees (conllu), or other positions"
            )
        self._in_spans = scheme(self.tags) is not None
        if self._in_spans:
            self._check_spans()
        else:
            self.measures = {
                name: way for name, way in type(self).measures.items() if name not in SPANS
            }
            if look_like_spans(self.tags):
                _log.warning(
                    "the tags %s are of no scheme of spans that is known (%s): there are no scores"
                    " of spans",
                    ", ".join(self.tags[:20]),
                    ", ".join(SCHEMES),
                )
        self._answer_ids = self.jit(lambda params, batch: self.apply(params, batch).argmax(axis=-1))

    def _check_spans(self) -> None:
        """`UserError` for a tag that is of no scheme of spans together with those of training."""
        for split, rows in self.data.rows.items():
            for tag in sorted({tag for sentence in rows for tag in sentence.tags}):
                if scheme([*self.tags, tag]) is None:
                    raise UserError(
                        f"config.data: the {split} split has the tag {tag!r}, which is none of the"
                        f" scheme {scheme(self.tags)} that training has; mend it in the file"
                    )

    @classmethod
    def check(cls, config: schemas.Tagging) -> None:
        """Build the system with a stand-in vocabulary, so that a bad config fails before data is
        read.
        """
        build_system(config, 8, 3)

    # --- training ---

    def target_ids(self) -> tuple[np.ndarray, int] | None:
        """The tags of all words."""
        if "train" not in self.data.examples:
            return None
        tags = self.of_split("train").packed("target").ids
        return tags[tags > 0] - 1, len(self.tags)

    def apply(self, params: Params, batch: Batch, **options: Any) -> Tree:
        """Logits [B,T,C] of a batch."""
        source = jnp.asarray(batch["source"])
        beside: dict[str, Any] = {}
        if self._trees:
            heads = jnp.asarray(batch["heads"])
            beside["trees"] = structural_distance(heads, source != self.special.pad)
        logits: Tree = self.system.apply({"params": params}, source, **beside, **options)
        return logits

    def summed(self, outputs: jax.Array, batch: Batch, smoothing: Smoothing) -> Sums:
        """Sums over the words of a batch, of logits [B,T,C]: "loss" (without tags that training
        does not have), "words", "correct"; and "tokens", those that were read.
        """
        target, logits = jnp.asarray(batch["target"]), outputs.astype(jnp.float32)
        known = (target > 0) & (target <= len(self.tags))
        losses = cross_entropy(logits, jnp.where(known, target - 1, 0), smoothing)
        return {
            "loss": jnp.where(known, losses, 0.0).sum(),
            "tokens": (jnp.asarray(batch["source"]) != self.special.pad).sum(),
            "words": (target > 0).sum(),
            "correct": (known & (logits.argmax(axis=-1) == target - 1)).sum(),
        }

    def weight(self, batch: Batch) -> jax.Array:
        """The number of words, or of sentences (`training.per="sentence"`)."""
        return tokens_or_rows(jnp.asarray(batch["target"]) > 0, self.config.training.per)

    # --- scores ---

    def averaged(self, totals: Totals) -> dict[str, float]:
        """ "loss" (nats per word, no smoothing), "perplexity" (its exponential) and "accuracy"."""
        return token_scores({**totals, "tokens": totals["words"]})

    def counts(self, split: str) -> dict[str, int]:
        """The number of words."""
        return {"words": sum(len(sentence.words) for sentence in self.data.rows[split])}

    def score(self, params: Params, split: str) -> tuple[Scores, list[str]]:
        """Precision, recall and F1 of spans where tags are of that form, and "word TAB tag TAB
        answer" of every word, with blank lines between sentences.
        """
        rows, lines, sums = self.data.rows[split], list[str](), np.zeros(3, np.int64)
        for sentence, tags in zip(rows, self._tagged(params, self.of_split(split)), strict=True):
            lines += map("\t".join, zip(sentence.words, sentence.tags, tags, strict=True))
            lines.append("")
            sums += counts(sentence.tags, tags) if self._in_spans else 0
        return (dict(scores(*map(int, sums))) if self._in_spans else {}), lines

    def items(self, params: Params, split: str, outputs: Sequence[str]) -> Items | None:
        """A row for every sentence, of what `evaluate` gives."""
        sums = sums_of_rows(self, params, self.in_order(self.of_split(split)))
        return Items.of(token_rows({**sums, "tokens": sums["words"]}))

    def _tagged(self, params: Params, examples: Examples) -> Iterator[list[str]]:
        """The tags that the system gives to the words of each example, in their order."""
        by_row: dict[int, list[str]] = {}
        for rows, batch in self.in_order(examples):
            numbers = np.asarray(self._answer_ids(params, batch))
            for row, target, tags in zip(rows, batch["target"], numbers, strict=True):
                if row >= 0:
                    by_row[row] = [self.tags[tag] for tag in tags[target > 0]]
        yield from (by_row[row] for row in range(len(examples)))

    # --- answers and maps ---

    def examples_from_lines(self, lines: Sequence[str]) -> Examples:
        """Words with blanks between them.

        Raises:
          UserError: a blank line; a system that reads dependency trees.
        """
        if self._trees:
            raise UserError(
                "this model reads dependency trees, which a typed line does not have; 'evaluate'"
                " tags the sentences of a treebank"
            )
        return self._encoded([TaggedExample(self._words(line)) for line in lines])

    @staticmethod
    def _words(line: str) -> tuple[str, ...]:
        if not (words := tuple(line.split())):
            raise UserError(f"{line!r}: expected words with blanks between them")
        return words

    def _encoded(self, typed: Sequence[TaggedExample]) -> Examples:
        """Examples without a known tag."""
        rows = [Sentence(text.words, ("",) * len(text.words), text.heads) for text in typed]
        return tagged.encode(self.data.learned, rows)

    def answers(
        self, params: Params, examples: Examples, lines: Sequence[str]
    ) -> list[list[Response]]:
        """Each line as "word/tag word/tag ..."."""
        return [
            [Response(" ".join(map("/".join, zip(line.split(), tags, strict=True))), 0.0)]
            for line, tags in zip(lines, self._tagged(params, examples), strict=True)
        ]

    def map_examples(self, split: str, number: int) -> list[TaggedExample]:
        """The first sentences of a split."""
        return [TaggedExample(row.words, row.heads) for row in self.data.rows[split][:number]]

    def examples_from_text(self, params: Params, typed: Sequence[Typed]) -> list[TaggedExample]:
        """The sentences as they are; a second text is an error."""
        if seconds := [second for _, second in typed if second is not None]:
            raise UserError(f"a tagger reads one sentence; leave out the second, {seconds[0]!r}")
        self.examples_from_lines([first for first, _ in typed])
        return [TaggedExample(self._words(first)) for first, _ in typed]

    def model_inputs(self, example: TaggedExample) -> tuple[list[np.ndarray], dict[str, Axis]]:
        """A sentence with what begins and ends it, "source"; and its tree, if it is read."""
        (ids,) = self._encoded([example]).packed("source")
        read = [ids[None]]
        if self._trees:
            (heads,) = self._encoded([example]).packed("heads")
            none = np.zeros_like(ids[None])
            read += [none, none, np.asarray(jax.jit(structural_distance)(heads[None]))]
        return read, {"source": Axis(self.data.vocabulary.tokens(ids))}

    def map_labels(self, axes: Mapping[str, Axis]) -> dict[str, Sequence[str]]:
        """The tokens that are read."""
        return {"source_tokens": axes["source"].labels, "target_tokens": ()}
