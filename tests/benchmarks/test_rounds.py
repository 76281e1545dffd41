"""Commands in alternation; the speed of two checkouts compared."""

import json
import pathlib
from itertools import pairwise
from typing import ClassVar

import pytest

from attnlab.errors import UserError
from benchmarks import rounds, two_checkouts
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


class Served:
    """A checkout whose runs take what its folder says, and compute it."""

    started = 0
    asked: "ClassVar[list[Served]]" = []

    def __init__(self, folder: str) -> None:
        Served.started += 1
        self.seconds, self.result = map(float, folder.split())

    def ask(self, name: str) -> tuple[float, float]:
        Served.asked.append(self)
        return self.seconds, self.result

    def close(self) -> None:
        Served.started -= 1


def test_a_row_has_the_least_of_both_and_their_ratios_round_by_round() -> None:
    found = two_checkouts.row("a", [[0.2, 0.1, 0.4], [0.4, 0.3, 0.4], [0.1, 0.1, 0.4]])
    assert found == ("a", "100", "300", "3.000", "2.000", "1.000", "1.000", 3)


def test_all_take_turns_none_twice_in_a_row_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_checkouts, "Checkout", Served)
    monkeypatch.setattr(Served, "asked", [])
    found = two_checkouts.measured(["1 5", "2 5.0001", "1 5"], "a", 7, 60.0)
    assert found == [[1.0] * 7, [2.0] * 7, [1.0] * 7]
    assert Served.started == 0
    assert len(Served.asked) == 3 + 3 * 7
    assert all(one is not other for one, other in pairwise(Served.asked))


def test_checkouts_that_compute_something_else_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_checkouts, "Checkout", Served)
    with pytest.raises(UserError, match="a: 5.0 was computed before, 6.0 after"):
        two_checkouts.measured(["1 5", "1 6", "1 5"], "a", 7, 60.0)
    assert Served.started == 0
