"""What the scripts that describe trained runs say of weights, sentences, texts and scores that are
known: looks, lengths, heads, entropies and gradients, groups of questions, rare words.
"""

import itertools
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from ml_collections import ConfigDict

from attnlab.data.tagged import Sentence
from attnlab.errors import UserError
from attnlab.systems.protocol import AttentionMap
from benchmarks import by_length, induction, looks, rare_words, treebank_heads
from benchmarks.groups import of_scores, spread_text
from benchmarks.sharpness import gradients, place, sharpness
from tests.refusals import check_refused

pytestmark = pytest.mark.quick


def test_a_look_back() -> None:
    """A row of padding and the first rows do not count; weight on the word itself, which a model
    sees that has read it, is near.
    """
    weights = np.zeros((5, 5))
    weights[:, 0], weights[3] = 1.0, [0.0, 0.5, 0.5, 0.0, 0.0]
    weights[4] = 0.0
    second, third = looks.described(weights, "source", True, 2)
    shares = {"last 1": 0.0, "last 3": 1.0, "last 5": 1.0}
    assert second == {"words": 1.0, "of": 1.0, "back": 2.0, **shares}
    found = [third[name] for name in ("words", "back", "last 1")]
    assert found == pytest.approx([2.0, 1.5, 0.5])
    assert looks.means([second, third])[:4] == [2, 1.5, 1.5, 1.75]


def test_hops_that_agree_and_hops_that_do_not() -> None:
    apart, alike = np.eye(3), np.tile(np.eye(3)[0], (3, 1))
    for weights, together, overlap in ((apart, 3.0, 0.0), (alike, 1.0, 1.0)):
        (said,) = looks.described(weights, "hops", False, 0)
        found = [said[name] for name in ("together", "overlap", "words")]
        assert found == pytest.approx([together, overlap, 1.0])


def test_what_lies_on_the_evidence() -> None:
    """Of a text onto itself the row of its last word alone, here the third of four; of a look from
    outside, every row.
    """
    weights = np.array([[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25, 0.5, 0.25, 0], [0.0, 0, 0, 1.0]])
    said = looks.described(weights, "source", True, 0, (3, [1]))
    assert [one.get("evidence") for one in said] == [None, None, 0.5, None]
    said = looks.described(weights, "query", False, 0, (3, [0, 1]))
    assert [one["evidence"] for one in said] == [1.0, 1.0, 0.75, 0.0]
    (hops,) = looks.described(weights, "hops", False, 0, (3, [0, 1]))
    assert hops["evidence"] == pytest.approx(2.75 / 4)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [("lookup", "a3 c7 f0 c", (4, [1])), ("markers", "ba 3 ko tu 4", (5, [1, 4]))],
)
def test_sources_say_what_a_label_follows_from(
    name: str, text: str, expected: tuple[int, list[int]]
) -> None:
    config = ConfigDict({"data": {"name": name}, "vocabulary": {"kind": "word"}})
    assert looks.evidence(config, text) == expected
    assert looks.evidence(ConfigDict({**config, "vocabulary": {"kind": "char"}}), text) is None
    assert looks.evidence(ConfigDict({**config, "data": {"name": "entailment"}}), text) is None


def test_sentences_by_length() -> None:
    short, long = by_length.by_length([5, 1, 9, 1], 2)
    assert short.tolist() == [1, 3] and long.tolist() == [0, 2]
    for parts in (0, 5):
        check_refused(f"--parts={parts}: expected 1 to 4", by_length.by_length, [5, 1, 9, 1], parts)
    lines, references = ["a b c d e", "x"], ["a b c d e", "y"]
    assert by_length.bleu(lines, references, np.array([0]), False) == pytest.approx(100.0)
    assert by_length.bleu(lines, references, np.array([1]), False) < 1.0
    with pytest.raises(UserError, match="has 1 lines, the test split 2"):
        by_length.bleu(lines[:1], references, np.array([0]), False)


def test_runs_that_cannot_be_looked_at(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of several they are named and passed over; one alone, or nothing but such, is an error."""

    def rows(workdir: str, chosen: object) -> list[tuple[object, ...]]:
        if workdir != "fine":
            raise UserError(f"{workdir}: LSTM has no attention")
        return [(workdir, "look", *(1 for _ in looks.COLUMNS[2:]))]

    monkeypatch.setattr(looks, "looked_at", rows)
    monkeypatch.setattr("sys.argv", ["looks", "bad", "fine"])
    looks.main()
    said = capsys.readouterr()
    assert "passed over: bad: LSTM has no attention" in said.err and "fine" in said.out
    for runs, message in (
        (["bad"], "bad: LSTM has no attention"),
        (["bad", "worse"], "none of these runs can be looked at"),
    ):
        monkeypatch.setattr("sys.argv", ["looks", *runs])
        check_refused(message, looks.main)


def test_in_texts_to_be_copied_every_word_tells_what_follows(tmp_path: Path) -> None:
    induction.write_texts(tmp_path, {"train": 200})
    texts = [line.split() for line in (tmp_path / "train.txt").read_text().splitlines()]
    assert len(texts) == 200 and {len(text) for text in texts} <= set(range(8, 49))
    for text in texts:
        pairs = set(itertools.pairwise(text))
        assert len({word for word, _ in pairs}) == len(pairs)
    assert sum(len({*text}) < len(text) for text in texts) > 190


def test_patterns_are_found_where_they_were_put() -> None:
    """Head 0 looks at the word before, head 1 at the rarest word, head 2 at the full stop."""
    words = "the", "dog", "sees", "the", "emu", "."
    before, rare, stop = np.eye(6, k=-1), np.eye(6)[[4] * 6], np.eye(6)[[5] * 6]
    sentences = [Sentence(words, ("x",) * 6)] * 4
    maps = [{"layer": np.stack([before, rare, stop])}] * 4
    frequencies = Counter({"the": 9, "dog": 3, "sees": 3, "emu": 1})
    previous, _, rarest, delimiter = treebank_heads.patterns(sentences, maps, frequencies)
    heads = [(record["pattern"], record["head"]) for record in (previous, rarest, delimiter)]
    assert heads == [("previous", 0), ("rare", 1), ("delimiter", 2)]
    assert rarest["share"] == delimiter["share"] == rarest["low"] == 1.0
    assert rarest["chance"] == pytest.approx(1 / 6) and previous["share"] == 1.0


def test_entropy_is_a_share_of_the_most_that_it_could_be() -> None:
    """Of two heads, one even and one of a single word; a causal query sees its own words only."""
    even, sharp = np.full((3, 4), 0.25), np.eye(4)[:3]
    weights = np.stack([even, sharp])
    assert sharpness(AttentionMap(weights, "target", "source")) == pytest.approx([1.0, 0.0] * 3)
    causal = np.tril(np.ones((3, 3))) / np.arange(1, 4)[:, None]
    found = sharpness(AttentionMap(causal[None], "target_in", "target_in"))
    assert found == pytest.approx([1.0, 1.0])  # the first query sees one word
    half = np.array([[[0.5, 0.5, 0.0, 0.0]]])
    assert sharpness(AttentionMap(half, "source", "source")) == pytest.approx([0.5])


def test_names_lose_their_layer() -> None:
    assert place("decoder_11/cross_attention") == "decoder/cross_attention"
    assert place("attention") == "attention"


def test_gradients_of_the_first_and_the_last_fifth() -> None:
    lines = [json.dumps({"step": 10 * n, "grad_norm": float(n)}) for n in range(1, 11)]
    assert gradients([*lines, '{"step": 100, "loss": 1.0}']) == {"first": 1.5, "last": 9.5}
    assert gradients(lines[:1]) == {"first": 1.0, "last": 1.0}
    check_refused("no norm", gradients, ['{"step": 1, "loss": 2.0}'])


def test_groups_are_found_in_the_scores_of_a_trial() -> None:
    by = {"2": {"accuracy": 0.5, "questions": 4}, "16": {"accuracy": 1.0, "questions": 2}}
    assert of_scores({"loss": 1.0, "by_pairs": by}, "x") == ("pairs", {2: 0.5, 16: 1.0})
    with pytest.raises(UserError, match="results.json: its scores are not split up"):
        of_scores({"loss": 1.0}, "results.json")


def test_the_least_and_the_largest_are_named_where_seeds_differ() -> None:
    assert [spread_text([]), spread_text([0.5, 0.502]), spread_text([0.25, 0.75])] == [
        "",
        "0.50",
        "0.50 (0.25 to 0.75)",
    ]


def test_texts_are_the_same_every_time_and_have_no_new_words() -> None:
    found = rare_words.texts()
    assert found == rare_words.texts()
    assert {split: len(lines) for split, lines in found.items()} == rare_words.SIZES
    known = {word for text in found["train"] for word in text.split()}
    assert all(
        known.issuperset(text.split()) and 4 <= len(text.split()) <= 8
        for text in found["valid"] + found["test"]
    )


def test_words_are_counted_in_their_place_and_band(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = {"once": 1, "five": 5, "often": 30}
    answers = ["once often often", "", "five often once"]
    expected = [(2, 1), (2, 0), (0, 0), (2, 1)]
    assert rare_words.right(counts, ["once five often", "once", "often five"], answers) == expected
    rare_words.write(tmp_path)
    (tmp_path / "translations.txt").write_text((tmp_path / "test.src").read_text())
    assert rare_words.main([f"--directory={tmp_path}", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("1.000 of") == 4
    assert rare_words.main([]) == 2 and "name --write=FOLDER" in capsys.readouterr().err
