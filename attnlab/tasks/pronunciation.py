"""Pronunciation: spelled words to phonemes, the translation of a script. What differs from
translation is how the answers are scored.

    phoneme error rate = sum of edit distances / sum of reference lengths          word error rate = share of words said wrong

A word that the data gives several pronunciations is answered once, and the nearest of them counts.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from attnlab.decoding.metrics import edits_of, error_rates
from attnlab.records.items import Items
from attnlab.records.measures import TEXT, Measure, share
from attnlab.tasks import schemas
from attnlab.tasks.pairs import PairTask
from attnlab.tasks.protocol import Params, Scores
from attnlab.tasks.tokens import teacher_forced


class Pronunciation(PairTask[schemas.Pronunciation]):
    """Pronunciation: pairs of a word and its phonemes with blanks between them, scored by edits;
    see `configs/g2p.py`.
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
