"""Translation: pairs of sentences, scored token by token and, as written freely, by BLEU, chrF and
exact matches.
"""

from attnlab.data.corpus import Corpus
from attnlab.systems.protocol import Seq2Seq
from attnlab.tasks import schemas
from attnlab.tasks.pairs import PairTask
from attnlab.tasks.protocol import Params
from attnlab.tasks.written import ScoredAsText


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
