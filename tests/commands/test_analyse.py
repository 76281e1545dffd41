"""`analyse` writes a page and tables, and prints what each layer and head costs."""

import base64
import csv
from pathlib import Path

import pytest

from attnlab.pages.tables import number
from tests.commands.tiny import Runs, completed, refused


def test_a_page_and_tables(runs: Runs, tmp_path: Path) -> None:
    """The numbers of the page are those of the files; the table fits 100 columns."""
    workdir, out = runs("transformer")[0], tmp_path / "inside"
    ended = completed(["analyse", str(workdir), "--examples=4", f"--output={out}"])
    names = {"analysis.html", "atlas.html", "maps.npz", "heads.csv", "costs.csv"}
    names |= {"costs.png", "pruning.png"}
    assert {path.name for path in out.iterdir()} == names
    table = [line for line in ended.out.splitlines() if str(tmp_path) not in line][1:]
    assert max(map(len, table)) <= 100 and table[0].split()[:3] == ["layer", "head", "zero"]
    with (out / "heads.csv").open() as file:
        heads = list(csv.DictReader(file))
    with (out / "costs.csv").open() as file:
        costs = list(csv.DictReader(file))
    assert {x["map"] for x in heads} == {x["place"].rpartition("/")[0] for x in costs}
    assert {x["kind"] for x in costs} == {"zero", "mean", "resample", "uniform"}
    off = next(x for x in costs if (x["head"], x["kind"]) == ("0", "zero"))
    assert any(f" {number(float(off['cost']))} [" in line for line in table)
    page = (out / "analysis.html").read_text()
    for name in ("costs.png", "pruning.png"):
        assert base64.b64encode((out / name).read_bytes()).decode() in page
    assert 'href="atlas.html"' in page and "Wiegreffe and Pinter" in page


@pytest.mark.parametrize(
    "flag, line",
    [
        ("--split=vali", "did you mean 'valid'"),
        ("--examples=0", "is no whole number from 1 to 100,000"),
        ("--conllu=absent.conllu", "absent.conllu"),
    ],
)
def test_a_wrong_flag_gets_one_line(runs: Runs, flag: str, line: str, tmp_path: Path) -> None:
    out = tmp_path / "inside"
    assert line in refused("analyse", str(runs("transformer")[0]), flag, f"--output={out}")
    assert not out.exists()
