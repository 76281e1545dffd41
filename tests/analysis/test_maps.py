"""Pictures and arrays of attention."""

import pathlib
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

from attnlab.analysis import maps


def pixels(path: pathlib.Path) -> np.ndarray:
    """The PNG's pixels, [height,width,4], 0..1."""
    import matplotlib.image

    return np.asarray(matplotlib.image.imread(path))


def count(picture: np.ndarray, colour: Any) -> int:
    """How many pixels have (nearly) this colour."""
    return int(np.all(np.abs(picture[..., :3] - np.asarray(colour)[:3]) < 0.01, axis=-1).sum())


@pytest.mark.quick
def test_a_map_is_drawn_with_target_rows_and_source_columns(tmp_path: pathlib.Path) -> None:
    import matplotlib

    weights = np.zeros((2, 4))
    weights[1, 0] = 1.0  # second target token, first source token: bottom left
    maps.save_map(tmp_path / "new" / "map.png", weights, list("abcd"), list("xy"), "title")
    yellow, purple = matplotlib.colormaps["viridis"]([1.0, 0.0])
    picture = pixels(tmp_path / "new" / "map.png")
    cells = np.all(np.abs(picture[..., :3] - yellow[:3]) < 0.01, axis=-1)
    others = np.all(np.abs(picture[..., :3] - purple[:3]) < 0.01, axis=-1)
    assert cells.sum() > 500 and others.sum() > 5 * cells.sum()
    left = others[:, : picture.shape[1] * 2 // 3]
    (row, column), middle = (np.median(np.nonzero(found), axis=1) for found in (cells, left))
    assert row > middle[0] and column < middle[1]


def test_colours_mean_the_same_in_every_picture(tmp_path: pathlib.Path) -> None:
    """A map of halves must not be stretched to the full scale; values beyond take the end colour
    and NaN is red.
    """
    import matplotlib

    half, top = matplotlib.colormaps["viridis"]([0.5, 1.0])
    maps.save_map(tmp_path / "half.png", np.full((1, 2), 0.5), ["a", "b"], ["c"])
    assert count(pixels(tmp_path / "half.png"), half) > 5000
    maps.save_map(tmp_path / "beyond.png", np.array([[7.0, np.nan]]), ["a", "b"], ["c"])
    assert count(pixels(tmp_path / "beyond.png"), top) > 2000
    assert count(pixels(tmp_path / "beyond.png"), (1, 0, 0)) > 2000


def test_any_token_can_be_drawn_without_a_warning(tmp_path: pathlib.Path) -> None:
    tokens = ["$", "$x^2$", "$\\frac{$", "你好", "\U0001f9ff", "a\nb", "\t", " ", "", "\ud800"]
    tokens += ["▁der", "x" * 300, "</s>"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        maps.save_map(tmp_path / "map.png", np.eye(len(tokens)), tokens, tokens, "$\\frac{$ costs")
    assert pixels(tmp_path / "map.png").shape[0] < 1000


def test_shapes_that_do_not_go_with_the_tokens_are_refused(tmp_path: pathlib.Path) -> None:
    for shape in ((3, 2), (1, 1, 2, 3), (4,), (0, 2, 3)):
        with pytest.raises(ValueError, match="do not go with the labels of 2 rows and 3 columns"):
            maps.save_map(tmp_path / "map.png", np.zeros(shape), ["a", "b", "c"], ["d", "e"])
    assert not list(tmp_path.iterdir())


def test_arrays_come_back_without_pickle(tmp_path: pathlib.Path) -> None:
    weights = {
        "decoder/0/cross": np.random.default_rng(0).random((2, 3, 4), np.float32),
        "encoder/0": np.ones((1, 4, 4)),
    }
    labels = {"source_tokens": ["a", "你", "", "</s>"], "target_tokens": ["x", "yy", "z"]}
    maps.save_arrays(tmp_path / "maps.npz", weights, labels)
    with np.load(tmp_path / "maps.npz", allow_pickle=False) as stored:
        assert set(stored) == {*weights, "source_tokens", "target_tokens"}
        np.testing.assert_array_equal(stored["decoder/0/cross"], weights["decoder/0/cross"])
        assert stored["decoder/0/cross"].dtype == np.float32
        assert stored["source_tokens"].tolist() == ["a", "你", "", "</s>"]
        assert stored["target_tokens"].tolist() == ["x", "yy", "z"]
    with pytest.raises(ValueError, match="source_tokens"):
        maps.save_arrays(tmp_path / "other.npz", {"source_tokens": np.ones(1)}, labels)


def test_pyplot_is_not_touched(tmp_path: pathlib.Path) -> None:
    code = "import sys, numpy; from attnlab.analysis import maps; assert 'matplotlib' not in sys.modules"
    code += f"; maps.save_map({str(tmp_path / 'm.png')!r}, numpy.eye(2), 'ab', 'cd')"
    code += "; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_arcs_are_the_looks_at_others_strongest_last(tmp_path: pathlib.Path) -> None:
    weights = np.array([[1.0, 0.0, 0.0], [0.7, 0.3, 0.0], [0.04, 0.9, 0.06]])
    assert maps.arcs(weights) == [(1, 0, 0.7), (2, 1, 0.9)]
    assert maps.arcs(weights.T) == [(0, 1, 0.7), (1, 2, 0.9)]
    assert maps.arcs(np.full((2, 2), np.nan)) == []
    for one in (weights, np.stack([weights, weights.T]), np.ones((1, 1))):
        maps.save_arcs(tmp_path / "x.png", one, ["a", "bb", "你"][: one.shape[-1]], title="of")
        assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="do not go with"):
        maps.save_arcs(tmp_path / "no.png", weights, ["a", "b"])


def test_an_arc_leads_from_token_to_token_over_or_under_the_line() -> None:
    for here, there, side in ((4, 1, 1), (1, 4, -1)):
        points = maps._arc(here, there, np.linspace(0, np.pi, 33), 5)
        np.testing.assert_allclose(points[[0, -1]], [[4, 0], [1, 0]], atol=1e-12)
        assert (side * points[1:-1, 1] > 0).all()
        assert np.abs(points[:, 1]).max() == pytest.approx(3 / 4)


@pytest.mark.quick
def test_weights_below_zero_are_told_from_weights_of_zero(tmp_path: pathlib.Path) -> None:
    """A map with negative weights (differential, talking heads) has colours of its own, zero in
    their middle, and its bar says so.
    """
    import matplotlib

    maps.save_map(tmp_path / "signed.png", np.array([[-0.5, 0.0, 0.5]]), ["a", "b", "c"], ["d"])
    picture = pixels(tmp_path / "signed.png")
    shades = [count(picture, matplotlib.colormaps["RdBu"](place)) for place in (0.25, 0.5, 0.75)]
    assert min(shades) > 1000 and count(picture, matplotlib.colormaps["viridis"](0.0)) == 0
    # rounding below zero is zero
    maps.save_map(tmp_path / "dust.png", np.array([[-1e-9, 0.0, 0.5]]), ["a", "b", "c"], ["d"])
    assert count(pixels(tmp_path / "dust.png"), matplotlib.colormaps["viridis"](0.0)) > 1000


def test_a_picture_has_a_byte_for_a_pixel(tmp_path: pathlib.Path) -> None:
    """Reports hold many of them: byte 25 of a PNG says how its colours are kept, 3 is a palette."""
    weights = np.random.default_rng(0).random((4, 20, 20))
    maps.save_map(tmp_path / "map.png", weights, ["token"] * 20, ["token"] * 20)
    data = (tmp_path / "map.png").read_bytes()
    assert data[25] == 3 and len(data) < 40_000
