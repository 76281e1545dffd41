"""The maps of a text as a notebook shows them."""

import types
from pathlib import Path

import numpy as np
import pytest

import attnlab
from attnlab.api.maps import MEANINGS, atlas_example
from attnlab.systems.protocol import AttentionMap
from attnlab.tasks.maps import Chosen, ImageExample
from tests.commands.tiny import Runs


def test_a_notebook_shows_an_atlas(runs: Runs, tmp_path: Path) -> None:
    """All maps in a frame; saved, with the arrays beside it."""
    run, text = attnlab.load(runs("rnnsearch")[0]), ("4.5.1999", "1999-05-04")
    maps = run.maps(*text)
    with pytest.raises(attnlab.UserError, match="has no map of kind"):
        run.maps(*text, chosen=Chosen(kinds=("effective",)))
    shown = maps._repr_html_()
    assert shown.startswith('<iframe srcdoc="&lt;!doctype html&gt;') and "attention" in shown
    maps.save(tmp_path / "atlas.html")
    assert "4.5.1999" in (tmp_path / "atlas.html").read_text()
    saved = np.load(tmp_path / "maps.npz")["0/attention"]
    np.testing.assert_array_equal(saved, maps["attention"].weights)


def test_an_image_is_under_the_maps_of_its_places() -> None:
    image = np.zeros((4, 6, 3), np.uint8)
    system = types.SimpleNamespace(between=lambda name: ("hops", "image"), map_sides=("hops", ""))
    task = types.SimpleNamespace(system=system, grid=None)
    map_ = AttentionMap(np.full((1, 1, 6), 1 / 6), ["hop 1"], [str(n) for n in range(6)])
    example = atlas_example(task, ImageExample("x.png", image, "cat"), {"glance": map_}, "run")
    (part,) = example.maps
    assert (example.title, example.model, part.grid) == ("x.png  ->  cat", "run", (2, 3))
    assert part.statistics.keys() == MEANINGS.keys()
    np.testing.assert_allclose(part.statistics["entropy"], [np.log(6)])
