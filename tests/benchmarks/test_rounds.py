"""Commands in alternation."""

import json
import pathlib

import pytest

from benchmarks import rounds
from tests.refusals import check_refused


def test_figures_are_the_lines_of_a_name_and_a_number() -> None:
    text = (
        "step 3/5 loss 2\nseconds 1.5\nname word\nseconds 2.5e-1\n  indented 4\nBLEU 4\nrate -1\n"
    )
    assert rounds.figures(text) == {"seconds": 0.25, "rate": -1.0}


@pytest.mark.quick
def test_commands_take_turns_and_the_ratio_is_of_medians(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, result = tmp_path / "log", tmp_path / "new" / "result.json"
    commands = {
        "ours": f"echo a >> {log}; echo rate $(wc -l < {log}); echo other 8",  # prints 1, 4, 5
        "theirs": f"echo b >> {log}; echo rate 2",
    }
    rounds.compare("title", commands, ["rate", "other"], 3, str(result), less_is_better=False)
    assert log.read_text().split() == list("abbaab")
    written = json.loads(result.read_text())
    expected = {"ours": {"rate": [1, 4, 5], "other": [8, 8, 8]}, "theirs": {"rate": [2, 2, 2]}}
    assert written["figures"] == expected
    # what the other does not print is compared with its first figure
    assert written["times_better"] == {"rate": 2.0, "other": 4.0}
    assert "1 4 5" in capsys.readouterr().out
    rounds.compare("title", commands, ["rate"], 1, str(result), less_is_better=True)
    assert json.loads(result.read_text())["times_better"] == {"rate": pytest.approx(2 / 7)}


@pytest.mark.parametrize(
    ("command", "complaint"),
    [("echo rate 1; exit 3", "exit code 3 of: echo rate"), ("echo rat 1", "no line 'rate NUMBER'")],
)
def test_a_command_that_fails_or_prints_no_figure_is_told(command: str, complaint: str) -> None:
    check_refused(complaint, rounds.run, command, "rate")
