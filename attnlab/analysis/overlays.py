"""Pictures of where a system looks in an image: the image, and beside it the image in grey under the
weights, a panel for each row that looks.

The colours of a panel go from 0 to its largest number, which is written above it: a small weight
everywhere and a large one somewhere are both seen. Axis letters: H and W of the image, C channels,
R rows that look, h and w of the grid of weights.
"""

import math
from collections.abc import Sequence

import numpy as np

from attnlab.analysis.figures import File, add_panel, add_title, figure_of, save_figure, text_style
from attnlab.analysis.labels import label

PANELS = 24  # rows that are drawn; further ones are only in the arrays
_ACROSS = 6
_SIDE = 1.5  # inches
_ROOM = 0.3  # inches above a panel, for its name


def save_overlay(
    path: File,
    image: np.ndarray,
    weights: np.ndarray,
    rows: Sequence[str],
    title: str = "",
) -> None:
    """Draws into the picture `path` (.png, .svg or .pdf) an image [H,W,C] and, beside it, the image
    in grey under each of the first `PANELS` maps of `weights` [R,h,w] with its name in `rows`;
    raises `ValueError` if shapes do not fit or there is no map.

    Args:
      image: [H,W,C] uint8, C 1 or 3.
      weights: [R,h,w], 0 or more; each covers an equal part of the image.
      rows: the names of the R rows.

    Raises:
      ValueError: the shapes do not fit, or there is nothing to draw.
    """
    weights = np.asarray(weights, np.float64)
    if image.ndim != 3 or image.shape[-1] not in (1, 3):
        raise ValueError(f"an image {list(image.shape)}: expected [H,W,1] or [H,W,3]")
    if weights.ndim != 3 or not weights.size or len(weights) != len(rows):
        raise ValueError(f"weights {list(weights.shape)} for {len(rows)} rows: expected [R,h,w]")
    drawn = min(len(rows), PANELS)
    across = min(drawn + 1, _ACROSS)
    down = math.ceil((drawn + 1) / across)
    figure = figure_of(0.1 + across * (_SIDE + 0.1), 0.3 + down * (_SIDE + _ROOM))
    add_title(figure, title)
    grey = image.mean(axis=-1) / 255
    extent = (0.0, float(image.shape[1]), float(image.shape[0]), 0.0)
    for number in range(drawn + 1):
        row, column = divmod(number, across)
        left, top = 0.1 + column * (_SIDE + 0.1), 0.3 + row * (_SIDE + _ROOM) + _ROOM
        panel = add_panel(figure, left, top, _SIDE, _SIDE)
        panel.set_axis_off()
        if number == 0:
            panel.imshow(image.squeeze(-1) if image.shape[-1] == 1 else image, cmap="gray")
            continue
        values = np.where(np.isfinite(weights[number - 1]), weights[number - 1], 0.0)
        most = float(values.max())
        panel.imshow(grey, cmap="gray", vmin=0, vmax=1, extent=extent)
        panel.imshow(values, cmap="inferno", vmin=0, vmax=most or 1.0, alpha=0.6, extent=extent)
        name = label(rows[number - 1], longest=14)
        panel.set_title(f"{name}  {most:.2f}", pad=2, **text_style(8, name))
    save_figure(figure, path)
