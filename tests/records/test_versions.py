"""One version for each format of records: older ones are read as a table says, newer ones refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from attnlab.errors import UserError
from attnlab.experiments.plan import Plan
from attnlab.records.manifest import Manifest
from attnlab.records.versions import RUN, SWEEP
from tests.experiments.synthetic import sweep

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.quick
@pytest.mark.parametrize(("newest", "file"), [(RUN, "manifest.json"), (SWEEP, "plan.json")])
@pytest.mark.parametrize("version", [None, 1, 2, 3, 0, "2"])
def test_a_record_without_a_version_is_of_the_first_and_a_newer_one_is_refused(
    version: object, newest: int, file: str, tmp_path: Path
) -> None:
    """Also where it has fields that nobody here knows."""
    sweep(tmp_path, {"a": (0.9,)})
    (path,) = tmp_path.rglob(file)
    fields = {
        name: field for name, field in json.loads(path.read_text()).items() if name != "version"
    }
    known = version in (None, 1, 2)
    fields |= ({} if version is None else {"version": version}) | ({} if known else {"new": 1})
    path.write_text(json.dumps(fields))
    head = Plan if file == "plan.json" else Manifest
    if known:
        found = head.read(path.parent)
        assert found is not None and found.version == (version or 1)
        found.write(path.parent)
        assert next(iter(json.loads(path.read_text()).items())) == ("version", version or 1)
        return
    words = (
        "damaged" if version == "2" else f"of version {version}, and this attnlab reads 1 to 2: use"
    )
    with pytest.raises(UserError, match=f"{file} is {words}"):
        head.read(path.parent)


def test_the_page_on_reports_decides_on_all_that_an_older_record_may_lack() -> None:
    """Each is taken, translated, or refused; what the code reads beside version 2 stands there."""
    page = (ROOT / "docs" / "report.md").read_text()
    rows = re.findall(r"^\| (run|sweep) \| (.*) \| (\w+).* \|$", page, re.MULTILINE)
    assert {made for *_, made in rows} == {"taken", "translated", "refused"} and len(rows) == 19
    names = " ".join(lacking for _, lacking, _ in rows)
    for name in ("attempts", "items", "digests", "look", "looks", "examples"):
        assert re.search(rf"\b{name}\.\w+", names), name
