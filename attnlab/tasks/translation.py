"""Translation: sentence pairs, a sequence-to-sequence system, cross-entropy, and scores by tokens
and by text.

Axis letters: B batch, S source length, T target length, V target vocabulary.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from attnlab.attention.protocol import MAPS
from attnlab.config import nodes
from attnlab.data import corpus
from attnlab.data.batching import Batch, TrainBatches, evaluation_batches
from attnlab.data.vocabulary import BOS, PAD, Vocabulary
from attnlab.decoding import Decoded, Decoder, Functions, corpus_scores, validate
from attnlab.decoding.metrics import sentence_counts
from attnlab.errors import UserError
from attnlab.records.items import Items
from attnlab.records.measures import Measure, share
from attnlab.systems.protocol import AttentionMap, Seq2Seq
from attnlab.tasks.auxiliary import Auxiliary
from attnlab.tasks.models import (
    check_bytes,
    check_output_bias,
    cross_entropy,
    shapes_of,
    system_factory,
    with_output_bias,
)
from attnlab.tasks.protocol import Example, Response

Vocabularies = tuple[Vocabulary, Vocabulary]
TEACHER_FORCED: Mapping[str, Measure] = {
    "loss": Measure("min", low=0.0),
    "perplexity": Measure("min", low=1.0),
    "accuracy": share("tokens"),
}
"""The scores of `Translation.evaluate`."""


def build_system(
    config: ConfigDict, source_vocabulary: int, target_vocabulary: int
) -> tuple[Seq2Seq, Auxiliary]:
    """The system of a config, and what is added to its loss; every attention slot is checked
    against what its mechanism declares.

    Raises:
      UserError: a mechanism cannot do what the system asks of it, sizes do not fit (an indivisible
        width, say), a loss has a weight that nobody hands out, hops have none for the penalty that
        keeps them apart, or there is no output bias where one is to be set.
    """
    factory = system_factory(config, Seq2Seq)
    system: Seq2Seq = factory(
        source_vocabulary=source_vocabulary, target_vocabulary=target_vocabulary
    )
    ids = jax.ShapeDtypeStruct(
        (1, config.batch.max_length), jnp.int32
    )  # the longest there is: what has an end must reach as far
    handed_out = shapes_of(system, ids, ids)
    check_output_bias(config, handed_out["params"], target_vocabulary)
    return system, Auxiliary(type(system), handed_out, config, config.batch.max_length)


class Translation:
    """Translation: pairs of texts, scored token by token and as free-running text; see
    `attnlab.tasks.protocol.Task`.

    Attributes:
      config: see `configs/translation.py`.
      data: the pairs and their ids.
      system: the model.
    """

    systems = Seq2Seq
    schema: type[nodes.Run] = nodes.Translation
    reads = "pairs"
    measures: Mapping[str, Measure] = {
        **TEACHER_FORCED,
        **dict.fromkeys(("bleu", "chrf"), Measure("max", low=0.0, high=100.0)),
        "exact": share("sentences"),
    }
    evaluated = ("loss", "perplexity", "accuracy")
    units: Mapping[str, str] = {
        "loss": "nats per target token",
        "accuracy": "next token, teacher-forced",
        "exact": "share of sentences right as a whole",
    }
    examples = "sentences"
    outputs = "translations.txt"

    def __init__(self, config: ConfigDict, data: corpus.Corpus) -> None:
        self.config = config
        self.data = data
        self.vocabularies: Vocabularies = (data.source_vocabulary, data.target_vocabulary)
        self.system, self.auxiliary = build_system(config, *(one.size for one in self.vocabularies))
        self.carried, self.follow = self.auxiliary.carried, self.auxiliary.follow
        self._token_sums = jax.jit(functools.partial(self._sums, smoothing=0.0))
        self._token_sums_of_all = jax.jit(
            jax.vmap(functools.partial(self._sums, smoothing=0.0), in_axes=(0, None))
        )

    @staticmethod
    def check(config: ConfigDict) -> None:
        """Build the system and the decoding settings with stand-in vocabularies, so that a bad
        config fails before data is read.
        """
        corpus.VocabularySettings.read(config.vocabulary)
        sizes = (8, 8) if config.vocabulary.shared else (8, 9)
        system, _ = build_system(config, *sizes)
        decoding = validate(config.decoding, weights=bool(system.needs))
        decoding.check_room(config.batch.max_length)
        longest = decoding.limit(config.batch.max_length)

        def begun(
            key: jax.Array, source: jax.Array
        ) -> Any:  # what has an end must reach as far as decoding may go
            params = system.init(key, source, source)
            return system.apply(
                params, system.apply(params, source, method="encode"), longest, method="start"
            )

        state = jax.eval_shape(
            begun, jax.random.key(0), jax.ShapeDtypeStruct((1, config.batch.max_length), jnp.int32)
        )
        check_bytes(
            state,
            f"what it keeps for config.decoding, {decoding.rows} rows of {longest:,} tokens,",
            decoding.rows,
        )

    @classmethod
    def load(cls, config: ConfigDict, workdir: Path | None, splits: Sequence[str]) -> Translation:
        """The task with its data read; vocabularies come from `workdir`, or without one from the
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
        return cls(config, corpus.load(config.data, config.vocabulary, workdir, splits))

    # --- what the training loop asks for ---

    def init(self, key: jax.Array) -> Any:
        """Fresh float32 parameters; for the output bias see `with_output_bias`."""
        ids = jnp.ones((1, 2), jnp.int32)
        params = self.system.init(key, ids, ids)["params"]
        if "train" not in self.data.examples:
            return params
        return with_output_bias(
            self.config,
            params,
            self.data.examples["train"].packed[1].ids,
            self.vocabularies[1].size,
        )

    def loss(
        self, params: Any, batch: Batch, key: jax.Array, carried: Any = None, smoothing: Any = None
    ) -> tuple[jax.Array, dict[str, Any]]:
        """Summed cross-entropy with label smoothing and dropout; sums "tokens" and "correct" beside
        it.

        With auxiliary terms (see `auxiliary`) these are added to it, and stand beside it with
        "cross_entropy" under their own names. `smoothing` replaces the configured rate; it may be
        an array.
        """
        smoothing = self.config.training.label_smoothing if smoothing is None else smoothing
        rngs = {"dropout": key, "sample": jax.random.fold_in(key, 1)}
        if not self.auxiliary.collections:
            sums = self._sums(params, batch, smoothing, rngs)
            return sums.pop("loss"), sums
        source, target = jnp.asarray(batch["source"]), jnp.asarray(batch["target"])
        watched = self.auxiliary.collections
        logits, collected = self.system.apply(
            {"params": params}, source, _shifted(target), rngs=rngs, mutable=watched
        )
        sums, likelihood = (
            _summed(logits, target, smoothing),
            -cross_entropy(logits.astype(jnp.float32), target, 0.0),
        )
        added, terms = self.auxiliary(collected, source != PAD, target != PAD, likelihood, carried)
        return sums["loss"] + added, {"cross_entropy": sums.pop("loss"), **sums, **terms}

    def weight(self, batch: Batch) -> jax.Array:
        """The number of target tokens, EOS counted, or of sentences (`training.per="sentence"`, as
        in the older papers).
        """
        real = jnp.asarray(batch["target"]) != PAD
        return (
            (real if self.config.training.per == "token" else real.any(axis=1))
            .sum()
            .astype(jnp.float32)
        )

    def batches(self, multiple: int, seed: int | None = None) -> TrainBatches:
        """The training batches of this process, in the order of the configured seed or another
        one.
        """
        shared = {"process_index": jax.process_index(), "process_count": jax.process_count()}
        seed = self.config.seed if seed is None else seed
        return TrainBatches(
            self.data.examples["train"], **self.config.batch, seed=seed, multiple=multiple, **shared
        )

    def evaluate(self, params: Any, split: str) -> dict[str, float]:
        """Teacher-forced scores: "loss" (nats per target token, no smoothing), "perplexity",
        "accuracy" (of the next token).
        """
        return _averaged(
            [jax.device_get(self._token_sums(params, batch)) for _, batch in self._in_order(split)]
        )

    def evaluate_stacked(self, params: Any, split: str) -> list[dict[str, float]]:
        """`evaluate` for each of several models, whose parameters have a leading axis."""
        sums = [
            jax.device_get(self._token_sums_of_all(params, batch))
            for _, batch in self._in_order(split)
        ]
        return [
            _averaged([jax.tree.map(lambda x, i=i: x[i], one) for one in sums])
            for i in range(len(sums[0]["loss"]))
        ]

    def save(self, workdir: Path) -> None:
        """Keep with the run what its data alone would not give back: the vocabularies."""
        corpus.save_vocabularies(self.vocabularies, workdir)

    @staticmethod
    def saved(workdir: Path) -> bool:
        """Whether all that `save` keeps is there."""
        return corpus.has_vocabularies(workdir)

    def notes(self, batches: TrainBatches) -> list[str]:
        """What a person should know about the data before training: sizes, unknown tokens, pairs
        left out.
        """
        lines = []
        for split in self.data.examples:
            counts = self.data.counts(split)
            sides = (
                f"{side} {counts[f'{side}_tokens']:,} tokens ({counts[f'{side}_unknown']:,}"
                " unknown)"
                for side in ("source", "target")
            )
            lines.append(f"{split}: {counts['pairs']:,} pairs, {', '.join(sides)}")
        if batches.left_out:
            limit = self.config.batch.max_length
            lines.append(
                f"train: {batches.left_out:,} pairs longer than batch.max_length={limit} tokens are"
                " left out, none is cut"
            )
        return lines

    # --- text ---

    def size(self, split: str) -> int:
        """The number of sentence pairs."""
        return len(self.data.pairs[split])

    def counts(self, split: str) -> dict[str, int]:
        """The number of target tokens, EOS counted."""
        return {"tokens": self.data.counts(split)["target_tokens"]}

    def longer_than(self, limit: int, lines: Sequence[str]) -> list[int]:
        """Which of the source texts have more than `limit` tokens, EOS counted."""
        return [
            i
            for i, ids in enumerate(self.vocabularies[0].encode_all(lines))
            if len(ids) + 1 > limit
        ]

    def translate(
        self, params: Any, sources: Sequence[str], *, alignment: bool = False
    ) -> list[list[Decoded]]:
        """The hypotheses of each source text, best first, by the method of `config.decoding`;
        `alignment`: with weights, if it attends.
        """
        examples = corpus.encode(self.vocabularies, [(text, "") for text in sources])
        batches = evaluation_batches(
            examples, size=validate(self.config.decoding).batch, buckets=self.config.batch.buckets
        )
        return self._decoder(alignment)(params, batches)

    def log_probs(self, params: Any, pairs: Sequence[corpus.Pair]) -> list[float]:
        """log P(target | source) of each pair, in nats, its end counted: what Cho et al. 2014 score
        the phrases of a table by.
        """
        if not pairs:
            return []
        batches = evaluation_batches(
            corpus.encode(self.vocabularies, pairs),
            size=validate(self.config.decoding).batch,
            buckets=self.config.batch.buckets,
        )
        return [-loss for loss in self._by_row(params, batches)["loss"].tolist()]

    def text(self, hypothesis: Decoded) -> str:
        """A hypothesis as text."""
        return self.vocabularies[1].decode(hypothesis.tokens)

    def respond(self, params: Any, lines: Sequence[str]) -> list[list[Response]]:
        """The translations of each line, best first, as many as `decoding.n_best`."""
        return [
            [Response(self.text(one), one.score) for one in best]
            for best in self.translate(params, lines)
        ]

    def score(self, params: Any, split: str) -> tuple[dict[str, Any], list[str]]:
        """Free-running scores of a split, BLEU, chrF (with their signatures) and the share of exact
        matches, and the translations.
        """
        hypotheses = [
            self.text(best[0])
            for best in self.translate(params, [source for source, _ in self.data.pairs[split]])
        ]
        references = [
            self.vocabularies[1].normalize(target) for _, target in self.data.pairs[split]
        ]
        return (
            corpus_scores(hypotheses, references, lowercase=self.config.vocabulary.lowercase),
            hypotheses,
        )

    def items(self, params: Any, split: str, outputs: Sequence[str]) -> Items:
        """A row for every sentence: its tokens, teacher-forced, and its n-grams."""
        references = [
            self.vocabularies[1].normalize(target) for _, target in self.data.pairs[split]
        ]
        counted = sentence_counts(outputs, references, lowercase=self.config.vocabulary.lowercase)
        return Items.of({**self.teacher_forced(params, split), **counted})

    def teacher_forced(self, params: Any, split: str) -> dict[str, tuple[str, np.ndarray]]:
        """Rule and rows of the scores of `evaluate`, see `attnlab.records.items`: [N,2], a row for
        every pair.
        """
        sums = self._by_row(params, self._in_order(split))
        nats, right = (
            np.stack([sums[name], sums["tokens"]], axis=1) for name in ("loss", "correct")
        )
        return {
            "loss": ("ratio", nats),
            "perplexity": ("perplexity", nats),
            "accuracy": ("ratio", right),
        }

    def pictured(self, split: str, number: int) -> list[Example]:
        """The first pairs of a split."""
        return list(self.data.pairs[split][:number])

    def completed(self, params: Any, examples: Sequence[Example]) -> list[Example]:
        """With its own translation where there is none."""
        own = iter(
            self.translate(params, [source for source, target in examples if target is None])
        )
        return [
            (source, self.text(next(own)[0]) if target is None else target)
            for source, target in examples
        ]

    def maps(
        self, params: Any, source: str, target: str | None
    ) -> tuple[dict[str, AttentionMap], dict[str, list[str]]]:
        """Every attention map of one pair, teacher-forced, and the tokens of the sequences that the
        maps are between.

        Returns:
          Maps by name, [H,Tq,Tk], and tokens by sequence: "source", "target" (what a step
          predicts), "target_in" (what it reads).
        """
        assert target is not None
        example = corpus.encode(self.vocabularies, [(source, target)])
        ids = {
            side: np.asarray(packed[0])[None]
            for side, packed in zip(("source", "target"), example.packed, strict=True)
        }
        ids["target_in"] = np.asarray(_shifted(ids["target"]))
        _, collected = self.system.apply(
            {"params": params}, ids["source"], ids["target_in"], mutable=[MAPS]
        )
        found = jax.device_get(self.system.maps(collected.get(MAPS, {})))  # type: ignore[union-attr]  # none without attention
        names = {
            side: self.vocabularies[side != "source"].tokens(row[0]) for side, row in ids.items()
        }
        return {
            name: one.replace(weights=np.asarray(one.weights[0])) for name, one in found.items()
        }, names

    def _in_order(self, split: str) -> list[tuple[np.ndarray, Batch]]:
        return evaluation_batches(
            self.data.examples[split],
            size=validate(self.config.decoding).batch,
            buckets=self.config.batch.buckets,
        )

    @functools.cache  # noqa: B019 - the task lives as long as the run; keeps one compiled program per batch shape
    def _decoder(self, alignment: bool) -> Decoder:
        attends = bool(self.system.needs)
        settings = validate(self.config.decoding, weights=attends)
        alignment = alignment and attends
        watched = [MAPS] if alignment or (settings.coverage and attends) else []

        def bind(params: Any) -> Functions:
            call = functools.partial(self.system.apply, {"params": params})

            def step(
                state: Any, memory: Any, tokens: jax.Array
            ) -> tuple[jax.Array, Any, jax.Array | None]:
                if not watched:
                    return *call(state, memory, tokens, method="step"), None
                (logits, state), collected = call(
                    state, memory, tokens, method="step", mutable=watched
                )
                return logits, state, self.system.alignment(self.system.maps(collected[MAPS]))[:, 0]

            return Functions(
                functools.partial(call, method="encode"),
                functools.partial(call, method="start"),
                step,
            )

        return Decoder(bind, settings, alignment=alignment)

    def _by_row(
        self, params: Any, batches: Sequence[tuple[np.ndarray, Batch]]
    ) -> dict[str, np.ndarray]:
        """The sums of `_summed` for each of N pairs, [N]; the batches have all of them."""
        places = np.concatenate([rows for rows, _ in batches])
        sums = [jax.device_get(self._row_sums(params, batch)) for _, batch in batches]
        order = np.argsort(places, kind="stable")[
            (places < 0).sum() :
        ]  # rows of padding stand at -1
        return {name: np.concatenate([one[name] for one in sums])[order] for name in sums[0]}

    @functools.cached_property
    def _row_sums(self) -> Any:
        """The program of the sums of each row. Apart from that of `evaluate`: sums in another order
        would be other numbers.
        """
        return jax.jit(functools.partial(self._sums, smoothing=0.0, axis=1))

    def _sums(
        self,
        params: Any,
        batch: Batch,
        smoothing: Any,
        rngs: dict[str, jax.Array] | None = None,
        axis: int | None = None,
    ) -> dict[str, jax.Array]:
        """Sums over the target tokens of a batch: "loss", "tokens", "correct"; with axis 1 of
        each row [B].
        """
        target = jnp.asarray(batch["target"])
        return _summed(
            self.system.apply({"params": params}, batch["source"], _shifted(target), rngs=rngs),
            target,
            smoothing,
            axis,
        )


def _averaged(sums: list[dict[str, Any]]) -> dict[str, float]:
    """The scores of `Translation.evaluate`, from the sums of all batches."""
    totals: dict[str, float] = {"loss": 0.0, "tokens": 0.0, "correct": 0.0}
    for one in sums:
        totals = {name: totals[name] + float(one[name]) for name in totals}
    loss = totals["loss"] / totals["tokens"]
    return {
        "loss": loss,
        "perplexity": float(np.exp(loss)),
        "accuracy": totals["correct"] / totals["tokens"],
    }


def _summed(
    logits: Any, target: jax.Array, smoothing: Any, axis: int | None = None
) -> dict[str, jax.Array]:
    """Of logits [B,T,V]: the sums of `Translation._sums`."""
    real = target != PAD
    losses = cross_entropy(logits.astype(jnp.float32), target, smoothing)
    correct = (logits.argmax(axis=-1) == target) & real
    return {
        "loss": jnp.where(real, losses, 0.0).sum(axis),
        "tokens": real.sum(axis),
        "correct": correct.sum(axis),
    }


def _shifted(target: Any) -> jax.Array:
    """Decoder input: BOS, then all but the last of target [B,T]."""
    return jnp.pad(jnp.asarray(target), ((0, 0), (1, 0)), constant_values=BOS)[:, :-1]
