"""Texts whose words follow Zipf's law, and words that were copied by how often they stood in the
training texts.
"""

from pathlib import Path

import pytest

from benchmarks import rare_words

pytestmark = pytest.mark.quick


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
