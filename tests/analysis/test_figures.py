"""Pictures as files for papers: every ending, every script, and no text over another."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.text import Text

from attnlab.analysis import curves, figures, labels, maps, overlays
from attnlab.analysis.alignment import Gold
from attnlab.errors import UserError

KINDS = ("map", "arcs", "grid", "layers", "curve", "overlay")


def draw(path: Any, kind: str, tokens: Sequence[str] = "abc", width: float | None = 3.3) -> None:
    """Draws a picture of this kind with these tokens, or names of layers."""
    weights, title = np.full((2, len(tokens), len(tokens)), 1 / len(tokens)), " ".join(tokens)
    records = [{"map": token, "head": 0, "entropy": 1.0} for token in tokens]
    calls: dict[str, tuple[Callable[..., None], Any]] = {
        "map": (maps.save_map, (weights, tokens, tokens, title, width)),
        "arcs": (maps.save_arcs, (weights, tokens, title, width)),
        "grid": (maps.save_head_grid, (dict.fromkeys(tokens, weights), title, width)),
        "layers": (curves.save_by_layer, (records, "entropy", title, width or 6.4)),
        "curve": (curves.save_curve, ({tokens[0]: [(0, 1), (1, 0)]}, title)),
        "overlay": (overlays.save_overlay, (np.zeros((4, 4, 1), "u1"), weights, tokens[:2], title)),
    }
    calls[kind][0](path, *calls[kind][1])


@pytest.mark.parametrize("kind", KINDS)
def test_equal_pictures_give_equal_bytes_in_every_format(kind: str, tmp_path: Path) -> None:
    for ending, start in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")):
        for name in "ab":
            draw((tmp_path / name).with_suffix(ending), kind)
        data, again = (path.read_bytes() for path in tmp_path.glob(f"*{ending}"))
        assert data == again and data.startswith(start)
    assert b"/FontFile2" in data and b"/Type3" not in data
    assert "<text" not in (tmp_path / "a.svg").read_text()
    with pytest.raises(UserError, match=r"a\.jpg: .*\.png, \.svg or \.pdf$"):
        draw(tmp_path / "a.jpg", kind)
    assert len(list(tmp_path.iterdir())) == 6


def figure_of(patch: pytest.MonkeyPatch, save: Callable[..., None], *options: Any) -> Any:
    """The figure that a function would write."""
    drawn: list[Any] = []
    patch.setattr(figures, "figure_bytes", lambda figure, _: drawn.append(figure) or b"")
    patch.setattr(figures, "write_file", lambda *_: None)
    save("x.png", *options)
    return drawn[0]


WORDS = "الترجمة مُعَلِّم द्वन्द्व हिन्दी 注意力 では 학교에 Ångström gjpq </s>"
MANY = [f"{word}{i}" for i in range(13) for word in WORDS.split()][:128]
LONG = ["Donaudampfschifffahrtsgesellschaft", *(5 * word for word in WORDS.split())]


@pytest.mark.parametrize("width", [None, 3.3])
@pytest.mark.parametrize("tokens", [WORDS.split(), LONG, MANY], ids=["words", "long", "many"])
@pytest.mark.parametrize("kind", KINDS[:4])
def test_no_text_lies_over_another_or_leaves_the_picture(
    kind: str, tokens: list[str], width: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure, drawn = figure_of(monkeypatch, draw, kind, tokens, width), set[Text]()
    monkeypatch.setattr(Text, "draw", lambda text, _: drawn.add(text))
    figure.canvas.draw()
    texts = [text for text in drawn if text.get_visible() and text.get_text()]
    boxes = [text.get_window_extent().padded(-0.5) for text in texts]
    assert len(boxes) > (len(tokens) if width is None and kind != "layers" else 5)
    assert not [pair for pair in itertools.combinations(boxes, 2) if pair[0].overlaps(pair[1])]
    low, high = (np.array([getattr(box, end) for box in boxes]) for end in ("min", "max"))
    assert (low >= -1).all() and (high <= figure.bbox.max + 1).all()


def test_links_heads_and_numbers_stand_at_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    eye, gold = np.eye(3), Gold(frozenset({(0, 1)}), frozenset({(0, 1), (2, 0)}))
    figure = figure_of(monkeypatch, maps.save_map, eye, "abc", "abc", "", None, gold)
    places = [mark.get_offsets().tolist() for mark in figure.axes[0].collections]
    assert places == [[[0, 1]], [[0, 1]], [[2, 0]], [[2, 0]]]  # (column, row), sure ones first
    with pytest.raises(ValueError, match=r"link \(2, 0\) in a map of 2 columns"):
        maps.save_map("x.png", eye[:, :2], "ab", "abc", gold=gold)
    two = {"a": eye[None], "b": np.stack([eye, -2 * eye])}
    images = figure_of(monkeypatch, maps.save_head_grid, two).axes[0].images
    heads = {tuple(np.round(i.get_extent()[::2])): i.get_array()[0, 0] for i in images}
    assert heads == {(0, 0): 1, (0, 1): 1, (1, 1): -1}  # (head, row), by the largest of each
    numbers = (("a", 0.5), ("a", 2.0), ("b", 1.0), ("b", np.nan))
    records = [{"place": name, "cost": y, "interval": (0, y)} for name, y in numbers]
    marks = figure_of(monkeypatch, curves.save_by_layer, records, "cost").axes[0].collections
    dots = [[round(x), y] for dots in marks[2::3] for x, y in dots.get_offsets()]
    bars = [bar[:, 1].tolist() for bars in marks[::3] for bar in bars.get_segments()]
    assert (dots, bars) == ([[0, 0.5], [0, 2], [1, 1]], [[0, 0.5], [0, 2], [0, 1]])


def test_texts_are_shaped_and_run_from_right_to_left() -> None:
    """DejaVu Sans, which comes with matplotlib, has Arabic and Hebrew letters."""
    assert labels.extent("ببب")[0] < 0.8 * 3 * labels.extent("ب")[0]  # joined
    runs = {}
    for text in ("ו", "ש", "וש"):
        figure: Any = figures.figure_of(2, 2)
        figure.text(0.1, 0.1, text, **figures.text_style(60, text))
        figure.canvas.draw()
        ink = (np.asarray(figure.canvas.buffer_rgba())[..., 0] < 128).any(axis=0)
        runs[text] = np.diff(np.flatnonzero(np.diff(ink.astype(int))))[::2].tolist()
    assert runs["וש"] == pytest.approx([*runs["ש"], *runs["ו"]], abs=1)


def test_a_script_without_a_font_is_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(labels, "_installed", lambda: frozenset({"DejaVu Sans"}))
    monkeypatch.setattr(labels, "_font_of", labels._font_of.__wrapped__)
    labels.note.cache_clear()
    assert labels.label("aध注") == "a\\u0927\\u6ce8" and labels.label("ध") == "\\u0927"
    devanagari, cjk = capsys.readouterr().err.splitlines()
    assert "no font for Devanagari: pip install 'attnlab[fonts]'" in devanagari and "CJK" in cjk
