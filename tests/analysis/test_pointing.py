"""Syntax and coreference in maps built by hand, and against loops over the definitions."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from attnlab.analysis import pointing
from attnlab.analysis.alignment import word_weights
from attnlab.data.passages import located
from attnlab.data.tagged import ROOT, Sentence
from attnlab.data.vocabulary import Vocabulary
from attnlab.errors import UserError

CAT = Sentence(("The", "cat", "sat", "up"), ("det", "nsubj", "root", "adv"), (1, 2, ROOT, 2))
DOG = Sentence(("A", "big", "dog"), ("det", "amod", "root"), (2, 2, ROOT))
KNOWS = {CAT: np.eye(4)[[1, 2, 3, 2]], DOG: np.eye(3)[[2, 2, 0]]}  # roots look anywhere
RNG = np.random.default_rng(0)


@pytest.mark.quick
def test_a_head_that_knows_the_tree_and_its_transpose() -> None:
    itself = {s: KNOWS[s] + 2 * np.eye(len(s.words)) for s in (CAT, DOG)}  # not asked for
    maps = [{"0": np.stack([m, -m.T]), "1": 0 * m[None]} for m in itself.values()]
    scores = pointing.syntax_scores([CAT, DOG], maps)
    table = {cell: row.tolist() for cell, row in zip(scores.cells, scores.accuracy(), strict=True)}
    assert scores.heads == [("0", 0), ("0", 1), ("1", 0)] and scores.counts[:, 0].tolist() == [3, 2]
    # of two words below one the transpose names the first; where all is 0 a head points nowhere
    assert table["all", "head"][:3] == [1, 2 / 5, 0] and table["amod", "head"][:3] == [1, 0, 0]
    assert table["all", "dependent"][:3] == [2 / 5, 3 / 5, 0] and table["det", "dependent"][1] == 1
    fixed = dict(zip(scores.baselines, table["all", "head"][3:], strict=True))
    assert [fixed[f"offset {k}"] for k in ("-2", "-1", "+1", "+2")] == [0, 1 / 5, 3 / 5, 1 / 5]
    assert table["all", "tree"][:2] == [1, 1] and np.isnan(table["root", "head"]).all()


def test_the_spanning_tree_takes_the_heaviest_pair_that_joins_what_was_apart() -> None:
    for weights in RNG.random((20, 4, 4)):
        either, tree = np.maximum(weights, weights.T), []
        for pair in sorted(itertools.combinations(range(4), 2), key=lambda pair: -either[pair]):
            steps = [np.eye(4)[i] - np.eye(4)[j] for i, j in (*tree, pair)]
            tree += [pair] * (int(np.linalg.matrix_rank(steps)) - len(tree))
        assert [*map(tuple, np.argwhere(np.triu(pointing.spanning_tree(weights))))] == sorted(tree)


def test_the_best_head_is_chosen_on_half_of_the_texts_and_scored_on_the_other() -> None:
    wrong = np.eye(4)[[3, 3, 3, 0]]
    even, odd = (
        [KNOWS[CAT] if n % 2 == k or n < 10 + 2 * k else wrong for n in range(40)] for k in (0, 1)
    )
    maps = [{"0": np.stack(pair)} for pair in zip(odd, even, strict=True)]  # odd knows one more
    record, *_ = (scores := pointing.syntax_scores([CAT] * 40, maps)).best()
    assert [record[n] for n in ("relation", "head", "count", "accuracy")] == ["all", 1, 60, 5 / 20]
    assert record["baseline"] == "offset +1" and record["baseline_accuracy"] == 2 / 3
    assert record["gain"] == pytest.approx(0.25 - 2 / 3) and record["gain_high"] < 0
    assert record["low"] < 0.25 < record["high"] < 0.5 and scores.best(least=61) == []


def test_maps_of_pieces_become_maps_of_words() -> None:
    words = ["un-believable", "as", "1 000"]  # with signs and blanks inside
    vocabulary = Vocabulary.train([" ".join(words)], "char", 40, 1)
    ((_, places),) = located(vocabulary, [" ".join(words)])
    places = np.concatenate([[[0, 0]], places])  # behind BOS
    owned = pointing.membership(places, pointing.word_spans(words))
    assert owned.sum(0).tolist() == [13, 2, 5] and not owned[0].any()
    pieces = RNG.random((2, len(owned), len(owned)))
    expected = pieces[:, 1:14, 15:17].sum((1, 2)) / 13
    np.testing.assert_allclose(word_weights(pieces, owned, owned)[:, 0, 1], expected)


TEXT = "Ann met Bo. She saw him; she left. "
CLUSTERS = [[[0, 3], [12, 15], [25, 28]], [[8, 10], [20, 23]], [[0, 10], [4, 10]]]


def test_a_mention_points_at_an_antecedent(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": TEXT, "clusters": CLUSTERS}) + "\n\n")
    documents = pointing.read_documents(tmp_path / "a.jsonl")
    assert documents == [pointing.Document(TEXT, CLUSTERS)]
    places, heads = np.array([[0, 3], [8, 10], [12, 15], [20, 23], [25, 28]]), np.zeros((3, 5, 5))
    heads[0, [2, 3, 4], [0, 1, 2]] = 1  # She: Ann; him: Bo; she: She
    heads[1, [2, 3, 4], [1, 1, 3]] = -1  # by size: him alone is right
    heads[2, :, 2:] = [3, 2, 1]  # at itself and later; of what is earlier, she looks at She
    scores = pointing.coreference_scores(documents, [places], [{"0": heads}])
    # the nearest: Bo for She, She for him, him for she
    assert scores.counts.tolist() == [[3]] and scores.hits.tolist() == [[[3, 1, 1, 0]]]
    empty = [pointing.Document("a", [])]
    assert not pointing.coreference_scores(empty, [places], [{"0": heads}]).counts.any()


BAD_LINES = [
    ('{"text": "a"}', "line 2: no field 'clusters'"),
    ('{"text": 3, "clusters": []}', "line 2: field 'text' is 3; expected a text"),
    ('{"text": "a", "clusters": [3]}', "line 2: field 'clusters' is no list of lists"),
    ('{"text": "a", "clusters": [[[0, 2]]]}', r"'clusters' has \[0, 2\]; .*end <= 1,"),
    ('{"text": "a", "clusters": [[[0, true]]]}', r"field 'clusters' has \[0, True\]"),
    ("", "nothing but blank lines"),
]


@pytest.mark.parametrize(("line", "words"), BAD_LINES)
def test_a_bad_line_is_named_with_its_key(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "a.jsonl").write_text(f"\n{line}\n")
    with pytest.raises(UserError, match=words):
        pointing.read_documents(tmp_path / "a.jsonl")
