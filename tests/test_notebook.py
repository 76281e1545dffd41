"""The notebook of docs/examples runs from top to bottom in a new kernel, and finds what it says."""

import os
from pathlib import Path

import pytest

from tests.flags import FAST

NOTEBOOK = Path(__file__).resolve().parents[1] / "docs" / "examples" / "look_inside.ipynb"
FOUND = "assert right > 0.9 and strongest['restored'] > 0.5, (right, strongest)"


@pytest.mark.full
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nbclient", "nbformat", "ipykernel"):
        pytest.importorskip(name, reason="needs pip install 'attnlab[notebook]'")
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(NOTEBOOK.parents[2]), prepend=os.pathsep)
    monkeypatch.setenv("XLA_FLAGS", FAST)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    notebook.cells.append(nbformat.v4.new_code_cell(FOUND))
    client = NotebookClient(notebook, timeout=280, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    pictures = [
        out
        for cell in notebook.cells
        for out in cell.get("outputs", ())
        if "image/png" in out.get("data", {})
    ]
    assert len(pictures) == 2
