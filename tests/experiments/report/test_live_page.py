"""The page of a sweep at work is written anew until the sweep is over."""

import json
from pathlib import Path

import pytest

from attnlab.commands import main
from attnlab.experiments.report import live_page
from attnlab.records.attempts import Attempt
from attnlab.records.locks import RunLock
from tests.experiments.synthetic import sweep, workdir


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sweep before its choice; its page is written without pauses, and nobody is waited for."""
    for name in ("EVERY", "_SHARE", "ALONE"):
        monkeypatch.setattr(live_page, name, 0)
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
        pages = live_page.keep_page(directory)
        next(pages)
        before = (directory / "status.html").read_text()
        assert '<meta http-equiv="refresh" content="0">\n<title>' in before
        (directory / "chosen.json").rename(directory / "choice.json")
        assert len(list(pages)) == 1
    after = (directory / "status.html").read_text()
    assert "refresh" not in after and "0.85" in after


def test_it_ends_when_nobody_goes_on_with_the_sweep(directory: Path, folder: Path) -> None:
    with RunLock(folder):  # a worker alone
        pages = live_page.keep_page(directory)
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
    pages = live_page.keep_page(directory)
    assert len([next(pages) for _ in range(3)]) == 3
    monkeypatch.setattr(live_page, "SILENT_AT_FIRST", 0)
    assert len(list(pages)) == 1
