"""Tagging: a tag for every word of a sentence, a system that gives numbers at every token, and
cross-entropy at the first piece of each word.

Tags of a scheme of spans (B-X, I-X, O and others, see `attnlab.tasks.spans`) are scored as spans
too. Dependency trees, where the source has them,
reach the position schemes that read them (`syntax_relative`).

Axis letters: B batch, T length, C tags.
"""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
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
from attnlab.records.measures import Measure, share
from attnlab.systems.protocol import TokenClassifier
from attnlab.tasks import schemas, tokens
from attnlab.tasks.models import built, longest_row
from attnlab.tasks.protocol import Batch, Params, Responses, Scores, Sides, Smoothing, Sums, Tree
from attnlab.tasks.spans import SCHEMES, counts, look_like_spans, scheme, scores

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
    """Builds the system of a config for a vocabulary of this size, with `tags` outputs; raises
    `UserError` where it does not fit.

    Raises:
      UserError: another kind of system, a mechanism that does not fit, samples or has a loss, no
        output bias where one is to be set.
    """
    system: TokenClassifier
    sizes = {"vocabulary": vocabulary, "outputs": tags}
    system, params = built(config, TokenClassifier, special, longest_row(config), **sizes)
    tokens.check_output_bias(config, params, tags)
    return system


def reads_trees(node: Any) -> bool:
    """Returns whether any part of a config node is a position scheme that reads dependency trees."""
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


class Tagging(tokens.OneTextTask[schemas.Tagging, TaggedTexts, TokenClassifier]):
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
        "loss": Measure("min", low=0.0, unit="nats per word"),
        "perplexity": Measure("min", low=1.0, unit="per word"),
        "accuracy": share("words", unit="share of words with the right tag"),
        **dict.fromkeys(SPANS, Measure("max", 0.0, 1.0, unit="of spans")),
    }
    """Of the class, all there may be; those of spans only where tags are of that form."""
    evaluated: ClassVar[Sequence[str]] = ("loss", "perplexity", "accuracy")
    ratios = {"loss": ("loss", "words"), "accuracy": ("correct", "words")}
    examples: ClassVar[str] = "sentences"
    outputs: ClassVar[str] = "tags.tsv"
    alone = "a tagger reads one sentence"

    def __init__(self, config: schemas.Tagging, data: TaggedTexts) -> None:
        """Builds the system; raises `UserError` if its positions need dependency trees that the
        data lacks, or if tags mix schemes of spans; tags of no known scheme have no scores of
        spans, with a warning if they look like spans.
        """
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

    def _check_spans(self) -> None:
        """Raises `UserError` if a split has a tag that fits no scheme of spans together with the
        tags of training.
        """
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
        """Computes logits [B,T,C] for the tokens of a batch, with distances in dependency trees as
        an input where positions read them.
        """
        source = jnp.asarray(batch["source"])
        extra: dict[str, Any] = {}
        if self._trees:
            heads = jnp.asarray(batch["heads"])
            extra["trees"] = structural_distance(heads, source != self.special.pad)
        logits: Tree = self.system.apply({"params": params}, source, **extra, **options)
        return logits

    def summed(self, outputs: jax.Array, batch: Batch, smoothing: Smoothing) -> Sums:
        """Returns sums over the words of a batch by name, from logits [B,T,C]: "loss" (without tags
        that training lacks), "words" and "correct", and "tokens", those that were read.
        """
        target, logits = jnp.asarray(batch["target"]), outputs.astype(jnp.float32)
        trained = (target > 0) & (target <= len(self.tags))
        losses = tokens.cross_entropy(logits, jnp.where(trained, target - 1, 0), smoothing)
        return {
            "loss": jnp.where(trained, losses, 0.0).sum(),
            "tokens": (jnp.asarray(batch["source"]) != self.special.pad).sum(),
            "words": (target > 0).sum(),
            "correct": (trained & (logits.argmax(axis=-1) == target - 1)).sum(),
        }

    def targets(self, ids: jax.Array | np.ndarray) -> jax.Array:
        """See `TokenTask.targets`; 0 is no tag."""
        return jnp.asarray(ids) > 0

    # --- scores ---

    def counts(self, split: str) -> dict[str, int]:
        """The number of words."""
        return {"words": sum(len(sentence.words) for sentence in self.data.rows[split])}

    def score(self, params: Params, split: str) -> tuple[Scores, list[str]]:
        """Returns two things: a mapping with "precision", "recall" and "f1" of spans ({} if tags do
        not mark spans), and a list with a line "word TAB tag TAB answer" for every word and a blank
        line after each sentence.
        """
        rows, lines, sums = self.data.rows[split], list[str](), np.zeros(3, np.int64)
        for sentence, tags in zip(rows, self._tagged(params, self.of_split(split)), strict=True):
            lines += map("\t".join, zip(sentence.words, sentence.tags, tags, strict=True))
            lines.append("")
            sums += counts(sentence.tags, tags) if self._in_spans else 0
        return (dict(scores(*map(int, sums))) if self._in_spans else {}), lines

    def _tagged(self, params: Params, examples: Examples) -> list[list[str]]:
        """The tags that the system gives to the words of each example, in their order."""
        return [[self.tags[tag] for tag in tags] for tags in self.likeliest_ids(params, examples)]

    # --- answers and maps ---

    def examples_from_lines(self, lines: Sequence[str]) -> Examples:
        """Words with blanks between them.

        Raises:
          UserError: a blank line; a system that reads dependency trees.
        """
        return self._encoded([self.example(line) for line in lines])

    def example(self, line: str) -> TaggedExample:
        """Returns the words of a typed line as a `TaggedExample`; raises `UserError` if it is
        blank, or if the model reads dependency trees. See `OneTextTask.example`.
        """
        if self._trees:
            raise UserError(
                "this model reads dependency trees, which a typed line does not have; 'evaluate'"
                " tags the sentences of a treebank"
            )
        return TaggedExample(tokens.words_of(line))

    def _encoded(self, typed: Sequence[TaggedExample]) -> Examples:
        """Examples without a known tag."""
        rows = [Sentence(text.words, ("",) * len(text.words), text.heads) for text in typed]
        return tagged.encode(self.data.learned, rows)

    def answers(self, params: Params, examples: Examples, lines: Sequence[str]) -> Responses:
        """Each line as "word/tag word/tag ..."."""
        return self.beside_words(lines, self._tagged(params, examples))

    def map_examples(self, split: str, number: int) -> list[TaggedExample]:
        """The first sentences of a split."""
        return [TaggedExample(row.words, row.heads) for row in self.data.rows[split][:number]]

    def read_ids(self, example: TaggedExample) -> np.ndarray:
        """See `OneTextTask.read_ids`."""
        return self._encoded([example]).packed("source")[0]

    def model_inputs(self, example: TaggedExample) -> tuple[list[np.ndarray], Sides]:
        """Returns two things: a list of the inputs of a sentence, its ids [1,T] and, if the model
        reads dependency trees, zeros for two further inputs and the distances [1,T,T], and a
        mapping with its tokens as labels, "source".
        """
        read, sides = super().model_inputs(example)
        if self._trees:
            (heads,) = self._encoded([example]).packed("heads")
            none = np.zeros_like(read[0])
            read += [none, none, np.asarray(jax.jit(structural_distance)(heads[None]))]
        return read, sides
