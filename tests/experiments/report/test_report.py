"""The whole report: its files, the same bytes for the same records, and no jax; and the page of a
sweep at work, which is written anew until the sweep is over.
"""

import io
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from attnlab.commands import main
from attnlab.experiments.report import report
from attnlab.records.attempts import Attempt
from attnlab.records.locks import RunLock
from tests.experiments.synthetic import SCORES, sweep, workdir
from tests.refusals import check_refused

ROOT = Path(__file__).resolve().parents[3]
FILES = ("report.md", "report.csv", "report.html", "report.json", "trials.csv", "report.tex")


@pytest.mark.quick
def test_the_same_records_give_the_same_bytes_without_jax(tmp_path: Path) -> None:
    """Written twice, from two copies of the records, here and in another process that has neither
    jax nor a network.
    """
    scores = {**SCORES, "general": (0.9, math.nan, 0.92, 0.9)}
    one = sweep(tmp_path / "one" / "sweep", scores, tuned={0.001: 0.5, 0.003: 0.0})
    other = tmp_path / "other" / "sweep"
    shutil.copytree(one, other)
    report.write(one, "bootstrap", tex=True, stream=io.StringIO())
    code = (
        "import sys; from pathlib import Path; from attnlab.experiments.report import"
        " report;report.write(Path(sys.argv[1]), 'bootstrap', tex=True);print([name for name in"
        " ('jax', 'flax', 'optax', 'orbax', 'tensorboardX', 'sacrebleu') if name in sys.modules],"
        " file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}
    line = [sys.executable, "-c", code, str(other)]
    done = subprocess.run(line, capture_output=True, text=True, env=environment, check=False)
    assert done.stderr == "[]\n", done.stderr
    for name in FILES:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    assert {path.name for path in one.iterdir()} == {*FILES, "plan.json", "choice.json", "trials"}


@pytest.mark.quick
def test_what_a_person_sees(tmp_path: Path) -> None:
    out = io.StringIO()
    report.write(sweep(tmp_path), stream=out)
    lines = out.getvalue().splitlines()
    extent = "3 variants, seeds 0, 1, 2, 3; 12 trials: 12 done"
    assert lines[1:3] == ["Does the score <matter> & how much?", extent]
    assert "exact on the test split, higher is better" in lines and "costs" in lines
    assert "claim:   Content beats location." in lines and "verdict: supported (4 seeds)" in lines
    assert not (tmp_path / "report.tex").exists()


def test_the_document(tmp_path: Path) -> None:
    contents = report.write(sweep(tmp_path, final=False), stream=io.StringIO())
    text = (tmp_path / "report.md").read_text()
    assert text.startswith("# Does the score \\<matter> \\& how much?\n")
    assert f"**{contents.unfinished}**" in text
    assert "Claim: Content beats location." in text
    assert "**undecided: the test split is not scored yet**" in text
    assert text.count("\n## ") == 6
    report.write(sweep(tmp_path / "none", claim=None), stream=io.StringIO())
    assert "\nNo claim was stated.\n" in (tmp_path / "none" / "report.md").read_text()


def test_a_damaged_record_leaves_the_old_report(tmp_path: Path) -> None:
    sweep(tmp_path)
    report.write(tmp_path, stream=io.StringIO())
    before = {name: (tmp_path / name).read_bytes() for name in FILES[:5]}
    next(tmp_path.glob("trials/*/seed0/results.json")).write_text("{")
    check_refused("results.json is damaged", report.write, tmp_path, stream=io.StringIO())
    assert {name: (tmp_path / name).read_bytes() for name in FILES[:5]} == before


@pytest.mark.parametrize("size", [1e60, 1e-160, 1e-308])
def test_scores_of_any_size_have_a_report(size: float, tmp_path: Path) -> None:
    report.write(sweep(tmp_path, {"a": (size, -size, size), "b": (0.5, size, 0.0)}))
    assert (tmp_path / "report.html").exists()


def test_a_report_is_not_written_through_a_link(tmp_path: Path) -> None:
    """Also where nothing is at its other end; no other file is written either. Nor through one with
    the name of the file that is written first and then renamed.
    """
    sweep(tmp_path / "sweep")
    (tmp_path / "sweep" / "trials.csv").symlink_to(tmp_path / "gone.txt")
    words = "trials.csv is a link to .*gone.txt, and a report"
    check_refused(words, report.write, tmp_path / "sweep", stream=io.StringIO())
    assert not (tmp_path / "gone.txt").exists()
    assert not (tmp_path / "sweep" / "report.md").exists()
    (tmp_path / "sweep" / "trials.csv").rename(tmp_path / "sweep" / ".report.md.tmp")
    report.write(tmp_path / "sweep", stream=io.StringIO())
    assert not (tmp_path / "gone.txt").exists()
    assert not (tmp_path / "sweep" / "report.md").is_symlink()


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sweep before its choice; its page is written without pauses, and nobody is waited for."""
    for name in ("EVERY", "_SHARE", "ALONE"):
        monkeypatch.setattr(report, name, 0)
    made = sweep(tmp_path, {"additive": (0.9, 0.8)})
    (made / "choice.json").rename(made / "chosen.json")
    return made


@pytest.fixture
def folder(directory: Path) -> Path:
    """The folder of a trial of that sweep which has not begun."""
    trial = workdir(directory, "additive", 0)
    (trial / "events.jsonl").write_text("")
    return trial


def test_it_is_kept_fresh_until_the_sweep_is_over(directory: Path) -> None:
    with RunLock(directory):  # the launcher is at the choice
        pages = report.keep_page(directory)
        next(pages)
        before = (directory / "status.html").read_text()
        assert '<meta http-equiv="refresh" content="0">\n<title>' in before
        (directory / "chosen.json").rename(directory / "choice.json")
        assert len(list(pages)) == 1
    after = (directory / "status.html").read_text()
    assert "refresh" not in after and "0.85" in after


def test_it_ends_when_nobody_goes_on_with_the_sweep(directory: Path, folder: Path) -> None:
    with RunLock(folder):  # a worker alone
        pages = report.keep_page(directory)
        assert len([next(pages) for _ in range(3)]) == 3
        assert "refresh" in (directory / "status.html").read_text()
    assert len(list(pages)) == 1
    assert "refresh" not in (directory / "status.html").read_text()


def test_status_writes_and_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = sweep(tmp_path, {"additive": (0.9, 0.8)})
    assert main(["status", str(directory), "--page"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{directory}/status.html: ")


def test_a_worker_elsewhere_keeps_it(
    directory: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as its trial has written something lately: it may have died with its machine."""
    Attempt.start(folder)
    held = {"pid": 1, "host": "far", "start": "2026-01-01T00:00:00Z", "machine": "x", "nonce": "1"}
    (folder / ".lock").write_text(json.dumps(held))
    pages = report.keep_page(directory)
    assert len([next(pages) for _ in range(3)]) == 3
    monkeypatch.setattr(report, "SILENT_AT_FIRST", 0)
    assert len(list(pages)) == 1
