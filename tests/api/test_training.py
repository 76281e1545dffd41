"""Training from Python: numbers as they are recorded, loops of one's own, functions that fail, which
folder is a run. A sweep from Python: records of the report, and the command's one line where it is
refused.
"""

import io
import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import attnlab
from attnlab import config as configs
from attnlab import progress
from attnlab.analysis.work import flops
from attnlab.api.training import Training, existing_run
from attnlab.errors import UserError
from attnlab.experiments.report.contents import gather
from attnlab.experiments.report.export import as_json
from attnlab.pages.tables import scaled
from attnlab.records.manifest import Manifest
from attnlab.records.stream import read_records
from attnlab.training.checkpoints import Checkpoints
from tests.commands.tiny import SHARED, SMALL
from tests.experiments.synthetic import sweep
from tests.refusals import check_refused

CONFIG = "configs/translation.py:rnnsearch"
OVERRIDES: dict[str, Any] = {
    key: value for key, _, value in (word.partition("=") for word in (*SMALL["rnnsearch"], *SHARED))
} | {"training.log_every": 1}


def records(folder: Path) -> list[tuple[int, str, float]]:
    """Step, split and loss of every record."""
    found = read_records(folder / "metrics.jsonl")
    return [(record["step"], record["split"], record["loss"]) for record in found]


def test_a_loop_that_is_left_and_functions_that_fail_lose_nothing(tmp_path: Path) -> None:
    """A loop left at step 3, a function that fails at 5, then to the end: the records are those that
    `on_step` got, and a run in one go has the same.
    """
    seen: list[tuple[int, str, float]] = []

    def note(step: int, values: Any) -> None:
        split = "train" if "loss" in values else "valid"
        seen.append((step, split, values["loss" if split == "train" else "valid/loss"]))

    parts = tmp_path / "parts"
    begun = attnlab.begin(CONFIG, OVERRIDES, workdir=parts)
    assert isinstance(begun, Training) and not parts.exists()
    for step, values in begun.steps():
        note(step, values)
        if step == 3:
            break
    assert records(parts)[-1][0] == 3

    def fails(step: int, values: Any) -> None:
        note(step, values)
        if step == 5:
            raise ValueError("no room")

    with pytest.raises(
        UserError, match="on_step failed at step 5: ValueError: no room; the run is"
    ):
        attnlab.train(CONFIG, OVERRIDES, on_step=fails, workdir=parts)
    run = attnlab.train(CONFIG, OVERRIDES, on_step=note, workdir=parts)
    assert seen == records(parts) and seen[-1][:2] == (12, "valid")
    assert run.step in (6, 12) and run._repr_png_().startswith(b"\x89PNG")
    for _ in attnlab.begin(CONFIG, OVERRIDES, workdir=tmp_path / "whole").steps():
        pass
    assert records(tmp_path / "whole") == seen


def test_a_long_run_counts_the_flops_of_a_step_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the batch of step 3, beside the steps, whose records stay as they were."""
    attnlab.train(CONFIG, OVERRIDES, workdir=tmp_path / "short")
    assert "FLOPs" not in capsys.readouterr().err
    for name in ("LONG", "WORTH_TELLING"):
        monkeypatch.setattr(progress, name, 0)
    run = attnlab.begin(CONFIG, OVERRIDES, workdir=tmp_path / "long")
    for _ in run.steps():
        pass
    for thread in threading.enumerate():
        if thread.name == "flops":
            thread.join()
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "FLOPs" in line]
    batch, updates = dict(run.run.batches(2)), run.run.updates
    number = flops(updates.step(run.run.task), updates.state_like(run.run.task), batch)
    shape = "x".join(map(str, batch["source"].shape))
    assert number > 1e6 and line == f"FLOPs of a step with batches of {shape}: {scaled(number)}"
    assert records(tmp_path / "long") == records(tmp_path / "short")


def test_a_loop_ends_with_what_went_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A divergence, a second loop on the same `begin`, an interruption from `on_step`, a state that
    cannot be saved as the loop is left.
    """

    def interrupt(step: int, values: Any) -> None:
        raise KeyboardInterrupt

    begun = attnlab.begin(Path(CONFIG), OVERRIDES, workdir=tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        attnlab.train(CONFIG, OVERRIDES, on_step=interrupt, workdir=tmp_path / "run")
    with pytest.raises(UserError, match="or an earlier loop, has trained .*'begin', again"):
        next(begun.steps())
    wild = {**OVERRIDES, "schedule.peak": 1e30, "training.clip": 0.0, "optimizer": "sgd"}
    with pytest.raises(UserError, match="wild diverged at step .*loss|parameters"):
        for _ in attnlab.begin(CONFIG, wild, workdir=tmp_path / "wild").steps():
            pass
    loop = attnlab.begin(CONFIG, OVERRIDES, workdir=tmp_path / "run").steps()
    assert next(loop)[0] == 2

    def full(*given: Any, **named: Any) -> None:
        raise UserError("disk full")

    monkeypatch.setattr(Checkpoints, "save", full)
    with pytest.raises(UserError, match="disk full"):
        loop.close()


def score(answers: Any, rows: Any) -> Any:
    """A metric."""
    return [1.0] * len(rows)


@pytest.mark.parametrize(
    ("config", "overrides", "metrics", "words"),
    [
        (None, {}, score, "config: None is neither FILE.py:ARGUMENT nor settings"),
        (CONFIG, {}, 3, "metrics: 3 is no function with a name of its own"),
        (CONFIG, {"training.metrics": ["a:b"]}, score, "metrics: training.metrics is in overrides"),
        (CONFIG, {"training.stesp": 3}, (), "training.stesp: no such key; did you mean"),
        ({"task": "translaton"}, {}, [score], "unknown task 'translaton'"),
    ],
)
def test_bad_input_is_one_line(
    config: Any, overrides: dict[str, Any], metrics: Any, words: str, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=words):
        attnlab.begin(config, overrides, metrics=metrics, workdir=tmp_path / "run")
    with pytest.raises(UserError, match="is not empty and holds no run"):
        attnlab.begin(configs.load(CONFIG, []), OVERRIDES, workdir=tmp_path)


def test_rows_and_verdict_are_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What the command reports on its way is shown, also where stderr is not that of the process."""
    directory = sweep(tmp_path)
    (directory / "report.json").write_text(as_json(gather(directory)))
    wide = "x" * 100_000  # more than a pipe holds
    program = f"import sys; print({wide!r}); print(*sys.argv[1:], sep='\\n', file=sys.stderr)"
    monkeypatch.setattr("attnlab.api.training._COMMAND", program)
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    found = attnlab.sweep(
        "e.py", {"training.steps": 3}, directory=directory, flags="--slots=1 '--seeds=2'"
    )
    assert capfd.readouterr().err == ""
    assert shown.getvalue().splitlines() == [
        "sweep",
        "e.py",
        f"--dir={directory}",
        "--config.training.steps=3",
        "--slots=1",
        "--seeds=2",
    ]
    report = json.loads((directory / "report.json").read_text())
    assert [row["name"] for row in found.rows] == [row["name"] for row in report["rows"]]
    assert found.trials and all("scores" in trial for trial in found.trials)
    (directory / "report.html").write_text('<table class="wide">')
    assert 'srcdoc="&lt;table class=&quot;wide&quot;&gt;"' in found._repr_html_()
    assert "verdict=" in repr(found) and "trials" not in repr(found)
    with pytest.raises(UserError, match="no report was written"):  # the earlier one is not it
        attnlab.sweep("e.py", directory=directory, flags="--dry-run")


def test_a_refusal_is_the_line_of_the_command(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^(?!.*error: ).*none\.py"):
        attnlab.sweep(tmp_path / "none.py", directory=tmp_path / "sweep")
    with pytest.raises(UserError, match="no report was written; the command: A"):
        attnlab.sweep(tmp_path / "none.py", directory=tmp_path / "sweep", flags="--help")
    assert not (tmp_path / "sweep").exists()


def test_which_folder_is_new_which_a_run_and_which_neither(tmp_path: Path) -> None:
    """What a kill before the manifest leaves is no run and not in the way; anything else in the
    folder is somebody's.
    """
    config = configs.load(CONFIG, ["training.steps=7"])
    (run := tmp_path / "run").mkdir()
    Manifest.build(config, devices={}, data={}, command=[]).write(run)
    manifest = existing_run(run)
    assert manifest is not None and manifest.config["training"]["steps"] == 7
    begun = tmp_path / "begun"
    assert existing_run(begun) is None
    (begun / "vocabulary").mkdir(parents=True)
    (begun / "code").mkdir()
    for name in (".lock", ".manifest.json.tmp"):
        (begun / name).write_text("")
    assert existing_run(begun) is None
    (begun / "thesis.tex").write_text("")
    words = "is not empty and holds no run .thesis.tex is there.; name a new or empty folder"
    check_refused(words, existing_run, begun)
