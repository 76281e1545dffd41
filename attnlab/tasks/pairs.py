"""Tasks that write a text for a text, by a sequence-to-sequence system: translation, text to text
and pronunciation, which differ in how what is written is scored; and several trained ones as one.

Text to text is any task whose answer is a text, such as summaries, questions or several tasks told
apart by what stands before the source (the data source `prefixed`), as T5 has them. Pronunciation,
from spelled words to phonemes, is the translation of a script.

Source of text to text: C. Raffel et al., "Exploring the Limits of Transfer Learning with a Unified
Text-to-Text Transformer", JMLR 2020.

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
from attnlab.decoding.metrics import ROUGE, edits_of, error_rates, rouge
from attnlab.decoding.settings import validate
from attnlab.errors import UserError
from attnlab.records.items import Items
from attnlab.records.measures import TEXT, Measure, share
from attnlab.systems.ensemble import ensemble
from attnlab.systems.protocol import Seq2Seq
from attnlab.tasks import schemas
from attnlab.tasks.auxiliary import Auxiliary
from attnlab.tasks.base import Task
from attnlab.tasks.decoders import check_room
from attnlab.tasks.models import shapes_of, system_factory
from attnlab.tasks.protocol import Batch, Params, Scores, Sides, TextExample, Tree
from attnlab.tasks.tokens import check_output_bias, cross_entropy, teacher_forced
from attnlab.tasks.written import ScoredAsText, Writes, WritingTask


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


class Translation(
    ScoredAsText[schemas.Translation, Corpus, Seq2Seq], PairTask[schemas.Translation]
):
    """Translation of sentences; see `configs/translation.py`."""

    examples = "sentences"
    outputs = "translations.txt"

    def references(self, split: str) -> list[str]:
        """See `ScoredAsText.references`."""
        return [self.vocabularies[1].normalize(target) for _, target in self.data.rows[split]]

    def hypotheses(self, params: Params, split: str) -> list[str]:
        """See `ScoredAsText.hypotheses`; targets say nothing of the batches."""
        written = self.translate(params, [source for source, _ in self.data.rows[split]])
        return [self.text(best[0]) for best in written]


class TextToText(Translation):
    """Texts for texts, scored by ROUGE (the mean of the texts) beside what translations are scored
    by; see `configs/text_to_text.py`.
    """

    measures: Mapping[str, Measure | str] = {
        **Translation.measures,
        "exact": share("texts", unit="share of texts right as a whole", depends=(TEXT,)),
        **dict.fromkeys(ROUGE, Measure("max", 0.0, 100.0, unit="F of words, mean of texts")),
    }
    examples = "texts"
    outputs = "answers.txt"

    def score(self, params: Params, split: str) -> tuple[Scores, list[str]]:
        """Those of a translation and ROUGE-1, -2 and -L; and the answers."""
        scores, answers = super().score(params, split)
        scored = self._rouge(split, answers)
        sums = {name: np.asarray(rows).sum(axis=0) for name, rows in scored.items()}
        return {**scores, **{name: float(total / n) for name, (total, n) in sums.items()}}, answers

    def items(self, params: Params, split: str, outputs: Sequence[str]) -> Items:
        """A row for every text."""
        scored = {name: ("ratio", rows) for name, rows in self._rouge(split, outputs).items()}
        return Items.of({**self.counted(params, split, outputs), **scored})

    def _rouge(self, split: str, answers: Sequence[str]) -> dict[str, list[list[float]]]:
        """Returns, by score, a row [score, 1] for every text, whose sums give the mean."""
        by_text = [rouge(*pair) for pair in zip(answers, self.references(split), strict=True)]
        return {name: [[scores[name], 1.0] for scores in by_text] for name in ROUGE}


class Pronunciation(PairTask[schemas.Pronunciation]):
    """Pronunciation: pairs of a word and its phonemes with blanks between them, scored by edits;
    see `configs/g2p.py`.

        phoneme error rate = sum of edit distances / sum of reference lengths
        word error rate    = share of words said wrong

    A word that the data gives several pronunciations is answered once, and the nearest counts.
    """

    schema: ClassVar[type[schemas.Settings]] = schemas.Pronunciation
    measures: Mapping[str, Measure | str] = {
        **teacher_forced("nats per phoneme, ends of words counted", "next phoneme, teacher-forced"),
        "phoneme_error_rate": Measure(  # there may be more edits than phonemes
            "min", 0.0, depends=(TEXT,), unit="edits / phonemes of the nearest pronunciation"
        ),
        "word_error_rate": share("words", "min", (TEXT,), "share of words said wrong"),
    }
    examples = "words"
    outputs = "pronunciations.txt"

    def size(self, split: str) -> int:
        """The number of words; each may have several pronunciations."""
        return len({word for word, _ in self.data.rows[split]})

    def score(self, params: Params, split: str) -> tuple[Scores, list[str]]:
        """Returns two things: a dict of the phoneme and word error rates of a split, each word
        answered once and compared to its nearest pronunciation, and a list with a line for each
        pair (word, pronunciation), the answer to its word.
        """
        truth = self._pronunciations(split)
        texts = [self.text(best[0]) for best in self.translate(params, list(truth))]
        answers = dict(zip(truth, texts, strict=True))
        rates = error_rates([answer.split() for answer in texts], list(truth.values()))
        scores = {"phoneme_error_rate": rates[0], "word_error_rate": rates[1]}
        return scores, [answers[word] for word, _ in self.data.rows[split]]

    def items(self, params: Params, split: str, outputs: Sequence[str]) -> Items:
        """Returns `Items` with a row for every different word, from which scores are resampled: the
        teacher-forced sums over all its pronunciations, and the edits of its answer in `outputs` (a
        line for each pair).
        """
        truth = self._pronunciations(split)
        numbers = {word: number for number, word in enumerate(truth)}
        of_pairs = [numbers[word] for word, _ in self.data.rows[split]]
        answers = dict(zip(of_pairs, outputs, strict=True))
        edits = [edits_of(answers[number].split(), truth[word]) for word, number in numbers.items()]
        rows: dict[str, tuple[str, np.ndarray | list[list[int]]]] = {}
        for name, (rule, of_pair) in self.teacher_forced(params, split).items():
            summed = np.zeros((len(truth), of_pair.shape[1]), of_pair.dtype)
            np.add.at(summed, of_pairs, of_pair)
            rows[name] = rule, summed
        errors = [[fewest > 0, 1] for fewest, _ in edits]
        return Items.of(
            {**rows, "phoneme_error_rate": ("ratio", edits), "word_error_rate": ("ratio", errors)}
        )

    def _pronunciations(self, split: str) -> dict[str, list[list[str]]]:
        """Returns the pronunciations of every word of a split, as lists of phonemes, in the order
        of the words.
        """
        truth: dict[str, list[list[str]]] = {}
        for word, phonemes in self.data.rows[split]:
            truth.setdefault(word, []).append(self.vocabularies[1].normalize(phonemes).split())
        return truth


def together(
    runs: Sequence[tuple[str, Task[Any, Any, Any], Params]],
) -> tuple[PairTask[Any], Params]:
    """Joins trained runs of a task that translates, triples (name, task, parameters), into one task
    whose system averages all members, and returns it with its parameters; raises `UserError` if
    one does not translate, or tasks or vocabularies differ.

    Data, decoding, scores and everything but the system are those of the first task. The parameters
    are a mapping of "members_0", "members_1", ... to those of the tasks.

    Args:
      runs: of every member the name of its run, its task and its parameters.

    Raises:
      UserError: a task that does not translate, that is another than the first, or that has other
        vocabularies.
    """
    first, task, _ = runs[0]
    members: list[PairTask[Any]] = []
    for name, member, _ in runs:
        if not isinstance(member, PairTask):
            raise UserError(
                f"{name}: no ensembles of the task {member.config.task!r}; they are of runs that"
                " translate"
            )
        if member.config.task != task.config.task:
            raise UserError(
                f"{name} is a run of task={member.config.task}, {first} of task={task.config.task};"
                " name runs of one task"
            )
        ours = (members or [member])[0].vocabularies
        if not all(_encode_alike(*pair) for pair in zip(member.vocabularies, ours, strict=True)):
            raise UserError(
                f"{name} has another vocabulary than {first}; train the members of an ensemble on"
                " the same data"
            )
        members.append(member)
    # no copy: what the first task has compiled holds its own system
    joined = type(members[0])(task.config, members[0].data)
    joined.system = ensemble([member.system for member in members])
    return joined, {f"members_{number}": params for number, (_, _, params) in enumerate(runs)}


def _encode_alike(first: Vocabulary, second: Vocabulary) -> bool:
    """Whether both turn a text into the same ids."""
    alike = all(first.settings[name] == second.settings[name] for name in ("kind", "lowercase"))
    return alike and first.tokens(range(first.size)) == second.tokens(range(second.size))
