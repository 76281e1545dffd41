"""What the scripts that describe looks and lengths say of weights and sentences that are known."""

import numpy as np
import pytest
from ml_collections import ConfigDict

from attnlab.errors import UserError
from benchmarks import by_length, looks
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
