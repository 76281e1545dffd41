"""The base of tasks that write a text for a text: pairs and a sequence-to-sequence system.

`attnlab.tasks.translation` is one such task, `attnlab.tasks.pronunciation` another; they differ in
how what is written is scored.

Axis letters: B batch, S source length, T target length, V target vocabulary, N pairs.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.data.columns import IDS, Declared, Examples
from attnlab.data.columns import Batch as HostBatch
from attnlab.data.corpus import Corpus, Pair, encode
from attnlab.data.learned import VocabularySettings
from attnlab.data.vocabulary import Vocabulary
from attnlab.decoding.generate import Decoded
from attnlab.decoding.settings import validate
from attnlab.errors import UserError
from attnlab.systems.protocol import Seq2Seq
from attnlab.tasks import schemas
from attnlab.tasks.auxiliary import Auxiliary
from attnlab.tasks.decoders import check_room
from attnlab.tasks.models import shapes_of, system_factory
from attnlab.tasks.protocol import Batch, Params, Sides, TextExample, Tree
from attnlab.tasks.tokens import check_output_bias, cross_entropy
from attnlab.tasks.written import Writes, WritingTask


def build_system(
    config: schemas.WritingSettings, source_vocabulary: int, target_vocabulary: int, pad_id: int = 0
) -> tuple[Seq2Seq, Auxiliary]:
    """Builds the sequence-to-sequence system of a config for vocabularies of these sizes, and the
    `Auxiliary` terms added to its loss; raises `UserError` where a part of it does not fit.

    Raises:
      UserError: a mechanism cannot do what the system asks of it, sizes do not fit (an indivisible
        width, say), a loss has a weight that nobody hands out, hops have none for the penalty that
        keeps them apart, or there is no output bias where one is to be set.
    """
    factory = system_factory(config, Seq2Seq)
    system: Seq2Seq = factory(
        source_vocabulary=source_vocabulary, target_vocabulary=target_vocabulary, pad_id=pad_id
    )
    # the longest there is: what has an end must reach as far
    ids = jax.ShapeDtypeStruct((1, config.batch.max_length), jnp.int32)
    handed_out = shapes_of(system, ids, ids)
    check_output_bias(config, handed_out["params"], target_vocabulary)
    return system, Auxiliary(type(system), handed_out, config, config.batch.max_length)


class PairTask(WritingTask[Writes, Corpus, Seq2Seq]):
    """Base of the tasks of pairs of texts, scored token by token and as free-running text; see
    `attnlab.tasks.base.Task`. A task of one's own says `score`, `measures` and `units`.

    Attributes:
      config: see `configs/translation.py`.
      data: the pairs and their ids.
      system: the model.
      vocabularies: of source and target; one object twice where they are shared.
    """

    systems = Seq2Seq
    schema: ClassVar[type[schemas.Settings]] = schemas.Translation
    loads = Corpus
    columns: Mapping[str, Declared] = {"source": IDS, "target": IDS}  # type: ignore[misc]
    inputs = ("source", "target")

    def __init__(self, config: Writes, data: Corpus) -> None:
        """Stores the two vocabularies and builds the system; raises `UserError` if the vocabularies
        have different padding ids.
        """
        self.vocabularies = data.learned.vocabularies
        source, self.special = (vocabulary.special for vocabulary in self.vocabularies)
        if source.pad != self.special.pad:
            raise UserError(
                f"config.vocabulary: source and target are padded with different ids, {source.pad}"
                f" and {self.special.pad}; take vocabularies that agree"
            )
        sizes = tuple(vocabulary.size for vocabulary in self.vocabularies)
        super().__init__(config, data, *build_system(config, sizes[0], sizes[1], source.pad))
        self.at_once = validate(config.decoding).batch

    @property
    def written_in(self) -> Vocabulary:
        """That of targets."""
        return self.vocabularies[1]

    @classmethod
    def check(cls, config: Writes) -> None:
        """Build the system and the decoding settings with stand-in vocabularies, so that a bad
        config fails before data is read.
        """
        shared = VocabularySettings.read(config.vocabulary).shared
        system, _ = build_system(config, *((8, 8) if shared else (8, 9)))
        check_room(system, config)

    def try_batch(self, batch: HostBatch) -> None:
        """See `Task.try_batch`; what it writes for the sources must have room too."""
        super().try_batch(batch)
        width = batch["source"].shape[1]
        check_room(self.system, self.config, jax.ShapeDtypeStruct((1, width), jnp.int32), width)

    # --- the loss and what follows from it ---

    def apply(self, params: Params, batch: Batch, **options: Any) -> Tree:
        """Teacher forcing: the logits [B,T,V] of the target."""
        target_in = self.target_in(batch["target"])
        return self.system.apply({"params": params}, batch["source"], target_in, **options)

    def auxiliary_inputs(self, outputs: jax.Array, batch: Batch) -> dict[str, Tree]:
        """Returns the arguments of `auxiliary` by name: masks of the real tokens of "source" and
        "target", and the log-likelihood of each target token.
        """
        target = jnp.asarray(batch["target"])
        return {
            "source": self.real(batch["source"]),
            "target": self.real(target),
            "log_likelihood": -cross_entropy(outputs.astype(jnp.float32), target, 0.0),
        }

    def counts(self, split: str) -> dict[str, int]:
        """The number of target tokens, EOS counted."""
        return {"tokens": self.data.counts(split)["target_tokens"]}

    # --- text ---

    def encoded(self, pairs: Sequence[Pair]) -> Examples:
        """The ids of both texts of each pair."""
        return encode(self.vocabularies, pairs)

    def examples_from_lines(self, lines: Sequence[str]) -> Examples:
        """Source texts; their targets are empty."""
        return self.encoded([(line, "") for line in lines])

    def translate(
        self, params: Params, sources: Sequence[str], *, alignment: bool = False
    ) -> list[list[Decoded]]:
        """The hypotheses of each source text, best first, by the method of `config.decoding`;
        `alignment`: with weights, if it attends.
        """
        return self.written(params, self.examples_from_lines(sources), alignment=alignment)

    def map_examples(self, split: str, number: int) -> list[TextExample]:
        """The first pairs of a split."""
        return [TextExample(*pair) for pair in self.data.rows[split][:number]]

    def example(self, source: str, target: str) -> TextExample:
        """See `WritingTask.example`."""
        return TextExample(source, target)

    def model_inputs(self, example: TextExample) -> tuple[list[np.ndarray], Sides]:
        """Returns two things: the inputs of the system for a pair of texts, a list of source ids
        [1,S] and shifted target ids [1,T], and a dict of tokens as labels: "source", "target" (what
        a step predicts), "target_in" (what it reads).
        """
        assert example.target is not None
        encoded = self.encoded([(example.source, example.target)])
        source, target = (np.asarray(sequence[0])[None] for sequence in encoded.sequences)
        ids = {"source": source, "target": target, "target_in": np.asarray(self.shifted(target))}
        return [source, ids["target_in"]], {
            side: self.vocabularies[side != "source"].tokens(row[0]) for side, row in ids.items()
        }
