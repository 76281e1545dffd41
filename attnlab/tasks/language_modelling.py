"""Language modelling: texts, a system that predicts every token from those before it,
cross-entropy, and perplexity.

`batch.texts` says how texts are read. "joined": all of them are one stream in which the end of a
text is a token; it is cut into `batch.size` lanes, and what the model knows after a step is where
it goes on in the next, without a gradient between steps (truncated back-propagation). "in_turn":
each lane reads texts one after another in this way, and knows nothing at the beginning of each.
"apart": every text is read as a whole; so long ones are left out. A split is scored in the same
way, in `decoding.batch` lanes if joined: one is exact, more are faster, each begins from nothing.

Axis letters: B batch, T length, V vocabulary.
"""

from __future__ import annotations

import collections
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from attnlab.attention.alignments.protocol import SAMPLES
from attnlab.attention.protocol import LOSSES, MAPS
from attnlab.config import nodes
from attnlab.data import text
from attnlab.data.batching import Batch, Examples, Packed, evaluation_batches
from attnlab.data.corpus import has_vocabularies, save_vocabularies
from attnlab.data.streams import FIRST, Apart, Lanes, Turns, begun, lanes, widths
from attnlab.data.vocabulary import EOS, PAD
from attnlab.decoding import Decoder, validate
from attnlab.decoding.steps import largest
from attnlab.errors import UserError
from attnlab.records.items import Items
from attnlab.records.measures import Measure, share
from attnlab.systems.protocol import AttentionMap, LanguageModel
from attnlab.tasks.continuation import continuing
from attnlab.tasks.models import (
    check_output_bias,
    cross_entropy,
    shapes_of,
    system_factory,
    with_output_bias,
)
from attnlab.tasks.protocol import Example, Response

PICTURED = 60  # tokens of a text whose maps are drawn after training


def build_system(config: ConfigDict, vocabulary: int) -> LanguageModel:
    """The system of a config.

    Raises:
      UserError: another kind of system, a mechanism that does not fit, samples or has a loss, no
        output bias where one is to be set.
    """
    system: LanguageModel = system_factory(config, LanguageModel)(vocabulary=vocabulary)
    shapes = shapes_of(system, jax.ShapeDtypeStruct((1, 2), jnp.int32))
    if shapes.get(SAMPLES):
        raise UserError(
            f"system={config.system.name}: it samples what it looks at, which language modelling"
            " does not train"
        )
    if shapes.get(LOSSES):
        raise UserError(
            f"system={config.system.name}: its attention hands out a loss of its own, which"
            " language modelling does not add"
        )
    check_output_bias(config, shapes["params"], vocabulary)
    return system


class LanguageModelling:
    """Language modelling: every token of a text from those before it; see
    `attnlab.tasks.protocol.Task`.

    Attributes:
      config: see `configs/language_modelling.py`.
      data: the texts and their ids.
      system: the model.
    """

    systems: ClassVar[type[LanguageModel]] = LanguageModel
    schema: ClassVar[type[nodes.Run]] = nodes.LanguageModelling
    reads: ClassVar[str] = "texts"
    measures: Mapping[str, Measure] = {
        **{
            "loss": Measure("min", low=0.0),
            "perplexity": Measure("min", low=1.0),
            "bits_per_character": Measure("min", low=0.0),
        },
        **{"accuracy": share("tokens"), "recall": share("tokens that can be recalled")},
    }
    """Of the class, all there may be; of an object, those its data can give: `recall` where the source tells which tokens those before
    them determine, `bits_per_character` where no word is unknown, for such a word costs little and has as many characters as any."""
    evaluated: ClassVar[Sequence[str]] = tuple(measures)
    units: ClassVar[Mapping[str, str]] = {
        "loss": "nats per token, ends of texts are tokens",
        "perplexity": "per token",
        "accuracy": "next token",
        "unknown": "share of tokens that the vocabulary lacks",
        "bits_per_character": "ends of texts are characters",
        "recall": "of the tokens that those before them determine",
    }
    examples: ClassVar[str] = "texts"
    outputs: ClassVar[str] = ""

    def __init__(self, config: ConfigDict, data: text.Texts) -> None:
        self.config, self.data = config, data
        self.system = build_system(config, data.vocabulary.size)
        missing = {
            "recall": not data.recalled,
            "bits_per_character": any(not data.spelt(split) for split in data.ids),
        }
        self.measures = {
            name: way for name, way in type(self).measures.items() if not missing.get(name)
        }
        self._apart, self._settings = (
            config.batch.texts == "apart",
            validate(config.decoding, weights=False),
        )
        score, self._score_each = functools.partial(self._sums, smoothing=0.0), jax.jit(self._each)
        self._score, self._score_all = (
            jax.jit(score),
            jax.jit(jax.vmap(score, in_axes=(0, None, 0))),
        )

    @staticmethod
    def check(config: ConfigDict) -> None:
        """Build the system with a stand-in vocabulary, so that a bad config fails before data is
        read.
        """
        build_system(config, 8)
        validate(config.decoding, weights=False).check_room(config.batch.max_length)

    @classmethod
    def load(
        cls, config: ConfigDict, workdir: Path | None, splits: Sequence[str]
    ) -> LanguageModelling:
        """The task with its data read; the vocabulary comes from `workdir`, or without one from the
        training split.

        Raises:
          UserError: bad config, unreadable data, a damaged, lost or other vocabulary.
        """
        if workdir is not None and not cls.saved(
            workdir
        ):  # never learned from whatever data is at hand: the ids would mean others
            raise UserError(
                f"{workdir} has lost its vocabulary; the 'train' command that made it learns it"
                " again from the same data"
            )
        return cls(config, text.load(config.data, config.vocabulary, workdir, splits))

    # --- what the training loop asks for ---

    def init(self, key: jax.Array) -> Any:
        """Fresh float32 parameters; for the output bias see `with_output_bias`."""
        params = self.system.init(key, jnp.ones((1, 2), jnp.int32))["params"]
        if "train" not in self.data.ids:
            return params
        return with_output_bias(
            self.config, params, self.data.ids["train"].ids, self.data.vocabulary.size
        )

    def carried(self) -> None:
        """The loss itself carries nothing."""

    def follow(self, carried: Any, tracked: Any) -> None:
        """Nothing."""

    def remembered(self) -> Any:
        """What the model knows of every lane before the first step, where there are any; see
        `loop.Remembering`.
        """
        return self._before(self.config.batch.size)

    def loss(
        self,
        params: Any,
        batch: Batch,
        key: jax.Array,
        carried: Any = None,
        smoothing: Any = None,
        remembered: Any = None,
    ) -> tuple[jax.Array, dict[str, Any]]:
        """Summed cross-entropy with label smoothing and dropout; sums "tokens" and "correct" beside
        it, and what is remembered.

        `smoothing` replaces the configured rate; it may be an array.
        """
        smoothing = self.config.training.label_smoothing if smoothing is None else smoothing
        rngs = {"dropout": key, "sample": jax.random.fold_in(key, 1)}
        sums, after = self._sums(params, batch, remembered, smoothing=smoothing, rngs=rngs)
        return sums.pop("loss"), {**sums, **({} if remembered is None else {"remembered": after})}

    def weight(self, batch: Batch) -> jax.Array:
        """The number of tokens, or of rows that have any (`training.per="sentence"`: the sum over
        time, the mean over rows).
        """
        real = jnp.asarray(batch["target"]) != PAD
        return (
            (real if self.config.training.per == "token" else real.any(axis=1))
            .sum()
            .astype(jnp.float32)
        )

    def batches(self, multiple: int, seed: int | None = None) -> Lanes | Turns | Apart:
        """The training batches of this process; the order of texts apart is that of the configured
        seed or another one.
        """
        shared: dict[str, Any] = {
            "process_index": jax.process_index(),
            "process_count": jax.process_count(),
            "multiple": multiple,
        }
        ids, size, longest = (
            self.data.ids["train"],
            self.config.batch.size,
            self.config.batch.max_length,
        )
        if self._apart:
            return Apart(
                ids,
                size=size,
                max_length=longest,
                seed=self.config.seed if seed is None else seed,
                **shared,
            )
        return lanes(self.config.batch.texts, ids, size=size, length=longest, **shared)

    def evaluate(self, params: Any, split: str) -> dict[str, float]:
        """ "loss" (nats per token, no smoothing), "perplexity", "accuracy" (of the next token),
        "bits_per_character", and "recall".
        """
        return self._averaged(
            split,
            self._passed(
                split, functools.partial(self._score, params), self._before(self._settings.batch)
            ),
        )

    def evaluate_stacked(self, params: Any, split: str) -> list[dict[str, float]]:
        """`evaluate` for each of several models, whose parameters have a leading axis."""
        count = len(jax.tree.leaves(params)[0])
        first = jax.tree.map(lambda x: jnp.stack([x] * count), self._before(self._settings.batch))
        found = self._passed(split, functools.partial(self._score_all, params), first)
        return [
            self._averaged(split, jax.tree.map(lambda x, i=i: x[i], found)) for i in range(count)
        ]

    # --- text ---

    def save(self, workdir: Path) -> None:
        """Keep with the run what its data alone would not give back: the vocabulary."""
        save_vocabularies((self.data.vocabulary, self.data.vocabulary), workdir)

    @staticmethod
    def saved(workdir: Path) -> bool:
        """Whether all that `save` keeps is there."""
        return has_vocabularies(workdir)

    def notes(self, batches: Lanes | Turns | Apart) -> list[str]:
        """What a person should know about the data before training: sizes, unknown tokens, how they
        are read, texts left out.
        """
        return [self.data.note(split) for split in self.data.ids] + (
            [f"train: {batches.note}"] if batches.note else []
        )

    def size(self, split: str) -> int:
        """The number of texts."""
        return len(self.data.texts[split])

    def counts(self, split: str) -> dict[str, int]:
        """The number of tokens, ends of texts counted, and of those that the tokens before them
        determine, where the source tells.
        """
        marks = self.data.recalled.get(split)
        recalled = {} if marks is None else {"tokens that can be recalled": int(marks.ids.sum())}
        return {"tokens": self.data.counts(split)["tokens"], **recalled}

    def score(self, params: Any, split: str) -> tuple[dict[str, Any], list[str]]:
        """The share of unknown tokens, beyond `evaluate`, and no texts."""
        counts = self.data.counts(split)
        return {"unknown": counts["unknown"] / counts["tokens"]}, []

    def items(self, params: Any, split: str, outputs: Sequence[str]) -> Items | None:
        """A row for every text, its end counted; None of a single text. What is read before a text
        of a stream is not drawn with it.
        """
        texts = len(self.data.texts[split])
        if texts < 2:
            return None
        state, sums = (
            self._before(self._settings.batch),
            collections.defaultdict[str, np.ndarray](lambda: np.zeros(texts + 1)),
        )
        for batch in self._in_order(split, numbered=True):
            numbers = batch.pop("text").reshape(-1)
            each, state = self._score_each(params, batch, state)
            for name, one in jax.device_get(each).items():
                sums[name] += np.bincount(numbers, one.reshape(-1), texts + 1)
        totals = {name: one[1:] for name, one in sums.items()}  # 0 is padding
        nats, right = (
            np.stack([totals[name], totals["tokens"]], axis=1) for name in ("loss", "correct")
        )
        rows = {
            "loss": ("ratio", nats),
            "perplexity": ("perplexity", nats),
            "accuracy": ("ratio", right),
        }
        if self.data.spelt(split):
            rows["bits_per_character"] = (
                "bits",
                np.stack([totals["loss"], self.data.characters(split)], axis=1),
            )
        if "asked" in totals:
            rows["recall"] = "ratio", np.stack([totals["recalled"], totals["asked"]], axis=1)
        return Items.of(rows)

    def longer_than(self, limit: int, lines: Sequence[str]) -> list[int]:
        """Which of the lines have more than `limit` tokens, EOS counted; where texts are read in
        pieces length is no matter.
        """
        return (
            [i for i, ids in enumerate(self._read(lines)) if len(ids) > limit]
            if self._apart
            else []
        )

    def respond(self, params: Any, lines: Sequence[str]) -> list[list[Response]]:
        """Each line as it is, and what the system writes after it up to the end of the line, by the
        method of `config.decoding`.
        """
        prompts = self._read(lines)
        batches = evaluation_batches(
            Examples(prompts, prompts),
            size=self._settings.batch,
            buckets=widths(self.config.batch.max_length),
        )
        found = self._decoder(params, batches) if prompts else []
        continued, every = self.data.vocabulary.continued, zip(lines, prompts, found, strict=True)
        return [
            [Response(continued(line, prompt[1:], one.tokens), one.score) for one in best]
            for line, prompt, best in every
        ]

    def pictured(self, split: str, number: int) -> list[Example]:
        """The beginnings of the first texts that are more than their end, as far as a picture
        shows them.
        """
        texts = itertools.islice((one for one in self.data.texts[split] if one.strip()), number)
        return [
            (self.data.vocabulary.decode(ids[:PICTURED]), None)
            for ids in self.data.vocabulary.encode_all(texts)
        ]

    def completed(self, params: Any, examples: Sequence[Example]) -> list[Example]:
        """The examples as they are; a second text is an error."""
        if seconds := [second for _, second in examples if second is not None]:
            raise UserError(
                f"a language model reads one text; leave out the second, {seconds[0]!r}"
            )
        return list(examples)

    def maps(
        self, params: Any, source: str, target: str | None = None
    ) -> tuple[dict[str, AttentionMap], dict[str, list[str]]]:
        """Every attention map of a text that is read from its beginning, [H,T,T] arrays, and the
        tokens that are read ("source").
        """
        (ids,) = self._read([source])
        _, collected = self.system.apply({"params": params}, jnp.asarray(ids)[None], mutable=[MAPS])
        found = jax.device_get(self.system.maps(collected.get(MAPS, {})))  # type: ignore[union-attr]  # none without attention
        names = {
            "source": self.data.vocabulary.tokens(ids),
            "target": self.data.vocabulary.tokens([*ids[1:], EOS]),
        }
        return {
            name: one.replace(weights=np.asarray(one.weights[0])) for name, one in found.items()
        }, names

    def _read(self, lines: Sequence[str]) -> list[np.ndarray]:
        """What is read of each text: what stands before the first token of all, and its ids."""
        return [
            np.append(np.int32(FIRST[self.config.batch.texts]), ids)
            for ids in self.data.vocabulary.encode_all(lines)
        ]

    def _in_order(self, split: str, numbered: bool = False) -> Iterator[Batch]:
        """A split in batches of `decoding.batch` rows, in the order in which they are to be read;
        `numbered`: with "text" [B,T], from 1.
        """
        ids, size, beside = self.data.ids[split], self._settings.batch, {}
        if split in self.data.recalled:
            beside["recalled"] = self.data.recalled[split]
        if numbered:
            beside["text"] = Packed(
                np.full(length, number) for number, length in enumerate(ids.lengths, start=1)
            )
        if not self._apart:
            every = lanes(
                self.config.batch.texts,
                ids,
                size=size,
                length=self.config.batch.max_length,
                beside=beside,
            )
            yield from map(every, range(every.batches_per_epoch))
            return
        for rows, batch in evaluation_batches(
            begun(ids), size=size, buckets=widths(self.config.batch.max_length)
        ):
            width = batch["target"].shape[1]
            yield {
                **batch,
                "fresh": np.ones(size, np.int32),
                **{name: one.block(rows, width) for name, one in beside.items()},
            }

    def _passed(
        self, split: str, score: Callable[[Batch, Any], tuple[Any, Any]], state: Any
    ) -> list[Any]:
        """The sums of all batches of a split, each scored with the state that the one before
        left.
        """
        found = []
        for batch in self._in_order(split):
            sums, state = score(batch, state)
            found.append(sums)
        return jax.device_get(found)

    def _before(self, rows: int) -> Any:
        """A state of these shapes where there are lanes; what is in it is never read, for every row
        of a first batch is fresh.
        """
        if self._apart:
            return None
        params = jax.eval_shape(self.init, jax.random.key(0))
        shapes = jax.eval_shape(
            lambda one: self.system.apply({"params": one}, rows, method="start"), params
        )
        return jax.tree.map(lambda one: jnp.zeros(one.shape, one.dtype), shapes)

    def _sums(
        self,
        params: Any,
        batch: Batch,
        remembered: Any,
        *,
        smoothing: Any,
        rngs: dict[str, jax.Array] | None = None,
    ) -> tuple[dict[str, jax.Array], Any]:
        """Sums over the tokens of a batch, "loss", "tokens", "correct" (and of those that can be
        recalled), and the state after it.
        """
        each, after = self._each(params, batch, remembered, smoothing=smoothing, rngs=rngs)
        return {name: one.sum() for name, one in each.items()}, after

    def _each(
        self,
        params: Any,
        batch: Batch,
        remembered: Any,
        *,
        smoothing: Any = 0.0,
        rngs: dict[str, jax.Array] | None = None,
    ) -> tuple[dict[str, jax.Array], Any]:
        """The same of every token, arrays [B,T], 0 at padding."""
        apply = functools.partial(self.system.apply, {"params": params}, rngs=rngs)
        source, target = jnp.asarray(batch["source"]), jnp.asarray(batch["target"])
        state = apply(len(source), method="start")
        if remembered is not None:
            state = jax.tree.map(
                functools.partial(_fresh_or, jnp.asarray(batch["fresh"]) != 0), state, remembered
            )
        logits, after = apply(state, source, method="read")
        real, logits = target != PAD, logits.astype(jnp.float32)
        losses = jnp.where(real, cross_entropy(logits, target, smoothing), 0.0)
        guessed = largest(logits.reshape(-1, logits.shape[-1]), 1)[1].reshape(
            target.shape
        )  # argmax, in a tenth of the time
        correct = (guessed == target) & real
        each = {"loss": losses, "tokens": real, "correct": correct}
        if "recalled" in batch:
            asked = jnp.asarray(batch["recalled"]) != 0
            each |= {"asked": asked, "recalled": correct & asked}
        return each, None if remembered is None else after

    def _averaged(self, split: str, sums: list[dict[str, Any]]) -> dict[str, float]:
        """The scores of `evaluate`, from the sums of all batches."""
        totals = {name: sum(float(one[name]) for one in sums) for name in sums[0]}
        loss, accuracy = totals["loss"] / totals["tokens"], totals["correct"] / totals["tokens"]
        scores = {"loss": loss, "perplexity": float(np.exp(loss)), "accuracy": accuracy}
        if self.data.spelt(split):
            scores["bits_per_character"] = (
                totals["loss"] / math.log(2) / self.data.counts(split)["characters"]
            )
        return {
            **scores,
            **(
                {"recall": totals["recalled"] / max(totals["asked"], 1.0)}
                if "asked" in totals
                else {}
            ),
        }

    @functools.cached_property
    def _decoder(self) -> Decoder:
        return continuing(self.system, self._settings)


def _fresh_or(fresh: jax.Array, start: jax.Array, remembered: jax.Array) -> jax.Array:
    """Rows [B,...] of `start` where a text begins, what is remembered elsewhere, in the precision
    of `start`.
    """
    return jnp.where(
        fresh.reshape(-1, *[1] * (start.ndim - 1)), start, remembered.astype(start.dtype)
    )
