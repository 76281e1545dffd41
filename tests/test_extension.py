"""What `docs/extending.md` tells a user to do, done: one file outside the package is a mechanism like any other."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.tiny import SHARED, SMALL, called

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "docs" / "examples"
SLOTS = {"rnnsearch": ["attention"], "transformer": ["encoder_attention", "decoder_attention", "cross_attention"]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with the example in it and nothing else of ours; the test stands there."""
    for name in ("hopfield.py", "hopfield_oracle.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    """A command of the user's, as a program of its own."""
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)


def test_the_example_is_one_short_file() -> None:
    assert len((EXAMPLES / "hopfield.py").read_text().splitlines()) <= 60
    text = (ROOT / "docs" / "extending.md").read_text()
    assert "docs/examples/hopfield.py" in text and "--mechanism=hopfield:Hopfield" in text


def test_it_passes_the_whole_suite_by_one_command(folder: Path) -> None:
    own = ["--mechanism=hopfield:Hopfield", "--oracle=hopfield_oracle:oracle"]
    done = ran("-m", "pytest", str(ROOT / "tests" / "attention"), *own, "-q", "-rs", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout + done.stderr
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|skipped|failed)", done.stdout)}
    assert counts["passed"] >= 16 and "failed" not in counts, done.stdout
    reasons = set(re.findall(r"^SKIPPED .*?: (.*)$", done.stdout, flags=re.MULTILINE))
    assert not [reason for reason in reasons if "oracle" in reason], reasons


def test_it_is_listed(folder: Path) -> None:
    done = ran(str(ROOT / "launch.py"), "list", "mechanisms", "hopfield:Hopfield")
    assert done.returncode == 0, done.stderr
    assert "associative memory" in done.stdout and "2021" in done.stdout and re.search(r"\nsteps +2 ", done.stdout)


@pytest.mark.parametrize("system", SLOTS)
def test_it_trains_in_every_system(system: str, folder: Path) -> None:
    """Two steps in all slots, by the command line alone; then it is evaluated and its maps are drawn."""
    small = SMALL[system][:-1] if system == "rnnsearch" else SMALL[system]  # the last is a field of the score it replaces
    chosen = [f"system.{slot}=hopfield:Hopfield" for slot in SLOTS[system]] + [f"system.{SLOTS[system][0]}.steps=1"]
    settings = [*chosen, *small, *SHARED, "training.steps=2", "data.test=1"]
    command = ["train", f"--config=configs/translation.py:{system}", f"--workdir={folder / 'run'}"]
    ended = called([*command, *(f"--config.{one}" for one in settings)])
    assert ended.code == 0, ended.err
    results = json.loads((folder / "run" / "results.json").read_text())
    assert results["step"] == 2 and list((folder / "run" / "maps").glob("*.png"))
