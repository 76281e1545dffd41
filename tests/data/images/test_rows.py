"""Images in tables: names of files or bytes; with labels or captions."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from attnlab.data.images.rows import ImageRows
from attnlab.errors import UserError

COLOURS = ("red", "blue", "red")


def png(colour: str) -> bytes:
    Image.new("RGB", (4, 3), colour).save(file := io.BytesIO(), "PNG")
    return file.getvalue()


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    monkeypatch.setenv("ATTNLAB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "images").mkdir()
    for colour in COLOURS:
        (tmp_path / "images" / f"{colour}.png").write_bytes(png(colour))
    return [{"image": f"images/{c}.png", "label": c, "caption": f"a {c}"} for c in COLOURS]


def test_every_task_of_images(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    """From names, and from the bytes that `datasets` has; an image that is named twice is one."""
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    source = ImageRows(str(tmp_path), side=2)
    images, labels = source.images("train")
    assert [*labels] == [*COLOURS] and images.shape == (3, 2, 2, 3) and source.shape == (2, 2, 3)
    assert images[:, 0, 0].tolist() == [[255, 0, 0], [0, 0, 255], [255, 0, 0]]
    assert source.captions("train").captions == ["a red", "a blue", "a red"]
    import pyarrow
    from pyarrow import parquet

    packed = [row | {"image": {"bytes": png(row["label"]), "path": None}} for row in rows]
    (tmp_path / "packed").mkdir()
    parquet.write_table(pyarrow.Table.from_pylist(packed), tmp_path / "packed" / "train.parquet")
    for _ in range(2):
        again = ImageRows(str(tmp_path / "packed"), side=2).images("train")
        assert np.array_equal(again.images, images) and again.labels == labels


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image": "images/green.png"}, "train.jsonl, line 1: .*cannot find|cannot find"),
        ({"image": "a\0.png"}, "line 1: an image is the name of a file or bytes"),
        ({"image": 3}, "line 1: an image is the name of a file or bytes, not 3"),
        ({"label": None}, "line 1: column 'label' is blank"),
    ],
)
def test_what_is_no_image(
    rows: list[dict[str, Any]], change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    (tmp_path / "train.jsonl").write_text(json.dumps(rows[0] | change))
    with pytest.raises(UserError, match=message):
        ImageRows(str(tmp_path)).images("train")
    with pytest.raises(UserError, match="config.data.side=-1 must be in 0"):
        ImageRows(side=-1)
