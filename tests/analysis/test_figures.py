"""Pictures as files for papers: every ending, every script, and no text over another; curves, costs
of heads, weights over an image.
"""

import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.text import Text

from attnlab.analysis import figures, labels, maps
from attnlab.analysis.alignment import Gold
from attnlab.errors import UserError
from tests.analysis.test_maps import count, pixels

KINDS = ("map", "arcs", "grid", "layers", "curve", "overlay")


def draw(path: Any, kind: str, tokens: Sequence[str] = "abc", width: float | None = 3.3) -> None:
    """Draws a picture of this kind with these tokens, or names of layers."""
    weights, title = np.full((2, len(tokens), len(tokens)), 1 / len(tokens)), " ".join(tokens)
    records = [{"map": token, "head": 0, "entropy": 1.0} for token in tokens]
    calls: dict[str, tuple[Callable[..., None], Any]] = {
        "map": (maps.save_map, (weights, tokens, tokens, title, width)),
        "arcs": (maps.save_arcs, (weights, tokens, title, width)),
        "grid": (maps.save_head_grid, (dict.fromkeys(tokens, weights), title, width)),
        "layers": (figures.save_by_layer, (records, "entropy", title, width or 6.4)),
        "curve": (figures.save_curve, ({tokens[0]: [(0, 1), (1, 0)]}, title)),
        "overlay": (figures.save_overlay, (np.zeros((4, 4, 1), "u1"), weights, tokens[:2], title)),
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
    marks = figure_of(monkeypatch, figures.save_by_layer, records, "cost").axes[0].collections
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


BLUE = (0x1F / 255, 0x77 / 255, 0xB4 / 255)


def test_a_curve_is_drawn_with_every_series(tmp_path: Path) -> None:
    series = {
        "train $\\frac{$": [(i, 5 / (1 + i)) for i in range(50)],
        "_valid": [(0, 5.0), (40, float("nan")), (49, 1.0)],
        "empty": [],
    }
    figures.save_curve(tmp_path / "loss.png", series, "run_1 $\\frac{$")
    figures.save_curve(tmp_path / "nothing.png", {})
    picture = pixels(tmp_path / "loss.png")
    assert count(picture, BLUE) > 300
    assert (tmp_path / "nothing.png").stat().st_size > 1000


def test_bars_reach_from_the_lower_to_the_upper_end(tmp_path: Path) -> None:
    """Rows that hold the colour of the line: many more with a long bar than with none."""
    points = {"one": [(1.0, 0.5), (2.0, 0.5), (8.0, 0.5)]}
    figures.save_curve(tmp_path / "none.png", points, doubling=True)
    bars = {"one": [(0.5, 0.5), (0.0, 1.0), (0.5, 0.5)]}
    figures.save_curve(tmp_path / "bars.png", points, bars=bars, doubling=True)
    plain, barred = (pixels(tmp_path / f"{name}.png") for name in ("none", "bars"))
    # blue, a half-transparent bar included
    rows = [
        (picture[..., 2] - picture[..., 0] > 0.2).any(axis=1).sum() for picture in (plain, barred)
    ]
    assert rows[1] > 5 * rows[0]


def records(*rows: tuple[str, int | None, str, float]) -> list[dict[str, Any]]:
    """Costs of parts, as a table of ablations has them."""
    return [dict(zip(("place", "head", "kind", "cost"), row, strict=True)) for row in rows]


def texts_of(picture: Path) -> str:
    """The texts of an SVG, in their order."""
    return " ".join(re.findall("<!-- (.*?) -->", picture.read_text()))


def test_costs_of_heads_are_cells_with_their_numbers(tmp_path: Path) -> None:
    """Layers may have other numbers of heads; the scale is that of heads, whatever a layer costs."""
    costs = records(
        ("first/attention/heads", 0, "zero", 0.25),
        ("first/attention/heads", 0, "mean", 77.0),
        ("first/attention/layer", None, "zero", 33.0),
        ("second/attention/heads", 0, "zero", 0.0),
        ("second/attention/heads", 1, "zero", -0.25),
    )
    figures.save_costs(tmp_path / "costs.svg", costs, title="costs")
    numbers = "0.25 33.00 0.00 -0.25"
    expected = f"0 1 layer first/attention second/attention {numbers} costs"
    assert texts_of(tmp_path / "costs.svg") == expected
    figures.save_costs(tmp_path / "costs.png", costs)
    picture = pixels(tmp_path / "costs.png")
    dark_red, dark_blue = (0x67 / 255, 0, 0x1F / 255), (0x05 / 255, 0x30 / 255, 0x61 / 255)
    assert 1.7 < count(picture, dark_blue) / count(picture, dark_red) < 2.3
    with pytest.raises(ValueError, match="no record is of the kind 'uniform'"):
        figures.save_costs(tmp_path / "none.png", costs, "uniform")


def test_costs_that_are_infinite_have_no_number_and_tiny_ones_few_digits(tmp_path: Path) -> None:
    costs = records(
        ("first/heads", 0, "zero", float("inf")),
        ("first/heads", 1, "zero", 3e-9),
        ("first/layer", None, "zero", 1.5),
    )
    figures.save_costs(tmp_path / "costs.svg", costs)
    assert texts_of(tmp_path / "costs.svg") == "0 1 layer first 0.0000 1.5000"


def test_weights_lie_over_their_part_of_the_image(tmp_path: Path) -> None:
    import matplotlib

    image = np.full((10, 20, 3), 255, np.uint8)
    weights = np.zeros((2, 2, 4))
    weights[0, 1, 0] = 0.25  # at the bottom, on the left
    figures.save_overlay(tmp_path / "new" / "one.png", image, weights, ["word", "<b$"], "title $")
    picture = pixels(tmp_path / "new" / "one.png")
    colours = 0.6 * matplotlib.colormaps["inferno"]([1.0, 0.0])[:, :3] + 0.4
    hot, cold = (np.all(np.abs(picture[..., :3] - one) < 0.02, axis=-1) for one in colours)
    rows, columns = np.nonzero(hot)
    assert len(rows) > 500
    places = np.nonzero(cold[:, : picture.shape[1] * 2 // 3])  # of the first panel of weights
    assert 6 < len(places[0]) / len(rows) < 8  # one of eight parts is hot
    assert rows.min() > np.median(places[0]) and columns.max() < np.median(places[1])


def test_so_many_rows_are_drawn_and_not_more(tmp_path: Path) -> None:
    image = np.zeros((4, 4, 1), np.uint8)
    sizes = []
    for number in (figures.PANELS, figures.PANELS + 1):
        weights = np.full((number, 2, 2), np.nan)
        names = [str(row) for row in range(number)]
        figures.save_overlay(tmp_path / "one.png", image, weights, names)
        sizes.append(pixels(tmp_path / "one.png").shape)
    assert sizes[0] == sizes[1]


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    for channels, number, rows in ((2, 1, 1), (3, 1, 2), (3, 0, 0)):
        image, weights = np.zeros((4, 4, channels), np.uint8), np.zeros((number, 2, 2))
        with pytest.raises(ValueError, match="expected"):
            figures.save_overlay(tmp_path / "one.png", image, weights, ["x"] * rows)
