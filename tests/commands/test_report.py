"""The report command: its flags, and one line for what is not there."""

import importlib
from pathlib import Path

import pytest

from attnlab.commands import Command, main
from attnlab.commands.report import INTERVALS as CHOICES
from attnlab.experiments.report.statistics.family import Family
from tests.commands.tiny import alone
from tests.experiments.synthetic import sweep

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = {"report": Command("attnlab.commands.report", "the report of a sweep", on_run=False)}


@pytest.mark.quick
def test_report_writes_and_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(sweep(tmp_path)), "--latex", "--interval=bootstrap"], COMMANDS) == 0
    printed = capsys.readouterr().out
    assert "verdict: supported (4 seeds)" in printed and str(tmp_path / "report.html") in printed
    assert "bootstrap (BCa" in (tmp_path / "report.md").read_text()
    assert r"\toprule" in (tmp_path / "report.tex").read_text()


def test_columns_of_the_latex_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = sweep(tmp_path)
    assert main(["report", str(directory), "--columns=variant, adjusted p"], COMMANDS) == 0
    assert r"variant & adjusted p \\" in (directory / "report.tex").read_text()
    assert main(["report", str(directory), "--columns=variant,adjusted"], COMMANDS) == 2
    assert "--columns: no column 'adjusted'; did you mean 'adjusted p'?" in capsys.readouterr().err


def test_every_kind_of_interval_has_its_flag() -> None:
    family = Family({"a": {0: 0.1, 1: 0.2, 2: 0.4}, "b": {0: 0.3, 1: 0.5, 2: 0.4}})
    assert len({family.mean("a", method).interval for method in CHOICES}) == len(CHOICES) == 2


@pytest.mark.quick
def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys, attnlab.commands.report; print([name for name in ('jax', 'numpy', 'scipy',"
        " 'matplotlib') if name in sys.modules])"
    )
    assert alone(code, cwd=ROOT) == "[]\n"
    assert importlib.import_module("attnlab.commands.report").run
