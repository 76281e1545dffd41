"""Text to text: any task whose answer is a text, such as summaries, questions or several tasks told
apart by what stands before the source (the data source `prefixed`), as T5 has them.

Source: C. Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
Transformer", JMLR 2020.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from attnlab.decoding import rouge
from attnlab.records.items import Items
from attnlab.records.measures import TEXT, Measure, share
from attnlab.tasks.protocol import Params, Scores
from attnlab.tasks.translation import Translation


class TextToText(Translation):
    """Texts for texts, scored by ROUGE (the mean of the texts) beside what translations are scored
    by; see `configs/text_to_text.py`.
    """

    measures: Mapping[str, Measure | str] = {
        **Translation.measures,
        "exact": share("texts", unit="share of texts right as a whole", depends=(TEXT,)),
        **dict.fromkeys(rouge.NAMES, Measure("max", 0.0, 100.0, unit="F of words, mean of texts")),
    }
    examples = "texts"
    outputs = "answers.txt"

    def score(self, params: Params, split: str) -> tuple[Scores, list[str]]:
        """Those of a translation and ROUGE-1, -2 and -L; and the answers."""
        scores, answers = super().score(params, split)
        scored = rouge.rows(answers, self.references(split))
        sums = {name: np.asarray(rows).sum(axis=0) for name, rows in scored.items()}
        return {**scores, **{name: float(total / n) for name, (total, n) in sums.items()}}, answers

    def items(self, params: Params, split: str, outputs: Sequence[str]) -> Items:
        """A row for every text."""
        scored = rouge.rows(outputs, self.references(split))
        counted = {name: ("ratio", rows) for name, rows in scored.items()}
        return Items.of({**self.counted(params, split, outputs), **counted})
