"""`evaluate` and `generate` take the mean of several runs, and refuse what is no other run."""

import json
from pathlib import Path

import pytest

from tests.commands.tiny import Runs, refused, run_command


@pytest.mark.full
def test_evaluate_and_generate_take_the_mean_of_runs(runs: Runs) -> None:
    """Better than the worse member at least, for the logarithm is concave; and the same
    translations by both commands.
    """
    one, other = (runs(system)[0] for system in ("rnnsearch", "transformer"))
    ended = run_command(["evaluate", f"--workdir={one}", f"--ensemble={other}", "--json"])
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    losses = [json.loads((run / "results.json").read_text())["loss"] for run in (one, other)]
    assert found["loss"] < sum(losses) / 2 and found["loss"] not in losses
    lines = "3 of may 1967\n\n4.5.1999\n"
    together = run_command(["generate", f"--workdir={one}", f"--ensemble={other}"], lines)
    assert together.code == 0 and together.out.count("\n") == 3
    turned = run_command(["generate", f"--workdir={other}", f"--ensemble={one}"], lines)
    assert together.out == turned.out


@pytest.mark.parametrize(
    ("ensemble", "words"),
    [("{one}", "is named twice; a run counts once"), ("{one}/x", "holds no run; name folders")],
)
def test_what_is_no_other_run_is_refused(ensemble: str, words: str, searched: Path) -> None:
    flags = [f"--workdir={searched}", f"--ensemble={ensemble.format(one=searched)}"]
    assert words in refused("generate", *flags, stdin="x\n")
