"""The base of tasks that predict every token of a text: cross-entropy, the scores that follow from it,
and how the output bias starts (`training.output_bias`).

From an output bias of zeros the first updates drive hidden units to their ends to learn just how
frequent tokens are, and a read-out that ends in a tanh may be long in coming back.

Axis letters: B batch, T length, V vocabulary, N examples.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.data.columns import Examples
from attnlab.data.text import Texts
from attnlab.data.vocabulary import Special, Vocabulary
from attnlab.decoding.rows import sums_of_rows
from attnlab.errors import UserError
from attnlab.records.items import Items
from attnlab.records.measures import VOCABULARY, Measure, share
from attnlab.tasks import schemas
from attnlab.tasks.base import Config, Data, Model, Task
from attnlab.tasks.protocol import Batch, Params, Response, Sides, Smoothing, TextExample, Typed
from attnlab.training.settings import TokenTraining

PICTURED = 60  # tokens of a text whose maps are drawn after training
TEACHER_FORCED: Mapping[str, Measure] = {
    "loss": Measure("min", low=0.0, depends=(VOCABULARY,)),
    "perplexity": Measure("min", low=1.0, depends=(VOCABULARY,)),
    "accuracy": share("tokens", depends=(VOCABULARY,)),
}
"""The scores of a text that is predicted token by token."""


def teacher_forced(loss: str, accuracy: str) -> dict[str, Measure]:
    """Returns the measures `TEACHER_FORCED` with `loss` ("nats per ...") and `accuracy` as the units of
    these two; that of perplexity is as of the loss.
    """
    units = {"loss": loss, "perplexity": loss.removeprefix("nats "), "accuracy": accuracy}
    return {
        name: dataclasses.replace(measure, unit=units.get(name))
        for name, measure in TEACHER_FORCED.items()
    }


TOKENS_STORED: Mapping[str, Sequence[str]] = {
    "source_tokens": ("source",),
    "target_tokens": ("target", "target_in"),
}
"""`Task.stored_labels` of texts: the tokens that are read, and those that are predicted or else the
second text."""


OUTPUT_BIAS = ("out", "bias")  # where a system that predicts tokens has it among its parameters


class TokenTask(Task[Config, Data, Model]):
    """Base of the tasks whose batches have a "target" [B,T] to predict, see
    `attnlab.tasks.base.Task`.

    Attributes:
      special: the ids of the target's vocabulary that are no text.
    """

    evaluated: ClassVar[Sequence[str]] = tuple(TEACHER_FORCED)
    ratios: Mapping[str, tuple[str, str]] = {
        "loss": ("loss", "tokens"),
        "accuracy": ("correct", "tokens"),
    }
    stored_labels = TOKENS_STORED
    special: Special

    def real(self, ids: jax.Array | np.ndarray) -> jax.Array:
        """Which ids are no padding."""
        return jnp.asarray(ids) != self.special.pad

    def weight(self, batch: Batch) -> jax.Array:
        """The number of target tokens, EOS counted, or of sentences (`training.per="sentence"`: the
        sum over time, the mean over rows, as in the older papers).
        """
        training = self.config.training
        assert isinstance(training, TokenTraining)
        targets = self.targets(batch["target"])
        counted = targets if training.per == "token" else targets.any(axis=1)
        return counted.sum().astype(jnp.float32)

    def targets(self, ids: jax.Array | np.ndarray) -> jax.Array:
        """Which ids of a "target" are there to be predicted."""
        return self.real(ids)

    def ratio_rows(self, sums: Mapping[str, np.ndarray]) -> dict[str, tuple[str, np.ndarray]]:
        """Returns for each of the `ratios` and "perplexity" that is among the `evaluated` scores
        the rule of `attnlab.records.items` and a row [2] per example, from the sums [N] of each
        example.
        """
        rows = {
            name: ("ratio", np.stack([sums[part], sums[divisor]], axis=1))
            for name, (part, divisor) in self.ratios.items()
        }
        rows["perplexity"] = "perplexity", rows["loss"][1]
        return {name: rows[name] for name in self.evaluated if name in rows}


class OneTextTask(TokenTask[Config, Data, Model]):
    """Base of the tasks that read one text and say something at its tokens; their data has a
    `vocabulary`.

    Attributes:
      alone: why a second text is refused.
    """

    alone: ClassVar[str]

    def example(self, line: str) -> Any:
        """The example of a typed text; `UserError` for one that cannot be read."""
        return TextExample(line)

    def examples_from_text(self, params: Params, typed: Sequence[Typed]) -> list[Any]:
        """See `Task.examples_from_text`; a second text is an error."""
        if seconds := [second for _, second in typed if second is not None]:
            raise UserError(f"{self.alone}; leave out the second, {seconds[0]!r}")
        return [self.example(first) for first, _ in typed]

    def read_ids(self, example: Any) -> np.ndarray:
        """The ids [T] that the system reads of an example."""
        return self.examples_from_lines([example.source]).packed("source")[0]

    def model_inputs(self, example: Any) -> tuple[list[np.ndarray], Sides]:
        """A text with what begins it, "source"."""
        ids = self.read_ids(example)
        return [ids[None]], {"source": self._vocabulary.tokens(ids)}

    def likeliest_ids(self, params: Params, examples: Examples) -> list[np.ndarray]:
        """Returns for each example, in order, the array of the most probable output ids at its
        target positions.
        """
        likeliest: dict[int, np.ndarray] = {}
        for rows, batch in self.in_order(examples):
            outputs = np.asarray(self._likeliest_ids(params, batch))
            is_target = np.asarray(self.targets(batch["target"]))
            likeliest |= {row: outputs[n, is_target[n]] for n, row in enumerate(rows) if row >= 0}
        return [likeliest[row] for row in range(len(examples))]

    @staticmethod
    def beside_words(
        lines: Sequence[str], answers: Sequence[Sequence[str]]
    ) -> list[list[Response]]:
        """Returns for each line its answers at every word, as "word/answer word/answer ...", sorted
        by nothing.
        """
        rows = zip(lines, answers, strict=True)
        pairs = (zip(line.split(), answered, strict=True) for line, answered in rows)
        return [[Response(" ".join(map("/".join, words)), 0.0)] for words in pairs]

    def items(self, params: Params, split: str, outputs: Sequence[str]) -> Items | None:
        """A row for every row of `split_batches`, of what `evaluate` gives; see `Task.items`."""
        return Items.of(self.ratio_rows(sums_of_rows(self.sums, params, self.split_batches(split))))

    @functools.cached_property
    def _likeliest_ids(self) -> Callable[[Params, Batch], jax.Array]:
        return self.jit(lambda params, batch: self.apply(params, batch).argmax(axis=-1))

    @property
    def _vocabulary(self) -> Vocabulary:
        return self.data.vocabulary  # type: ignore[attr-defined,no-any-return]


class RunningTextTask(OneTextTask[Config, Texts, Model]):
    """Base of the tasks whose data are texts without labels, of which every token is a target."""

    examples: ClassVar[str] = "texts"

    def target_ids(self) -> tuple[np.ndarray, int] | None:
        """The tokens of all texts."""
        return target_ids(self.data)

    def map_examples(self, split: str, number: int) -> list[TextExample]:
        """The beginnings of the first texts that are more than their end, as far as a picture
        shows them.
        """
        texts = itertools.islice((text for text in self.data.rows[split] if text.strip()), number)
        ids = self.data.vocabulary.encode_all(texts)
        return [TextExample(self.data.vocabulary.decode(row[:PICTURED])) for row in ids]


def words_of(line: str) -> tuple[str, ...]:
    """The words of a line; `UserError` where it has none."""
    if not (words := tuple(line.split())):
        raise UserError(f"{line!r}: expected words with blanks between them")
    return words


def target_ids(data: Texts) -> tuple[np.ndarray, int] | None:
    """The tokens of the training texts and the size of their vocabulary, see `Task.target_ids`."""
    return (data.ids["train"].ids, data.vocabulary.size) if "train" in data.ids else None


def cross_entropy(logits: jax.Array, target: jax.Array, smoothing: Smoothing) -> jax.Array:
    """Computes -sum_v q_v log p_v with q = (1 - e) onehot(target) + e / V: logits [...,V] float32
    and target [...] to losses [...] in nats, e the rate of smoothing.

    Label smoothing as in torch and optax, over all V classes (Szegedy et al. 2016).
    """
    total = jax.nn.logsumexp(logits, axis=-1)
    picked = jnp.take_along_axis(logits, target[..., None], axis=-1)[..., 0]
    if isinstance(smoothing, int | float) and smoothing == 0.0:
        return total - picked
    return total - (1.0 - smoothing) * picked - smoothing * logits.mean(axis=-1)


def check_output_bias(config: schemas.Settings, params: Params, vocabulary: int) -> None:
    """Raises `UserError` where `training.output_bias` is "unigram" and these parameters, arrays or
    their shapes, have no output bias with a number per token.
    """
    bias = flax.traverse_util.flatten_dict(params).get(OUTPUT_BIAS)
    if _of_frequencies(config) and (bias is None or bias.shape != (vocabulary,)):
        lacks = (
            f"{config.system.name} has no parameter {'/'.join(OUTPUT_BIAS)} with a number for each"
            " token"
        )
        raise UserError(f"config.training.output_bias='unigram': {lacks}; set it to 'zeros'")


def with_output_bias(
    config: schemas.Settings, params: Params, tokens: np.ndarray, vocabulary: int
) -> Params:
    """Returns `params` with the output bias set to the log frequencies of the target `tokens` of
    training (each count plus 1), if `training.output_bias` is "unigram"; else `params` unchanged.

    "unigram": log((n_v + 1) / (N + V)) for token v, n_v of N being v; "zeros": as the system draws
    it.
    """
    if not _of_frequencies(config):
        return params
    from attnlab.data.shards import in_parts

    counts = np.ones(vocabulary)
    for part in in_parts(tokens):
        counts += np.bincount(part, minlength=vocabulary)
    flat = flax.traverse_util.flatten_dict(params)
    flat[OUTPUT_BIAS] = jnp.asarray(np.log(counts / counts.sum()), flat[OUTPUT_BIAS].dtype)
    return flax.traverse_util.unflatten_dict(flat)


def _of_frequencies(config: schemas.Settings) -> bool:
    """Whether the output bias starts at the frequencies of tokens; other tasks have none."""
    return getattr(config.training, "output_bias", "zeros") == "unigram"
