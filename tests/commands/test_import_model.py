"""What `import` refuses; what it does, tests/api/test_pretrained.py tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnlab.commands import main


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--workdir=run"], "--from"),
        (["--from=none", "--workdir=run"], "none is no folder"),
        (["--from=.", "--workdir=run"], "has no config.json"),
        (["--from=.", "--workdir=run", "--config.training.stepz=3"], "has no config.json"),
    ],
)
def test_one_line_and_nothing_written(
    flags: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["import", *flags]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())
