"""Language modelling: texts, a system that predicts every token from those before it,
cross-entropy, and perplexity.

`batch.texts` says how texts are read. "joined": all of them are one stream in which the end of a
text is a token; it is cut into `batch.size` lanes, and what the model knows after a step is where
it goes on in the next, without a gradient between steps (truncated back-propagation). "in_turn":
each lane reads texts one after another in this way, and knows nothing at the beginning of each.
"apart": every text is read as a whole; for longer ones than `max_length` see `batch.longer`.
"packed": rows of `max_length` tokens are cut from the stream, and texts that share a row do not see
each other; the rows are shuffled. "crops": rows begin anywhere in the stream (`data/blocks.py`) and are read from nothing. A
split is scored in the same way (crops in turn), in `decoding.batch` lanes if joined: one is exact,
more are faster, each begins from nothing.

Axis letters: B batch, T length, V vocabulary.
"""

import collections
import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.data import text
from attnlab.data.batching import evaluation_batches
from attnlab.data.blocks import Blocks, Crops
from attnlab.data.columns import IDS, Declared, Examples, Packed
from attnlab.data.columns import Batch as HostBatch
from attnlab.data.streams import Apart, Lanes, Turns, first_of, lanes, shifted_texts, widths
from attnlab.data.vocabulary import TOKENIZER
from attnlab.decoding.generate import Decoder
from attnlab.decoding.rows import evenly_spaced
from attnlab.decoding.settings import validate
from attnlab.errors import UserError
from attnlab.records.items import Items
from attnlab.records.measures import VOCABULARY, Measure, share
from attnlab.systems.protocol import LanguageModel
from attnlab.tasks import reading, schemas
from attnlab.tasks.models import chosen_weights, shapes_of, system_factory
from attnlab.tasks.protocol import Numbers, Response, Responses, Scores, Sides, TextExample, Totals
from attnlab.tasks.tokens import RunningTextTask, check_output_bias
from attnlab.training.step import Batch, Params, Sums, Tree


def build_system(
    config: schemas.LanguageModelling, vocabulary: int, pad_id: int = 0
) -> LanguageModel:
    """Builds the language model of a config for a vocabulary of this size; raises `UserError` if it
    cannot read and write texts as the config says.

    Raises:
      UserError: another kind of system, a mechanism that does not fit or samples, a loss without
        a weight, rows beyond the last position, no output bias where one is to be set.
    """
    sizes = {"vocabulary": vocabulary, "pad_id": pad_id}
    system: LanguageModel = system_factory(config, LanguageModel)(**sizes)
    shapes = shapes_of(system, jax.ShapeDtypeStruct((1, config.batch.max_length), jnp.int32))
    reading.penalties(config, shapes)
    if config.batch.texts == "packed":
        reading.check_packs(config, system, shapes["params"])
    check_output_bias(config, shapes["params"], vocabulary)
    reading.check_pieces(system, config.training.logits_at_once)
    return system


class LanguageModelling(
    reading.RowsApart, RunningTextTask[schemas.LanguageModelling, LanguageModel]
):
    """Language modelling: every token of a text from those before it; see `tasks.base.Task`.

    Attributes:
      config: see `configs/language_modelling.py`.
      data: the texts and their ids.
      system: the model.
    """

    systems: ClassVar[type[LanguageModel]] = LanguageModel
    schema = schemas.LanguageModelling
    loads = text.Texts
    columns: ClassVar[Mapping[str, Declared]] = {
        "source": IDS,
        "target": IDS,
        "fresh": Declared("int32"),
        "recalled": Declared("int32", ("T",), optional=True),
        "segments": Declared("int32", ("T",), optional=True),
    }
    inputs = ("source",)
    measures: Mapping[str, Measure | str] = {
        "loss": Measure(
            "min", 0.0, depends=(VOCABULARY,), unit="nats per token, ends of texts are tokens"
        ),
        "perplexity": Measure("min", 1.0, depends=(VOCABULARY,), unit="per token"),
        "bits_per_character": Measure("min", low=0.0, unit="ends of texts are characters"),
        "accuracy": share("tokens", unit="next token", depends=(VOCABULARY,)),
        "recall": share(
            "tokens that can be recalled",
            unit="of the tokens that those before them determine",
            depends=(VOCABULARY,),
        ),
    }
    """Of the class, all there may be; of an object, those its data can give: `recall` where the
    source tells which tokens those before them determine, `bits_per_character` where no word is
    unknown, for such a word costs little and has as many characters as any."""
    evaluated: ClassVar[Sequence[str]] = tuple(measures)
    units: ClassVar[Mapping[str, str]] = {"unknown": "share of tokens that the vocabulary lacks"}
    alone = "a language model reads one text"

    def __init__(self, config: schemas.LanguageModelling, data: text.Texts) -> None:
        """Builds the system, the measures that the data can give, and programs of scores."""
        self.special = data.vocabulary.special
        super().__init__(config, data, build_system(config, data.vocabulary.size, self.special.pad))
        self.penalties = {name: weight for name, weight in config.loss_weights.items() if weight}
        missing = {
            "recall": not data.recalled,
            "bits_per_character": any(not data.spelt(split) for split in data.ids),
        }
        self.measures = {
            name: way for name, way in type(self).measures.items() if not missing.get(name)
        }
        self._apart = config.batch.texts == "apart"
        self._window = config.batch.max_length if config.batch.longer == "windows" else None
        self._settings = validate(config.decoding, weights=False)
        self.at_once = self._settings.batch
        score = functools.partial(self._read, smoothing=0.0)
        self._score_each = self.jit(self._of_tokens)
        tokenizer = data.vocabulary.settings["kind"] == TOKENIZER
        adopted = tokenizer and config.pretrained.path is not None  # BOS, as `transformers` has it
        self.first_id = first_of("apart" if adopted else config.batch.texts, self.special)
        self._score = self.jit(score)
        self._score_all = jax.jit(jax.vmap(score, in_axes=(0, None, 0)))

    @classmethod
    def check(cls, config: schemas.LanguageModelling) -> None:
        """Raises `UserError` for a bad config before data is read, by a stand-in vocabulary."""
        build_system(config, 8)
        if config.training.evaluate_rows and config.checkpoint.by == "bits_per_character":
            raise UserError(
                f"config.training.evaluate_rows={config.training.evaluate_rows}: bits_per_character,"
                " which chooses the checkpoint, needs all rows; set it to 0, or checkpoint.by=loss"
            )
        validate(config.decoding, weights=False).check_room(config.batch.max_length)

    # --- training ---

    def remembered(self) -> Tree:
        """Returns the first state of every lane, where there are any; see `Task.remembered`."""
        return self._first_state(self.config.batch.size)

    def loss(
        self,
        params: Params,
        batch: Batch,
        key: jax.Array,
        *,
        carried: Tree = None,
        numbers: Numbers | None = None,
        remembered: Tree = None,
    ) -> tuple[jax.Array, Sums]:
        """Returns two things: the summed cross-entropy of a batch with smoothing, dropout and
        penalties, and a dict of other sums, such as "tokens" and "correct", with the next state as
        "remembered" if `remembered` is a state; `numbers` replace those of the config.
        """
        options = {"rngs": self.rngs(key), "smoothing": self.smoothing(numbers)}
        losses = tuple(self.penalties)
        sums, state = self._read(params, batch, remembered, losses=losses, **options)
        total, sums = reading.penalised(sums, chosen_weights(self.penalties, numbers))
        return total, {**sums, **({} if remembered is None else {"remembered": state})}

    def ordered(
        self, seed: int, shared: Mapping[str, Any]
    ) -> Lanes | Turns | Apart | Blocks | Crops:
        """Returns this process's batches of training as `batch.texts` says (`shared` has its index
        and the number of processes); the seed orders all kinds but lanes.
        """
        ids, options = self.data.ids["train"], {**shared, "size": self.config.batch.size}
        longest, special = self.config.batch.max_length, self.special
        if self._apart:
            options |= {"windows": self._window is not None}
            return Apart(ids, max_length=longest, seed=seed, special=special, **options)
        options |= {"length": longest, "special": special}
        if self.config.batch.texts == "packed":
            return Blocks(ids.ids, seed=seed, **options)
        if self.config.batch.texts == "crops":
            return Crops(ids.ids, seed=seed, **options)
        return lanes(self.config.batch.texts, ids, **options)

    # --- scores ---

    def batch_sums(
        self, params: Params, split: str, rows: int = 0, stacked: bool = False
    ) -> list[Totals]:
        """Returns the sums of each batch of a split; if `rows` is not 0 of about so many rows, the
        first ones where state is carried from batch to batch, else evenly spaced; `stacked`:
        `params` are of several models.
        """
        score, state = self._score_all if stacked else self._score, self._first_state(self.at_once)
        if stacked:
            count = len(jax.tree.leaves(params)[0])
            state = jax.tree.map(lambda x: jnp.stack([x] * count), state)
        parts, count = [], -(-rows // self.at_once)
        batches = self._in_turn(split)
        for batch in (
            itertools.islice(batches, count or None)
            if state is not None
            else evenly_spaced(batches, count)
        ):
            sums, state = score(params, batch, state)
            parts.append(sums)
        fetched: list[Totals] = jax.device_get(parts)
        return fetched

    def split_totals(self, split: str) -> dict[str, int]:
        """Its characters, where every one is in its ids."""
        spelt = self.data.spelt(split)
        return {"characters": self.data.counts(split)["characters"]} if spelt else {}

    def averaged(self, totals: Totals) -> dict[str, float]:
        """Computes the scores of `measures` that the data can give, from the sums over a split;
        "loss" in nats per token, not smoothed.
        """
        scores = super().averaged(totals)
        if "characters" in totals:
            bits = totals["loss"] / math.log(2) / totals["characters"]
            scores["bits_per_character"] = float(bits)
        if "asked" in totals:
            scores["recall"] = float(totals["recalled"] / max(totals["asked"], 1.0))
        return scores

    def counts(self, split: str) -> dict[str, int]:
        """The number of tokens, ends of texts counted, and of those that the tokens before them
        determine, where the source tells.
        """
        marks = self.data.recalled.get(split)
        recalled = {} if marks is None else {"tokens that can be recalled": int(marks.ids.sum())}
        return {"tokens": self.data.counts(split)["tokens"], **recalled}

    def score(self, params: Params, split: str) -> tuple[Scores, list[str]]:
        """The share of unknown tokens, beyond `evaluate`, and no texts."""
        counts = self.data.counts(split)
        return {"unknown": counts["unknown"] / counts["tokens"]}, []

    def items(self, params: Params, split: str, outputs: Sequence[str]) -> "Items | None":
        """Returns `Items` with a row for every text, its end counted, from which scores are
        resampled, or None for a single text. What is read before a text of a stream is not drawn
        with it.
        """
        texts = self.size(split)
        if texts < 2:
            return None
        state = self._first_state(self.at_once)
        sums = collections.defaultdict[str, np.ndarray](lambda: np.zeros(texts + 1))
        for batch in self._in_turn(split, numbered=True):
            numbers = batch.pop("text").reshape(-1)
            by_token, state = self._score_each(params, batch, state)
            for name, values in jax.device_get(by_token).items():
                sums[name] += np.bincount(numbers, values.reshape(-1), texts + 1)
        totals = {name: values[1:] for name, values in sums.items()}  # 0 is padding
        rows = self.ratio_rows(totals)
        if self.data.spelt(split):
            spelt = np.stack([totals["loss"], self.data.characters(split)], axis=1)
            rows["bits_per_character"] = "bits", spelt
        if "asked" in totals:
            rows["recall"] = "ratio", np.stack([totals["recalled"], totals["asked"]], axis=1)
        return Items.of(rows)

    # --- answers and maps ---

    def examples_from_lines(self, lines: Sequence[str]) -> Examples:
        """Encodes texts to be continued as `Examples` with "source", the ids of each behind the id
        that precedes every text (a prompt has its own).
        """
        from attnlab.data.tokenizer import Prompt

        first = np.int32(self.first_id)
        encoded = zip(lines, self.data.vocabulary.encode_all(lines), strict=True)
        ids = (row if isinstance(line, Prompt) else np.append(first, row) for line, row in encoded)
        return Examples(source=Packed(ids, self.special.pad))

    def longer_than(self, limit: int, lines: Sequence[str]) -> list[int]:
        """See `Task.longer_than`; where texts are read in pieces length is no matter."""
        return super().longer_than(limit, lines) if self._apart else []

    def answers(self, params: Params, examples: Examples, lines: Sequence[str]) -> Responses:
        """Returns for each line a list of `Response`s, the best first: the line followed by what
        the system writes after it, up to an end, a stop text or the limit, by the method of
        `config.decoding`, with its score.
        """
        written, prompts = self._decoder(params, self._batched(examples)), examples.packed("source")
        return [
            [Response(self._continued(line, prompt, text.tokens), text.score) for text in best]
            for line, prompt, best in zip(lines, prompts, written, strict=True)
        ]

    def partial_answers(self, params: Params, line: str, index: int) -> Iterator[str]:
        """A line and what is written after it so far, after every token."""
        prompt = self.examples_from_lines([line]).packed("source")[0]
        for ids in self._decoder.stream(params, prompt, index):
            yield self._continued(line, prompt, ids)

    def _continued(self, line: str, prompt: np.ndarray, ids: np.ndarray) -> str:
        """Returns `line` with the text of the generated `ids` after it, cut at a stop text."""
        from attnlab.data.tokenizer import Prompt

        context = prompt if isinstance(line, Prompt) else prompt[1:]
        text = line.context if isinstance(line, Prompt) else line
        full = self.data.vocabulary.continued(text, context, ids)
        return self._settings.cut(full, start=len(text.rstrip()))

    def model_inputs(self, example: TextExample) -> tuple[list[np.ndarray], Sides]:
        """A text that is read from its beginning, and the tokens: those that are read ("source")
        and those that are predicted ("target").
        """
        inputs, sides = super().model_inputs(example)
        following = [*inputs[0][0, 1:], self.special.eos]
        return inputs, {**sides, "target": self.data.vocabulary.tokens(following)}

    def token_scores(self, params: Params, batch: Batch) -> tuple[jax.Array, jax.Array]:
        """Nats of each target of a batch that is read from its beginning, and whether the likeliest
        token was right, [B,T].
        """
        at_once = reading.room_for_logits(self.system, *batch["source"].shape)
        by_token, _ = self._score_apart(at_once)(params, batch, None)
        return by_token["loss"], by_token["correct"]

    @functools.cache  # noqa: B019 - the task lives as long as the run
    def _score_apart(self, at_once: int) -> Any:
        return self.jit(functools.partial(reading.of_tokens, self.system, at_once=at_once))

    # --- reading in pieces ---

    def _batched(self, examples: Examples) -> list[tuple[np.ndarray, HostBatch]]:
        """Whole texts in batches, in widths of their own."""
        longest = self.config.batch.max_length
        return evaluation_batches(examples, size=self.at_once, buckets=widths(longest))

    def _in_turn(self, split: str, numbered: bool = False) -> Iterator[HostBatch]:
        """Yields a split in batches of `decoding.batch` rows, in the order in which they must be
        read; `numbered`: with "text" [B,T], the number of each token's text from 1.
        """
        ids, extra = self.data.ids[split], {}
        if split in self.data.recalled:
            extra["recalled"] = self.data.recalled[split]
        if numbered:
            extra["text"] = Packed(
                np.full(length, number) for number, length in enumerate(ids.lengths, start=1)
            )
        if not self._apart:
            node = self.config.batch
            options: dict[str, Any] = {"size": self.at_once, "length": node.max_length}
            batches = lanes(node.texts, ids, extra=extra, special=self.special, **options)
            yield from map(batches, range(batches.batches_per_epoch))
            return
        if self._window is not None:
            extra = {name: column.windows(self._window) for name, column in extra.items()}
        for rows, batch in self._batched(shifted_texts(ids, self.special, self._window)):
            width = batch["target"].shape[1]
            yield {
                **batch,
                "fresh": np.ones(len(rows), np.int32),
                **{name: column.block(rows, width) for name, column in extra.items()},
            }

    def _first_state(self, rows: int) -> Tree:
        """A state of so many rows where there are lanes."""
        if self.config.batch.texts in ("apart", "packed", "crops") or not self.system.carries:
            return None
        return reading.state_before(self.system, self.shapes, rows)

    def _of_tokens(self, params: Params, batch: Batch, state: Tree, **options: Any) -> Any:
        """See `reading.of_tokens`; of the system that the task has when it is called."""
        options |= {"at_once": self.config.training.logits_at_once}
        return reading.of_tokens(self.system, params, batch, state, **options)

    def _read(self, *inputs: Any, **options: Any) -> tuple[Sums, Tree]:
        """The sums of `reading.of_tokens` of these inputs, and the state after a batch."""
        by_token, state = self._of_tokens(*inputs, **options)
        return reading.summed(by_token), state

    @functools.cached_property
    def _decoder(self) -> "Decoder":
        from attnlab.tasks.decoders import continuing, ending

        ended = ending(self._settings, self.data.vocabulary.decode)
        return continuing(self.system, self._settings, self.special, ended)
