"""Pictures of weights over an image."""

from pathlib import Path

import numpy as np
import pytest

from attnlab.analysis.overlays import PANELS, save_overlay
from tests.analysis.test_maps import pixels


def test_weights_lie_over_their_part_of_the_image(tmp_path: Path) -> None:
    import matplotlib

    image = np.full((10, 20, 3), 255, np.uint8)
    weights = np.zeros((2, 2, 4))
    weights[0, 1, 0] = 0.25  # at the bottom, on the left
    save_overlay(tmp_path / "new" / "one.png", image, weights, ["word", "<b$"], "title $")
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
    for number in (PANELS, PANELS + 1):
        weights = np.full((number, 2, 2), np.nan)
        save_overlay(tmp_path / "one.png", image, weights, [str(one) for one in range(number)])
        sizes.append(pixels(tmp_path / "one.png").shape)
    assert sizes[0] == sizes[1]


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    for channels, maps, rows in ((2, 1, 1), (3, 1, 2), (3, 0, 0)):
        image, weights = np.zeros((4, 4, channels), np.uint8), np.zeros((maps, 2, 2))
        with pytest.raises(ValueError, match="expected"):
            save_overlay(tmp_path / "one.png", image, weights, ["x"] * rows)
