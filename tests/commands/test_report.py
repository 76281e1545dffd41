"""The report command: its flags, and one line for what is not there."""

from pathlib import Path

import pytest

from attnlab.commands.report import INTERVALS as CHOICES
from attnlab.experiments.report.statistics.family import Family
from tests.commands.tiny import refused, run_command
from tests.experiments.synthetic import sweep


@pytest.mark.quick
def test_report_writes_and_prints(tmp_path: Path) -> None:
    flags = ["--latex", "--interval=bootstrap"]
    printed = run_command(["report", str(sweep(tmp_path)), *flags]).out
    assert "verdict: supported (4 seeds)" in printed and str(tmp_path / "report.html") in printed
    assert "bootstrap (BCa" in (tmp_path / "report.md").read_text()
    assert r"\toprule" in (tmp_path / "report.tex").read_text()


def test_columns_of_the_latex_table(tmp_path: Path) -> None:
    directory = sweep(tmp_path)
    run_command(["report", str(directory), "--columns=variant, adjusted p"])
    assert r"variant & adjusted p \\" in (directory / "report.tex").read_text()
    line = refused("report", str(directory), "--columns=variant,adjusted")
    assert "--columns: no column 'adjusted'; did you mean 'adjusted p'?" in line


def test_every_kind_of_interval_has_its_flag() -> None:
    family = Family({"a": {0: 0.1, 1: 0.2, 2: 0.4}, "b": {0: 0.3, 1: 0.5, 2: 0.4}})
    assert len({family.mean("a", method).interval for method in CHOICES}) == len(CHOICES) == 2
