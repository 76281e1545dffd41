"""`stop`: one trial of a sweep, from any terminal."""

from pathlib import Path

import pytest

from tests.commands.tiny import refused, run_command
from tests.experiments import stub


@pytest.mark.quick
def test_a_trial_is_stopped_and_taken_back(tmp_path: Path) -> None:
    trial = stub.planned(tmp_path).trials()[0].name
    ended = run_command(["stop", str(tmp_path), trial, "--reason=of no use"])
    assert (ended.code, ended.out, ended.err) == (0, f"{trial} will not run\n", "")
    shown = run_command(["status", str(tmp_path)]).out
    assert f"{trial} stopped at step 0: stopped by request: of no use" in shown
    assert "1 stopped of 4" in shown
    again = refused("stop", str(tmp_path), trial)
    assert f"error: {trial} is stopped already, at step 0: there is nothing to stop" in again
    words = f"{trial} may run again: the next launcher takes it\n"
    assert run_command(["stop", str(tmp_path), trial, "--undo"]).out == words
    assert "1 interrupted of 4" in run_command(["status", str(tmp_path)]).out
