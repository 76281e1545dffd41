"""The base of tasks whose system writes a text for what it reads: cross-entropy of the text that is
there, decoding, and how texts are scored.

`attnlab.tasks.pairs` has the tasks whose source is a text, `attnlab.tasks.captioning` is one whose
source is an image.

Axis letters: B batch, T target length, V target vocabulary, N examples.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.data.columns import Examples
from attnlab.data.vocabulary import Vocabulary
from attnlab.decoding.generate import Decoded, Decoder
from attnlab.decoding.metrics import corpus_scores, sentence_counts
from attnlab.decoding.rows import by_example
from attnlab.decoding.settings import Decoding, validate
from attnlab.records.items import Items
from attnlab.records.measures import TEXT, Measure, share
from attnlab.systems.protocol import Writer
from attnlab.tasks.base import Data
from attnlab.tasks.decoders import ending, translating
from attnlab.tasks.protocol import Batch, Params, Response, Responses, Scores, Smoothing, Typed
from attnlab.tasks.schemas import WritingSettings
from attnlab.tasks.tokens import TEACHER_FORCED, TokenTask, cross_entropy, teacher_forced
from attnlab.training.step import Sums

Writing = TypeVar("Writing", bound=Writer)
Writes = TypeVar("Writes", bound=WritingSettings)


class WritingTask(TokenTask[Writes, Data, Writing]):
    """Base of the tasks whose system writes a text, scored token by token and as free-running text;
    see `attnlab.tasks.base.Task`.
    """

    measures: Mapping[str, Measure | str] = TEACHER_FORCED

    @property
    def written_in(self) -> Vocabulary:
        """The vocabulary of the target."""
        raise NotImplementedError

    # --- the loss and what follows from it ---

    def target_ids(self) -> tuple[np.ndarray, int] | None:
        """The tokens of all targets."""
        train = self.data.examples.get("train")  # type: ignore[attr-defined]
        return None if train is None else (train.packed("target").ids, self.written_in.size)

    def shifted(self, target: jax.Array | np.ndarray) -> jax.Array:
        """Decoder input: BOS, then all but the last of target [B,T]."""
        bos = self.special.bos
        return jnp.pad(jnp.asarray(target), ((0, 0), (1, 0)), constant_values=bos)[:, :-1]

    def target_in(self, target: jax.Array | np.ndarray) -> jax.Array:
        """Decoder input in a pass: `shifted`; for norms over a batch, what stands behind the end of
        a text is padding here too.
        """
        shifted = self.shifted(target)
        if not self.system.over_batch:
            return shifted
        return jnp.where(self.real(target), shifted, self.special.pad)

    def summed(
        self, outputs: jax.Array, batch: Batch, smoothing: Smoothing, axis: int | None = None
    ) -> Sums:
        """Computes sums over the target tokens of a batch, from logits [B,T,V]: "loss", "tokens",
        "correct"; with axis 1 for each row alone, [B].
        """
        losses, correct = self._score_ids(outputs, batch, smoothing)
        tokens = self.real(jnp.asarray(batch["target"])).sum(axis)
        return {"loss": losses.sum(axis), "tokens": tokens, "correct": correct.sum(axis)}

    def _score_ids(
        self, outputs: jax.Array, batch: Batch, smoothing: Smoothing
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the loss of every target token, and whether the likeliest was right, [B,T]; 0 at padding."""
        target = jnp.asarray(batch["target"])
        real = self.real(target)
        losses = cross_entropy(outputs.astype(jnp.float32), target, smoothing)
        return jnp.where(real, losses, 0.0), (outputs.argmax(axis=-1) == target) & real

    @functools.cached_property
    def token_scores(self) -> Callable[[Params, Batch], tuple[jax.Array, jax.Array]]:
        """Returns the program of nats and of whether the likeliest was right, [B,T], of a batch."""
        return self.jit(
            lambda params, batch: self._score_ids(self.apply(params, batch), batch, 0.0)
        )

    def encoded(self, pairs: Sequence[tuple[str, str]]) -> Examples:
        """Examples of typed sources and their texts."""
        examples = self.examples_from_lines([source for source, _ in pairs])
        target = self.written_in.packed(text for _, text in pairs)
        return Examples(**{**examples.columns, "target": target})

    # --- text ---

    def written(
        self, params: Params, examples: Examples, *, alignment: bool = False
    ) -> list[list[Decoded]]:
        """The hypotheses for each example, best first, by the method of `config.decoding`;
        `alignment`: with weights, if it attends.
        """
        return self._decoder(alignment)(params, self.in_order(examples))

    def text(self, hypothesis: Decoded) -> str:
        """A hypothesis as text."""
        return self._settings.cut(self.spelt(hypothesis.tokens))

    def spelt(self, ids: Iterable[int]) -> str:
        """The text of target ids."""
        return self.written_in.decode(ids)

    def answers(self, params: Params, examples: Examples, lines: Sequence[str]) -> Responses:
        """The texts for each line, as many as `decoding.n_best`."""
        written = self.written(params, examples)
        return [[Response(self.text(text), text.score) for text in best] for best in written]

    def partial_answers(self, params: Params, line: str, index: int) -> Iterator[str]:
        """The text for a line as far as it is written, after every token."""
        examples = self.examples_from_lines([line])
        (source,) = examples["source"].block(np.arange(1), int(examples.lengths[0]))
        for ids in self._decoder(False).stream(params, source, index):
            yield self._settings.cut(self.spelt(ids))

    def example(self, source: str, target: str) -> Any:
        """The example of a typed source and its text."""
        raise NotImplementedError

    def examples_from_text(self, params: Params, typed: Sequence[Typed]) -> list[Any]:
        """Returns an example for each of the pairs (source, text) in `typed`; where the text is
        None, the system writes it. See `Task.examples_from_text`.
        """
        open_ended = [source for source, target in typed if target is None]
        examples = self.examples_from_lines(open_ended) if open_ended else None
        texts = iter([] if examples is None else self.written(params, examples))
        return [
            self.example(source, self.text(next(texts)[0]) if target is None else target)
            for source, target in typed
        ]

    def teacher_forced(self, params: Params, split: str) -> dict[str, tuple[str, np.ndarray]]:
        """Rule and rows of the scores of `evaluate`, see `attnlab.records.items`: [N,2], a row for
        every example.
        """
        batches = self.in_order(self.of_split(split))
        return self.ratio_rows(by_example(self._row_sums, params, batches))

    def decoder(self, alignment: bool) -> Decoder:
        """A new decoder by the settings, with weights if `alignment`."""
        ended = ending(self._settings, self.spelt)
        return translating(
            self.system, self._settings, alignment=alignment, special=self.special, ended=ended
        )

    @functools.cache  # noqa: B019 - the task lives as long as the run; keeps one compiled program per batch shape
    def _decoder(self, alignment: bool) -> Decoder:
        return self.decoder(alignment)

    @functools.cached_property
    def _settings(self) -> Decoding:
        return validate(self.config.decoding, weights=bool(self.system.needs))

    @functools.cached_property
    def _row_sums(self) -> Callable[[Params, Batch], Sums]:
        """The program of the sums of each row. Apart from that of `evaluate`: sums in another order
        would be other numbers.
        """
        return self.jit(
            lambda params, batch: self.summed(self.apply(params, batch), batch, 0.0, axis=1)
        )


class ScoredAsText(WritingTask[Writes, Data, Writing]):
    """Base of the tasks that are scored by BLEU, chrF and exact matches against one reference each."""

    measures: Mapping[str, Measure | str] = {
        **teacher_forced("nats per target token", "next token, teacher-forced"),
        **dict.fromkeys(("bleu", "chrf"), Measure("max", low=0.0, high=100.0)),
        "exact": share("sentences", unit="share of sentences right as a whole", depends=(TEXT,)),
    }

    def references(self, split: str) -> list[str]:
        """The targets of a split as the vocabulary sees them."""
        raise NotImplementedError

    def hypotheses(self, params: Params, split: str) -> list[str]:
        """The best text for every example of a split."""
        return [self.text(best[0]) for best in self.written(params, self.of_split(split))]

    def score(self, params: Params, split: str) -> tuple[Scores, list[str]]:
        """Free-running scores of a split, BLEU, chrF (with their signatures) and the share of exact
        matches, and the texts.
        """
        texts, lowercase = self.hypotheses(params, split), self._lowercase
        return corpus_scores(texts, self.references(split), lowercase=lowercase), texts

    def items(self, params: Params, split: str, outputs: Sequence[str]) -> Items:
        """A row for every example: its tokens, teacher-forced, and its n-grams."""
        return Items.of(self.counted(params, split, outputs))

    def counted(
        self, params: Params, split: str, outputs: Sequence[str]
    ) -> dict[str, tuple[str, Any]]:
        """Rule and rows of every score, see `attnlab.records.items`."""
        counts = sentence_counts(outputs, self.references(split), lowercase=self._lowercase)
        return {**self.teacher_forced(params, split), **counts}

    @property
    def _lowercase(self) -> bool:
        return bool(self.config.vocabulary.lowercase)
