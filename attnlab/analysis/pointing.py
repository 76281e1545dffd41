"""Whether heads point at the right word: syntactic heads and coreference, with baselines that look at
places alone.

Syntax: questions are pairs of a word and its head in the dependency tree, of one relation (`nsubj`)
or of all. Direction "head": the word is the query, and the largest of its weights on other words is
on its head; "dependent": the head is the query, and it is on the word; "tree": the pair is an edge
of the maximum spanning tree of max(A, A^T), the undirected attachment score. Baselines point at a
fixed offset (for trees: join words that far apart).

Coreference: a file has a JSON object on each line, {"text": "...", "clusters": [[[0, 3], [10, 12]],
...]}: the mentions of each thing as characters [start, end) of the text; a mention that is alone is
a cluster of one. Asked are the mentions that have an antecedent, an earlier mention of their
cluster; candidates are all mentions that end before they begin. The weight from a mention to a
candidate is summed over the pieces of the candidate and averaged over those of the mention. Right
is the candidate with the largest weight if it is an antecedent. The baseline is the nearest one.

Weights below 0 count by their size; where all are 0, a head points nowhere, which is wrong. Axis
letters: N texts, C cells (kinds of questions), M heads of all maps, B baselines, H heads of a map,
W words, K words or mentions, P pieces.

Sources: E. Voita et al., "Analyzing Multi-Head Self-Attention", ACL 2019; K. Clark et al., "What
Does BERT Look At?", BlackboxNLP 2019.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.sparse import csgraph

from attnlab.analysis.alignment import word_weights
from attnlab.analysis.heads import Record
from attnlab.data.json_files import field_of, objects_of, text_of
from attnlab.data.tagged import ROOT, Sentence
from attnlab.errors import UserError
from attnlab.records.items import Items

Maps = Mapping[str, np.ndarray]
"""The maps of one text by name, [H,...] each; every text has the same names."""
OFFSETS = np.array([*range(-10, 0), *range(1, 11)])  # of the baselines, key minus query
COLUMNS = ("relation", "direction", "map", "head", "baseline")


@dataclasses.dataclass(frozen=True)
class Pointing:
    """How often each head, and each baseline, pointed at the right word, for each text.

    Attributes:
      cells: C pairs (relation, direction), what was asked.
      heads: M pairs (map, head).
      baselines: B names.
      hits: [N,C,M+B] right answers.
      counts: [N,C] questions.
    """

    cells: Sequence[tuple[str, str]]
    heads: Sequence[tuple[str, int]]
    baselines: Sequence[str]
    hits: np.ndarray
    counts: np.ndarray

    def accuracy(self) -> np.ndarray:
        """Returns the share of right answers over all texts, [C,M+B]; NaN for a cell that was not
        asked.
        """
        counts = self.counts.sum(0)[:, None]
        return self.hits.sum(0) / np.where(counts, counts, np.nan)

    def best(self, least: int = 20) -> list[Record]:
        """Returns a record for each cell (relation and direction) with at least `least` questions
        in each half of the texts: the best head and the best baseline by even texts, with their
        accuracies, gain and intervals on the odd texts.

        The columns are `COLUMNS`, "count" (questions), "accuracy" with "low" and "high", its 95 %
        bootstrap interval over texts, "baseline_accuracy", and "gain", the difference of the two
        accuracies, with "gain_low" and "gain_high".

        Args:
          least: cells with fewer questions in either half are left out.
        """
        table = []
        for cell, (relation, direction) in enumerate(self.cells):
            seen, counts = self.hits[::2, cell].sum(0), self.counts[1::2, cell]
            if min(self.counts[::2, cell].sum(), counts.sum()) < max(least, 1):
                continue
            head, base = (int(part.argmax()) for part in np.split(seen, [len(self.heads)]))
            hits = self.hits[1::2, cell].astype(np.int64)
            right, fixed = hits[:, head], hits[:, len(self.heads) + base]
            rows = {"accuracy": right, "baseline_accuracy": fixed, "gain": right - fixed}
            items = Items.of({n: ("ratio", np.stack([row, counts], 1)) for n, row in rows.items()})
            names = relation, direction, *self.heads[head], self.baselines[base]
            record: Record = dict(zip(COLUMNS, names, strict=True))
            record |= {"count": int(counts.sum()), **{name: items.score(name) for name in rows}}
            record["low"], record["high"] = items.interval("accuracy")
            record["gain_low"], record["gain_high"] = items.interval("gain")
            table.append(record)
        return table


def heads_of(maps: Maps) -> list[tuple[str, int]]:
    """Returns (map, head) for every head of maps by name, [H,...] each, in their order."""
    return [(name, head) for name, weights in maps.items() for head in range(len(weights))]


def membership(places: np.ndarray, spans: Sequence[Sequence[int]]) -> np.ndarray:
    """Returns which pieces belong to which words or mentions of a text, [P,K] bool, for
    `alignment.word_weights`, which makes maps between words of maps between pieces.

    Args:
      places: the characters [P,2] of each piece, as `attnlab.data.passages.located` gives them with
        the ids of a text; (0, 0) for BOS and such.
      spans: the characters [K,2] of each word; see `word_spans`.
    """
    begin, end = np.array(spans, int).reshape(-1, 2).T
    return (places[:, :1] < end) & (places[:, 1:] > begin)


def word_spans(words: Sequence[str]) -> np.ndarray:
    """Returns the characters [W,2] (begin, end) of each word in the text of all, with a blank
    between two.
    """
    lengths = np.array([*map(len, words)])
    ends = np.cumsum(lengths + 1) - 1
    return np.stack([ends - lengths, ends], axis=1)


def syntax_scores(sentences: Sequence[Sentence], maps: Iterable[Maps]) -> Pointing:
    """Counts by relation how often the largest absolute weight of each attention head goes from a
    word to its syntactic head or dependent, and how many edges its spanning tree has right; returns
    a `Pointing` with baselines; `maps` are [H,W,W] by name, for each sentence.

    Args:
      sentences: with heads, and relations as tags (`Conllu(tags="deprel")`).
      maps: for each sentence its maps by name, [H,W,W] between words (queries, keys).
    """
    relations, heads, hits, counts = sorted({tag for s in sentences for tag in s.tags}), [], [], []
    for sentence, named in zip(sentences, maps, strict=True):
        heads, place = heads_of(named), np.arange(len(sentence.words))
        above = np.array(sentence.heads)
        words = np.flatnonzero(above != ROOT)
        above, tags = above[words], np.array(sentence.tags)[words]
        weights = np.abs(np.concatenate([*named.values()])) * (place[:, None] != place)
        attended = np.where(weights.any(-1), weights.argmax(-1), -1)
        answers = np.concatenate([attended, place + OFFSETS[:, None]])
        edges = [spanning_tree(of_head)[words, above] for of_head in weights]
        edges += [np.abs(words - above) == abs(offset) for offset in OFFSETS]
        of = np.array([words >= 0, *(tags == relation for relation in relations)], int)
        up, down = answers[:, words] == above, answers[:, above] == words
        hits.append(np.concatenate([of @ up.T, of @ down.T, np.sum(edges, axis=1)[None]]))
        counts.append([*of.sum(1), *of.sum(1), len(words)])
    cells = [(name, way) for way in ("head", "dependent") for name in ("all", *relations)]
    baselines = [f"offset {offset:+d}" for offset in OFFSETS]
    return Pointing([*cells, ("all", "tree")], heads, baselines, np.stack(hits), np.array(counts))


def spanning_tree(weights: np.ndarray) -> np.ndarray:
    """Returns the edges [W,W] bool, in both directions, of the maximum spanning tree of the larger
    weight of each pair of words, max(A, A^T); weights [W,W] of at least 0.
    """
    either = np.maximum(weights, weights.T)
    cost = np.where(np.eye(len(weights)), 0.0, 1.0 + either.max(initial=0.0) - either)
    tree = csgraph.minimum_spanning_tree(cost).toarray() > 0
    return tree | tree.T


class Document(NamedTuple):
    """A text, and for each thing that it mentions the mentions, as characters [start, end)."""

    text: str
    clusters: list[list[list[int]]]


def read_documents(path: str | Path) -> list[Document]:
    """Reads a file of JSON lines, texts with their clusters of mentions (plain, .gz, .xz or .zst),
    and returns a `Document` for each; raises `UserError` for a line of another form or no document.

    Raises:
      UserError: the file cannot be read or has no document; a line, named with the key, has
        something else.
    """
    documents = []
    for where, record in objects_of(Path(path)):
        text_of(record, "text", where)  # is one, but for its blanks
        text, clusters = record["text"], field_of(record, "clusters", where)
        if not isinstance(clusters, list) or not all(isinstance(c, list) for c in clusters):
            raise UserError(f"{where}: field 'clusters' is no list of lists of [start, end]")
        for span in itertools.chain(*clusters):
            numbers = isinstance(span, list) and [type(end) for end in span] == [int, int]
            if not numbers or not 0 <= span[0] < span[1] <= len(text):
                raise UserError(
                    f"{where}: field 'clusters' has {span!r}; expected [start, end] with 0 <= start"
                    f" < end <= {len(text)}, the characters of the text"
                )
        documents.append(Document(text, clusters))
    if not documents:
        raise UserError(f"{path} holds nothing but blank lines")
    return documents


def coreference_scores(
    documents: Sequence[Document], places: Iterable[np.ndarray], maps: Iterable[Maps]
) -> Pointing:
    """Counts for each head how often a mention gives its largest absolute weight, of all mentions
    before it, to an antecedent, and returns a `Pointing`; `places` are the character spans [P,2] of
    tokens, `maps` weights [H,P,P] between them.

    Args:
      documents: from `read_documents`.
      places: for each document the characters [P,2] of its pieces, as
        `attnlab.data.passages.located` gives them; (0, 0) for BOS and such. A mention without a
        piece is never right.
      maps: for each document its maps by name, [H,P,P] between pieces (queries, keys).
    """
    heads, hits, counts = [], [], []
    for document, characters, named in zip(documents, places, maps, strict=True):
        heads, spans = heads_of(named), [*itertools.chain(*document.clusters)]
        begin, end = np.array(spans, int).reshape(-1, 2).T
        cluster = np.repeat(np.arange(len(document.clusters)), [*map(len, document.clusters)])
        sides = [membership(characters, spans)] * 2
        weights = word_weights(np.abs(np.concatenate([*named.values()])), *sides)
        earlier = end <= begin[:, None]
        # a candidate before all others, for mentions whose weights are all 0
        right = np.pad(earlier & (cluster == cluster[:, None]), ((0, 0), (1, 0)))
        pointers = np.concatenate([weights, np.broadcast_to(end, (1, *earlier.shape))]) * earlier
        best = np.pad(pointers, ((0, 0), (0, 0), (1, 0))).argmax(-1)
        hits.append(right[np.arange(len(right)), best].sum(-1))
        counts.append(right.any(-1).sum())
    cells, baselines = [("coreference", "antecedent")], ["nearest mention"]
    return Pointing(cells, heads, baselines, np.stack(hits)[:, None], np.array(counts)[:, None])
