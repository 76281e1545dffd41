"""The maps of a text as a notebook shows them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import attnlab
from tests.commands.tiny import Runs


def test_a_notebook_shows_an_atlas(runs: Runs, tmp_path: Path) -> None:
    """All maps in a frame; saved, with the arrays beside it."""
    maps = attnlab.load(runs("rnnsearch")[0]).maps("4.5.1999", "1999-05-04")
    shown = maps._repr_html_()
    assert shown.startswith('<iframe srcdoc="&lt;!doctype html&gt;') and "attention" in shown
    maps.save(tmp_path / "atlas.html")
    assert "4.5.1999" in (tmp_path / "atlas.html").read_text()
    saved = np.load(tmp_path / "maps.npz")["0/attention"]
    np.testing.assert_array_equal(saved, maps["attention"].weights)
