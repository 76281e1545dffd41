"""Examples one by one: scores of drawn test sets against sacrebleu's, counts by hand, the file, and
what is no such file: whatever is wrong with a .npz file is one kind of error.
"""

import io
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from attnlab.decoding.metrics import corpus_scores, sentence_counts
from attnlab.records.items import FILE, Items, arrays_of
from attnlab.records.json_kinds import Damaged
from tests.refusals import check_refused

WORDS = ["the", "a", "dog", "Man", "bites", "runs", "in", "of", "park", ",", ".", "big"]


def drawn(sentences: int, alike: float, seed: int = 0) -> tuple[list[str], list[str]]:
    """References, and hypotheses that have each of their words with some probability; some are
    blank, some have capitals.
    """
    rng = np.random.default_rng(seed)
    references = [" ".join(rng.choice(WORDS, rng.integers(1, 12))) for _ in range(sentences)]
    read = lambda word: word if rng.random() < alike else str(rng.choice(WORDS)).upper()
    changed = [" ".join(map(read, reference.split())) for reference in references]
    return [text if number % 7 else "" for number, text in enumerate(changed, 1)], references


@pytest.mark.quick
@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("alike", [0.0, 0.3, 0.7, 1.0])
def test_texts_are_scored_as_sacrebleu_scores_every_drawn_corpus(
    alike: float, lowercase: bool
) -> None:
    """To the last bit: the corpus itself, and corpora in which sentences stand several times or not
    at all.
    """
    hypotheses, references = drawn(20, alike)
    items = Items.of(sentence_counts(hypotheses, references, lowercase=lowercase))
    whole = corpus_scores(hypotheses, references, lowercase=lowercase)
    assert len(items) == 20 and {name: items.score(name) for name in items.rules} == {
        name: whole[name] for name in ("bleu", "chrf", "exact")
    }
    times = np.random.default_rng(1).multinomial(20, np.full(20, 1 / 20), size=6)
    times[-1] = np.eye(20, dtype=int)[6]  # a blank hypothesis alone
    for name, metric in (("bleu", BLEU(lowercase=lowercase)), ("chrf", CHRF(lowercase=lowercase))):
        expected = []
        for rows in (np.repeat(np.arange(20), count) for count in times):
            ours, theirs = ([texts[i] for i in rows] for texts in (hypotheses, references))
            expected.append(metric.corpus_score(ours, [theirs]).score)
        assert items.scores(name, times) == expected


def test_the_rules_by_hand() -> None:
    items = Items.of(
        {
            "loss": ("ratio", [[1.0, 2], [2.0, 4], [0.0, 0]]),
            "perplexity": ("perplexity", [[1.0, 2], [2.0, 4], [0.0, 0]]),
            "bits": ("bits", [[1.0, 2], [2.0, 3], [0.0, 0]]),
            "macro_f1": ("macro_f1", [[2, 0, 0, 2, 0, 0], [0, 0, 0, 1, 1, 0], [0, 2, 0, 0, 2, 0]]),
        }
    )
    assert items.score("loss") == 0.5 and items.score("perplexity") == math.exp(0.5)
    assert items.score("bits") == 3.0 / math.log(2) / 5
    # the third class is not there
    assert items.score("macro_f1") == pytest.approx((2 / 3 + 2 / 3) / 2)
    once, nothing = items.scores("loss", np.array([[2, 0, 1], [0, 0, 3]]))
    assert once == 0.5 and math.isnan(nothing)
    assert items.scores("macro_f1", np.array([[3, 0, 0]])) == [1.0]


def test_what_is_written_is_read_and_two_lines_of_numpy_read_it_too(tmp_path: Path) -> None:
    losses = np.float32([[0.1, 3], [0.2, 5]])
    items = Items.of({"exact": ("ratio", [[True, 1], [False, 1]]), "loss": ("ratio", losses)})
    items.write(tmp_path)
    content = (tmp_path / FILE).read_bytes()
    reread = Items.read(tmp_path)
    assert reread is not None and reread.rules == items.rules
    assert reread.score("loss") == items.score("loss") and len(reread) == 2
    reread.write(tmp_path)
    assert (tmp_path / FILE).read_bytes() == content and not list(tmp_path.glob(".*"))
    loaded = np.load(tmp_path / FILE)
    assert loaded["exact"].sum(axis=0).tolist() == [1, 2]
    assert dict(loaded["rules"]) == {"exact": "ratio", "loss": "ratio"}
    assert items.without(["loss"]).rules == {"exact": "ratio"}
    assert Items.read(tmp_path / "nowhere") is None


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    for content in (b"", b"no zip", b"PK\x03\x04 cut off"):
        (tmp_path / FILE).write_bytes(content)
        check_refused(r"items\.npz is damaged \(.*put back a good copy", Items.read, tmp_path)


REFUSED: list[tuple[Any, Any, str]] = [
    (("mean", [[1, 1]]), None, "'x' has the unknown rule 'mean'; choose from: bits, bleu"),
    (
        ("ratio", [1, 2]),
        None,
        r"'x' has rows of shape \(2,\); numbers \[examples,columns\] are needed",
    ),
    (("ratio", [["1", "2"]]), None, "numbers"),
    (
        ("ratio", [[1, 1]]),
        ("ratio", [[1, 1], [0, 1]]),
        "'x' has 1 rows, 'y' has 2 rows; one an exam",
    ),
]


def test_rows_that_make_no_score_are_refused() -> None:
    for x, y, words in REFUSED:
        check_refused(words, Items.of, {"x": x, **({"y": y} if y else {})})


def test_an_interval_of_a_mean_is_as_wide_as_its_standard_error_says() -> None:
    rows = np.stack([np.random.default_rng(0).normal(size=400), np.ones(400)], axis=1)
    error = rows[:, 0].std() / 20
    interval = Items.of({"mean": ("ratio", rows)}).interval("mean", 9999)
    expected = rows[:, 0].mean() + 1.96 * error * np.array([-1, 1])
    np.testing.assert_allclose(interval, expected, atol=0.11 * error)  # 4 errors of the quantiles


@pytest.mark.parametrize("right", [0, 3, 41])
def test_an_interval_of_a_share_is_wilsons(right: int) -> None:
    """All p that are no further from the share than 1.96 of the standard errors that p has."""
    rows = np.stack([np.arange(41) < right, np.ones(41)], axis=1)
    p = np.linspace(0, 1, 100_001)
    inside = p[np.abs(right / 41 - p) <= 1.959964 * np.sqrt(p * (1 - p) / 41)]
    interval = Items.of({"share": ("ratio", rows)}).interval("share", shares=True)
    np.testing.assert_allclose(interval, [inside.min(), inside.max()], atol=2e-5)


def packed(header: str, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A .npz file of an array with this header, and eight bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        length = len(header).to_bytes(2, "little")
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + length + header.encode() + bytes(8))
    return file.getvalue()


SHAPE = "{'descr': '<f8', 'fortran_order': False, 'shape': %s}"
WHOLE, LZMA = packed(SHAPE % "()"), packed(SHAPE % "()", zipfile.ZIP_LZMA)
SHAPES = ("(2,)", "(10**14,)", f"({10**14},)", "(-1,)", "(" * 500)
DAMAGED = {
    "nothing": b"",
    "no end": WHOLE[:40],
    "no mark of numpy": packed(SHAPE % "()", 0).replace(b"\x93NUMPY", b"0NUMPY0"),
    "bad LZMA": LZMA.replace(b"\x09\x04\x05\x00]", b"\x09\x04\x05\x00\xff"),
    "an unknown way of packing": WHOLE.replace(b"\x08\x00", b"\x63\x00"),
    "a password": WHOLE.replace(b"\x00\x00\x08\x00", b"\x01\x00\x08\x00"),
    **{shape[:9]: packed(SHAPE % shape) for shape in SHAPES},
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_damage_is_one_kind_of_error(content: bytes) -> None:
    with pytest.raises(Damaged, match="^no .npz file of plain arrays: .") as caught:
        arrays_of(content)
    assert "\n" not in str(caught.value)
