"""One version for each format of records: older ones are read as a table says, newer ones refused."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from attnlab.experiments.plan import Plan
from attnlab.records.manifest import Manifest
from tests.experiments.synthetic import edit, sweep
from tests.refusals import check_refused

ROOT = Path(__file__).resolve().parents[2]


HEADS = pytest.mark.parametrize("head", [Manifest, Plan])


def written(directory: Path, head: Any, **fields: object) -> Path:
    """The head of a record of version 1 with other fields."""
    (path,) = sweep(directory, {"a": (0.9,)}).rglob(f"{head.__name__.lower()}.json")
    edit(path, **fields)
    return path


@pytest.mark.quick
@HEADS
def test_a_record_without_a_version_is_of_the_first_and_stays_so(head: Any, tmp_path: Path) -> None:
    path = written(tmp_path, head)
    path.write_text(path.read_text().replace('"version": 1,', ""))
    for version in (1, 2):
        actual = head.read(path.parent)
        assert actual.version == version
        actual.write(path.parent)
        assert next(iter(json.loads(path.read_text()).items())) == ("version", version)
        edit(path, version=2)


@HEADS
@pytest.mark.parametrize("version", [0, 3, "2"])
def test_another_version_is_refused(version: object, head: Any, tmp_path: Path) -> None:
    """Whatever else is there."""
    path = written(tmp_path, head, version=version, unknown=1)
    words = f"is of version {version}, and this attnlab reads 1 to 2: use the attnlab that wrote it"
    check_refused("is damaged" if version == "2" else words, head.read, path.parent)


def test_the_page_on_reports_decides_on_all_that_an_older_record_may_lack() -> None:
    """Each is taken, translated, or refused; what the code reads beside version 2 stands there."""
    page = (ROOT / "docs" / "report.md").read_text()
    rows = re.findall(r"^\| (run|sweep) \| (.*) \| (\w+).* \|$", page, re.MULTILINE)
    assert {made for *_, made in rows} == {"taken", "translated", "refused"} and len(rows) == 19
    names = " ".join(lacking for _, lacking, _ in rows)
    for name in ("attempts", "items", "digests", "look", "looks", "examples"):
        assert re.search(rf"\b{name}\.\w+", names), name
