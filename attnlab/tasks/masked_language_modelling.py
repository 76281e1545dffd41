"""Masked language modelling: some tokens of a text are hidden, and told from the rest of it.

What is hidden and how says `attnlab.data.denoising`. A row is a whole text ("apart"), or as many
tokens of texts end to end as fit in it, which do not see each other ("packed"); both begin with a
BOS, and texts end with an EOS. A split that is scored is always masked in the same way.

With "pairs" a row joins two segments, and the system also tells whether the second follows the first
(next sentence prediction, Devlin et al. 2019; see `attnlab.data.next_sentence`):

    loss = ( sum over hidden tokens of -log p + sum over rows of n_r (-log p_r) ) / sum of n_r

n_r is how many tokens of the row are hidden. Rows of one length have the same n_r, and the loss is the
sum of the two means, as in the paper; in shorter rows both count less.

Axis letters: B batch, T length, P hidden tokens of a row at most, V vocabulary.
"""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.data import text
from attnlab.data.batching import Batches, evaluation_batches
from attnlab.data.blocks import Blocks
from attnlab.data.columns import IDS, Declared, Examples, Packed
from attnlab.data.columns import Batch as HostBatch
from attnlab.data.denoising import Masked, Masking, with_bos
from attnlab.data.next_sentence import SentencePairs
from attnlab.data.streams import Apart, widths
from attnlab.data.vocabulary import OURS, Special
from attnlab.errors import UserError
from attnlab.records.measures import VOCABULARY, Measure, share
from attnlab.systems.protocol import TokenClassifier
from attnlab.tasks import schemas
from attnlab.tasks.models import built
from attnlab.tasks.protocol import Response, Responses, Smoothing, TextExample
from attnlab.tasks.reading import losses_and_hits
from attnlab.tasks.tokens import RunningTextTask, check_output_bias, cross_entropy
from attnlab.training.step import Batch, Params, Sums, Tree

MASK = "[MASK]"  # what a person types for a token that is to be told


def build_system(
    config: schemas.MaskedLanguageModelling, vocabulary: int, special: Special = OURS
) -> TokenClassifier:
    """Builds the system of a config, with an output for each id; raises `UserError` where it does
    not fit, or cannot read packed texts or pairs as the config wants.

    Raises:
      UserError: another kind of system, a mechanism that does not fit, samples or has a loss, one
        that cannot keep packed texts apart, no output bias where one is to be set.
    """
    system: TokenClassifier
    sizes = {"vocabulary": vocabulary, "outputs": vocabulary}
    ids = jax.ShapeDtypeStruct((1, 2), jnp.int32)
    system, params = built(config, TokenClassifier, special, ids, **sizes)
    check_output_bias(config, params, vocabulary)
    if config.batch.texts == "packed" and "segments" not in system.reads:
        raise UserError(
            f"config.batch.texts=packed: config.system={config.system.name} cannot keep the texts of"
            " a row apart; take apart, or the system encoder"
        )
    rows = [jax.ShapeDtypeStruct((1, config.batch.max_length), jnp.int32)]
    extra = {"segments": rows[0]} if config.batch.texts == "packed" else {}
    apply: Any = system.apply
    if config.batch.texts == "pairs":
        if not getattr(system, "next_sentence", False):
            raise UserError(
                f"config.batch.texts=pairs: config.system={config.system.name} does not tell whether"
                " a text follows another; take system=bert with system.next_sentence=true, or"
                " batch.texts=apart"
            )
        apply = functools.partial(apply, method="both")
    jax.eval_shape(apply, {"params": params}, *rows, **extra)
    return system


class MaskedLanguageModelling(RunningTextTask[schemas.MaskedLanguageModelling, TokenClassifier]):
    """Masked language modelling: hidden tokens of a text from those around them; see
    `attnlab.tasks.base.Task`.

    Attributes:
      config: see `configs/masked_language_modelling.py`.
      data: the texts and their ids.
      system: the model.
    """

    systems: ClassVar[type[TokenClassifier]] = TokenClassifier
    schema = schemas.MaskedLanguageModelling
    loads = text.Texts
    columns: ClassVar[Mapping[str, Declared]] = {
        "source": IDS,
        "target": Declared("int32", ("P",)),
        "places": Declared("int32", ("P",)),
        "segments": Declared("int32", ("T",), optional=True),
        "types": Declared("int32", ("T",), optional=True),
        "relation": Declared("int32", optional=True),
    }
    inputs = ("source",)
    measures: Mapping[str, Measure | str] = {
        "loss": Measure("min", 0.0, depends=(VOCABULARY,), unit="nats per hidden token"),
        "perplexity": Measure("min", 1.0, depends=(VOCABULARY,), unit="per hidden token"),
        "accuracy": share("hidden tokens", unit="hidden tokens right"),
        "next_sentence": share("pairs", unit="right whether the second segment follows the first"),
    }
    """Of the class, all there may be; `next_sentence` is there where rows are pairs."""
    evaluated: ClassVar[Sequence[str]] = tuple(measures)
    ratios = {"loss": ("loss", "hidden"), "accuracy": ("correct", "hidden")}
    alone = "a masked language model reads one text"
    extra_tokens: ClassVar[int] = 1

    def __init__(self, config: schemas.MaskedLanguageModelling, data: text.Texts) -> None:
        """Builds the system, the masking and the program that fills masks; "next_sentence" is a
        measure only where rows are pairs.
        """
        self.special = data.vocabulary.special
        system = build_system(config, data.vocabulary.size, self.special)
        super().__init__(config, data, system)
        self._pairs = config.batch.texts == "pairs"
        self._longest = config.batch.max_length - 1  # beside what begins the row
        self.measures = {
            name: measure
            for name, measure in type(self).measures.items()
            if self._pairs or name != "next_sentence"
        }
        if self._pairs:  # the loss is that of tokens alone
            of_pairs = {"loss": ("cross_entropy", "hidden"), "next_sentence": ("related", "pairs")}
            self.ratios = {**self.ratios, **of_pairs}
        self.masking = config.masking.call(Masking, self.special, data.vocabulary.size)
        self._mask = self.masking.mask
        self._likeliest_of = self.jit(self._likeliest)

    @classmethod
    def check(cls, config: schemas.MaskedLanguageModelling) -> None:
        """Build the system with a stand-in vocabulary, so that a bad config fails before data is
        read.
        """
        build_system(config, 8)
        if config.vocabulary.kind != "tokenizer":
            special = Special(reserved=tuple(range(config.vocabulary.reserved)))
            _ = config.masking.call(Masking, special, 8).mask

    # --- training ---

    def apply(self, params: Params, batch: Batch, **options: Any) -> Tree:
        """Computes logits [B,P,V] at the hidden tokens of a batch, or [B,T,V] at all tokens where
        it has no "places"; for pairs a tuple of these and the logits of their relation [B,2].
        """
        extra = {name: jnp.asarray(batch[name]) for name in ("segments", "types") if name in batch}
        if "relation" in batch:
            options["method"] = "both"
        places = jnp.asarray(batch["places"]) if "places" in batch else None
        if places is not None and "at" in self.system.reads:
            extra["at"], places = places, None
        logits: Tree = self.system.apply(
            {"params": params}, jnp.asarray(batch["source"]), **{**extra, **options}
        )
        return logits if places is None else jnp.take_along_axis(logits, places[..., None], axis=1)

    def summed(self, outputs: Tree, batch: Batch, smoothing: Smoothing) -> Sums:
        """Returns a dict of sums over the hidden tokens of a batch, from logits [B,P,V] (of pairs
        with those of their relation [B,2], whose loss is added once for each hidden token): "loss",
        "hidden", "correct", and "tokens", those that were read; of pairs also "cross_entropy", the
        loss of tokens alone, "pairs", how many there are, and "related", of how many the relation
        is right.
        """
        target = jnp.asarray(batch["target"])
        outputs, related = outputs if "relation" in batch else (outputs, None)
        hidden = self.real(target)
        losses, hits = losses_and_hits(outputs, jnp.where(hidden, target, 0), smoothing)
        sums: Sums = {
            "loss": jnp.where(hidden, losses, 0.0).sum(),
            "tokens": self.real(batch["source"]).sum(),
            "hidden": hidden.sum(),
            "correct": (hits & hidden).sum(),
        }
        if related is None:
            return sums
        relation, real = jnp.asarray(batch["relation"]), self.real(batch["source"]).any(axis=1)
        related = related.astype(jnp.float32)
        second = (hidden.sum(axis=1) * cross_entropy(related, relation, 0.0)).sum()
        return {
            **sums,
            "loss": sums["loss"] + second,
            "cross_entropy": sums["loss"],
            "pairs": real.sum(),
            "related": ((related.argmax(axis=-1) == relation) & real).sum(),
        }

    def ordered(self, seed: int, shared: Mapping[str, Any]) -> Batches:
        """Returns the masked training batches of this process (`shared` has its index and the
        number of processes), of whole texts, packed rows or pairs; their order and what is hidden
        follow from the seed.
        """
        ids, size = self.data.ids["train"], self.config.batch.size
        options: dict[str, Any] = {"size": size, "seed": seed, **shared}
        inner: Batches
        if self.config.batch.texts == "apart":
            options |= {"windows": self.config.batch.longer == "windows", "special": self.special}
            inner = Apart(ids, max_length=self._longest, extra_tokens=1, **options)
        else:
            inner = self._shared_rows(ids, **options)
        first = shared["process_index"] * (size // shared["process_count"])
        return Masked(inner, self.masking, seed, first)

    def _shared_rows(self, ids: Packed, **options: Any) -> SentencePairs | Blocks:
        """The rows in which texts `ids` stand side by side: pairs of segments, or packed texts."""
        options |= {"length": self._longest, "special": self.special}
        return SentencePairs(ids, **options) if self._pairs else Blocks(ids.ids, **options)

    # --- scores ---

    def split_batches(self, split: str) -> Iterator[tuple[np.ndarray, HostBatch]]:
        """Yields for each batch of a split the numbers of its rows, -1 for padding, and the masked
        batch; what is hidden depends on these numbers alone.
        """
        ids, size, longest = self.data.ids[split], self.at_once, self._longest
        batches: Iterator[tuple[np.ndarray, HostBatch]]
        if self.config.batch.texts != "apart":
            blocks = self._shared_rows(ids, size=size)
            batches = (
                (step * size + np.arange(size), blocks(step))
                for step in range(blocks.batches_per_epoch)
            )
        else:
            in_windows = self.config.batch.longer == "windows"
            texts = Examples(target=ids.windows(longest) if in_windows else ids)
            batches = iter(evaluation_batches(texts, size=size, buckets=widths(longest)))
        for rows, batch in batches:
            full = with_bos(batch, self.special)
            real = (full["source"] != self.special.pad).any(axis=1)
            yield np.where(real, rows, -1), full | self.masking(full["source"], (), rows)

    def counts(self, split: str) -> dict[str, int]:
        """Returns the number of "hidden tokens" of a split, and of "pairs" where rows are pairs."""
        pad, hidden, pairs = self.special.pad, 0, 0
        for rows, batch in self.split_batches(split):
            hidden += int((batch["target"] != pad).sum())
            pairs += int((rows >= 0).sum())
        return {"hidden tokens": hidden, **({"pairs": pairs} if self._pairs else {})}

    # --- answers and maps ---

    def examples_from_lines(self, lines: Sequence[str]) -> Examples:
        """Encodes lines in which `MASK`, or the mask as the vocabulary writes it, marks hidden
        tokens, as `Examples` with "source"; raises `UserError` for a line without a mask.

        Raises:
          UserError: a line in which nothing is hidden.
        """
        rows = [self._ids(line) for line in lines]
        for line, ids in zip(lines, rows, strict=True):
            if self._mask not in ids:
                raise UserError(
                    f"{line!r}: nothing is hidden; write {MASK} for each token that is to be told"
                    " (this model reads whole texts and cannot continue one)"
                )
        return Examples(source=Packed(rows, self.special.pad))

    def _ids(self, line: str) -> np.ndarray:
        """Returns the ids of a line between BOS and EOS, with the mask's id where the line has
        `MASK` or the vocabulary's mask.
        """
        mask = self.data.vocabulary.tokens([self._mask])[0]
        parts = line.replace(mask, MASK).split(MASK)
        ids = self.data.vocabulary.encode_all(parts)
        masks = [np.array([self._mask], np.int32)] * (len(parts) - 1)
        inner = [part for pair in itertools.zip_longest(ids, masks) for part in pair]
        ends = [[self.special.bos], *(x for x in inner if x is not None), [self.special.eos]]
        return np.concatenate(ends).astype(np.int32)

    def _likeliest(self, params: Params, source: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Computes the most probable text token (no special one) at each position of ids [B,T], and
        its log probability.
        """
        logits = self.apply(params, {"source": source}).astype(jnp.float32)
        never = {*self.special.unsayable, *self.special.ending, *self.special.reserved}
        ids = jnp.array(sorted(token for token in never if token >= 0))  # padding may have none
        chances = jax.nn.log_softmax(logits, axis=-1).at[..., ids].set(-jnp.inf)
        return chances.argmax(axis=-1), chances.max(axis=-1)

    def answers(self, params: Params, examples: Examples, lines: Sequence[str]) -> Responses:
        """Returns for each line a list of one `Response`: the line with every mask replaced by its
        most probable token, each predicted independently, and as score the sum of their log
        probabilities.
        """
        responses: Responses = [[] for _ in lines]
        longest = self.config.batch.max_length
        for rows, batch in evaluation_batches(examples, size=self.at_once, buckets=widths(longest)):
            ids, chances = jax.device_get(self._likeliest_of(params, batch["source"]))
            for row, read, best, chance in zip(rows, batch["source"], ids, chances, strict=True):
                hidden = read == self._mask
                text = self.data.vocabulary.decode(np.where(hidden, best, read))
                if row >= 0:
                    responses[row] = [Response(text, float(chance[hidden].sum()))]
        return responses

    def read_ids(self, example: TextExample) -> np.ndarray:
        """A text, in which tokens may be hidden."""
        return self._ids(example.source)
