"""Word alignments from attention, on cases worked out by hand."""

import functools
import pathlib

import numpy as np
import pytest

from attnlab.analysis import alignment
from attnlab.analysis.alignment import Gold
from attnlab.data.vocabulary import EOS, SPECIAL, UNK, Marks, Vocabulary
from attnlab.errors import UserError

membership = functools.partial(
    alignment.membership, marks=Marks(frozenset(SPECIAL) - {SPECIAL[UNK]}, SPECIAL[UNK])
)
Links = set[tuple[int, int]]
NOTHING: Links = set()


FOUR = {(0, 0), (1, 1), (2, 1), (2, 2)}


LINKS = [
    # by hand: one sure, one merely possible, one wrong
    ({(0, 0), (2, 1), (1, 2)}, {(0, 0), (1, 1)}, FOUR, 1 - (1 + 2) / (3 + 2)),
    (FOUR, FOUR, FOUR, 0.0),
    ({(5, 5)}, FOUR, FOUR, 1.0),
    (FOUR, NOTHING, FOUR, 0.0),  # all hits, nothing sure
    (NOTHING, NOTHING, FOUR, 0.0),  # nothing to get wrong
    (NOTHING, FOUR, FOUR, 1.0),
    (FOUR, NOTHING, NOTHING, 1.0),
    ({(0, 0)}, {(0, 0)}, {(1, 1)}, 0.0),  # a sure link is a possible one
]


@pytest.mark.quick
@pytest.mark.parametrize(("found", "sure", "possible", "expected"), LINKS)
def test_error_rate(found: Links, sure: Links, possible: Links, expected: float) -> None:
    assert alignment.error_rate(found, sure, possible) == pytest.approx(expected)


def test_a_corpus_is_scored_as_one_set_and_not_as_a_mean_of_sentences() -> None:
    gold = [{(0, 0)}, {(0, 0), (1, 1), (2, 2)}]
    found = [{(0, 0)}, {(0, 1), (1, 0), (2, 0)}]
    sure, links = alignment.pooled(gold), alignment.pooled(found)
    assert links == {(0, 0, 0), (1, 0, 1), (1, 1, 0), (1, 2, 0)}
    # the mean over sentences would be 1/2
    assert alignment.error_rate(links, sure, sure) == pytest.approx(1 - 2 / 8)
    assert alignment.precision({(0, 0), (1, 1)}, {(0, 0), (2, 2)}) == 0.5
    assert alignment.precision(NOTHING, {(0, 0)}) == 1.0


@pytest.mark.quick
def test_links_go_to_the_largest_weight_of_each_target_word_source_index_first() -> None:
    weights = np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0], [0.0, 0.0, 0.0]])
    # the first of equals; a word that looked nowhere has no link
    assert alignment.links(weights) == {(2, 0), (0, 1)}
    assert alignment.links(np.zeros((2, 0))) == set()


def test_baselines_by_lengths_alone() -> None:
    """The diagonal by hand, and chance as the mean over all ways to link."""
    assert alignment.diagonal(3, 3) == {(0, 0), (1, 1), (2, 2)}
    assert alignment.diagonal(4, 2) == {(0, 0), (0, 1), (1, 2), (1, 3)}
    assert alignment.diagonal(2, 4) == {(1, 0), (3, 1)}
    assert all(0 <= i < 7 for i, _ in alignment.diagonal(50, 7))
    assert alignment.diagonal(1, 3) == {(1, 0)} and alignment.diagonal(0, 3) == set()
    golds = [Gold(frozenset({(0, 0)}), frozenset({(0, 0), (1, 1)}))]
    sure, possible = golds[0].sure, golds[0].possible
    ways = [{(a, 0), (b, 1)} for a in range(3) for b in range(3)]
    every = [alignment.error_rate(links, sure, possible) for links in ways]
    assert alignment.chance(golds, [(3, 2)]) == pytest.approx(float(np.mean(every)))
    assert alignment.chance([], []) == 0.0


# --- pieces to words ---


def test_each_piece_belongs_to_the_word_whose_characters_it_holds() -> None:
    """Words may be cut elsewhere than the text was; a blank of its own is of the word that follows;
    punctuation is no pattern.
    """
    shares = membership(["▁the", "▁hou", "se", ".", "</s>"], ["the", "house", "."])
    assert shares.tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]
    shares = membership(["▁don", "'", "t"], ["do", "n't"])  # "don" reaches over both
    assert shares == pytest.approx(np.array([[2 / 3, 1 / 3], [0, 1], [0, 1]]))
    joined = membership(["▁l", "'", "hom", "me"], ["l'", "homme"])
    assert joined.tolist() == [[1, 0], [1, 0], [0, 1], [0, 1]]
    assert membership(["▁va", "▁", "!"], ["va", "!"]).tolist() == [[1, 0], [0, 1], [0, 1]]
    pieces = membership(["v", "a", "␣", "!"], ["va", "!"]).tolist()
    assert pieces == [[1, 0], [1, 0], [0, 1], [0, 1]]
    pieces = membership(["▁(", "a", "?", "*", ")"], ["(a", "?*", ")"]).tolist()
    assert pieces == [*[[1, 0, 0]] * 2, *[[0, 1, 0]] * 2, [0, 0, 1]]


def test_unknown_pieces_stand_for_what_the_others_leave() -> None:
    pieces = membership(["▁a", "▁", "<unk>", "<unk>", "b"], ["a", "€€b"])
    assert pieces.tolist() == [[1, 0], *[[0, 1]] * 4]
    pieces = membership(["▁a", "<unk>", "▁b"], ["a", "unseen", "b"])
    assert pieces.tolist() == np.eye(3).tolist()
    # the first "b" is taken for the known piece
    first = membership(["<unk>", "▁b", "<unk>"], ["q", "b", "rbs"])
    assert first.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_the_marks_are_those_of_the_vocabulary() -> None:
    """A tokenizer from elsewhere has other marks, perhaps no unknown piece; ours are text there."""
    marks = Marks(frozenset({"<|end|>"}), None)
    shares = alignment.membership(["<unk>", "a", "<|end|>"], ["<unk>", "a"], marks)
    assert shares.tolist() == [[1, 0], [0, 1], [0, 0]]
    ours = Vocabulary.train(["let us go"], "word", 10, 1).marks
    assert ours == Marks(frozenset({"<pad>", "<s>", "</s>"}), "<unk>")


def test_pieces_of_another_text_are_refused() -> None:
    """At once, also where many are unknown."""
    many = ["<unk>", "a"] * 20 + ["b"]
    for pieces, words in ((["▁a", "b"], ["ac"]), (["▁a"], ["a", "b"]), (many, ["a" * 200])):
        with pytest.raises(ValueError, match="do not spell"):
            membership(pieces, words)


@pytest.mark.parametrize("kind", ["bpe", "word", "char"])
def test_every_vocabulary_spells_what_it_was_given(kind: str) -> None:
    """Unseen words and characters, punctuation that stands apart or not, capitals, a decomposed
    accent.
    """
    texts = ["let us go .", "l'homme va !", "Do not go, us!"] * 3
    vocabulary = Vocabulary.train(texts, kind, 60, 1, lowercase=True)
    gold = ["Let", "us", "o\u0302ter", ",", "l'", "homme", "№", "2", "!"]
    for text in ("Let us o\u0302ter , l' homme № 2 !", "Let us o\u0302ter, l'homme №2 !"):
        pieces = vocabulary.tokens([*vocabulary.encode_all([text])[0], EOS])
        words = [vocabulary.normalize(word) for word in gold]
        shares = alignment.membership(pieces, words, vocabulary.marks)
        assert shares.shape == (len(pieces), len(gold)) and not shares[-1].any()
        assert shares[:-1].sum(axis=1) == pytest.approx(np.ones(len(pieces) - 1))
        assert (shares.sum(axis=0) > 0).all()


def test_words_add_up_source_pieces_and_average_target_pieces() -> None:
    source = membership(["▁a", "b", "▁c", "</s>"], ["ab", "c"])
    target = membership(["▁x", "▁y", "z", "</s>"], ["x", "yz"])
    rows = [0.3, 0.3, 0.4, 0.0], [0.0, 0.0, 1.0, 0.0], [0.1, 0.1, 0.0, 0.8], [0.0, 0.0, 0.0, 1.0]
    weights = np.array(rows)
    found = alignment.word_weights(weights, source, target)
    # what lies on the end mark is gone
    assert found == pytest.approx(np.array([[0.6, 0.4], [0.1, 0.5]]))
    assert alignment.links(found) == {(0, 0), (1, 1)}  # the pieces alone would link x to c


# --- gold files ---


def test_gold_links_are_read_and_flipped(tmp_path: pathlib.Path) -> None:
    (tmp_path / "test.align").write_text("0-1 2p0\n\n10p11\n")
    golds = alignment.read_gold(tmp_path / "test.align")
    assert golds[0] == Gold(frozenset({(0, 1)}), frozenset({(0, 1), (2, 0)}))
    assert golds[1:] == [Gold(frozenset(), frozenset()), Gold(frozenset(), frozenset({(10, 11)}))]
    assert golds[0].flipped() == Gold(frozenset({(1, 0)}), frozenset({(1, 0), (0, 2)}))


@pytest.mark.parametrize("line", ["0-1 2:3", "0-", "-1-2", "0-1-2", "a-b"])
def test_what_is_no_link_is_named_with_its_line(tmp_path: pathlib.Path, line: str) -> None:
    (tmp_path / "bad.align").write_text(f"0-0\n{line}\n")
    with pytest.raises(UserError, match="bad.align, line 2: .*no link"):
        alignment.read_gold(tmp_path / "bad.align")


def test_each_head_has_its_own_error_rate_over_the_corpus() -> None:
    gold = Gold(frozenset({(0, 0)}), frozenset({(0, 0), (1, 1)}))
    right, wrong = np.eye(2), np.eye(2)[::-1]
    maps = [np.stack([right, wrong, right]), np.stack([right, wrong, wrong])]
    assert alignment.head_error_rates(maps, [gold] * 2) == [0.0, 1.0, 0.5]
