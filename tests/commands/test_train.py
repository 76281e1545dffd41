"""The train command goes from a config to pictures and leaves what the README promises; with
`--dry-run` it says what a run will take, and writes nothing. `continue` goes from a folder to a
longer run. With any part in any slot: tests/tasks/test_configs.py; with a user's own:
tests/test_extension.py.
"""

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from attnlab import config as configs
from attnlab.api.training import default_workdir
from attnlab.errors import UserError
from attnlab.records import attempts
from attnlab.records.locks import RunLock
from attnlab.records.manifest import Manifest
from attnlab.records.stream import BEFORE, read_records
from attnlab.records.tracking import Tracking
from attnlab.training import loop
from attnlab.training.parent import lineage_of
from tests.commands.tiny import Runs, arguments, completed, refused, run_command
from tests.experiments.report.trackers.offline import stand_in, wandb_told
from tests.experiments.synthetic import sweep

TRANSFORMER = pytest.param("transformer", marks=pytest.mark.full)


@pytest.mark.parametrize("system", ["rnnsearch", TRANSFORMER])
def test_a_run_leaves_what_the_readme_promises(system: str, runs: Runs) -> None:
    workdir, ended = runs(system)
    results = json.loads((workdir / "results.json").read_text())
    scores = {"loss", "perplexity", "accuracy", "bleu", "chrf", "exact", "bleu_signature"}
    assert scores | {"step", "parameters", "decoding_seconds"} <= set(results)
    assert results["split"] == "test" and results["sentences"] == 4 and results["step"] in (6, 12)
    assert len((workdir / "translations.txt").read_text().splitlines()) == 4
    name = "attention" if system == "rnnsearch" else "decoder_0-cross_attention"
    drawn = 3 if system == "rnnsearch" else 1  # see `PICTURED` in `tests/conftest.py`
    pictures = [
        workdir / "curves.png",
        *(workdir / "maps" / f"test{number}-{name}.png" for number in range(drawn)),
    ]
    for path in pictures:
        assert path.read_bytes().startswith(b"\x89PNG"), path
    (line,) = (line for line in ended.out.splitlines() if line.startswith("pictures: "))
    assert f"maps/test{drawn - 1}-{name}.png, curves.png (of " in line and line.endswith("/run")
    assert (workdir / "maps" / f"test{drawn - 1}.npz").is_file()
    assert not (workdir / "maps" / f"test{drawn}.npz").exists()
    records = [(one["step"], one["split"]) for one in read_records(workdir / "metrics.jsonl")]
    halves = [[(at + 3, "train"), (at + 6, "train"), (at + 6, "valid")] for at in (0, 6)]
    assert records == halves[0] + halves[1]
    assert list((workdir / "tensorboard").iterdir()) and read_records(workdir / "timing.jsonl")
    manifest = Manifest.read(workdir)
    assert manifest.config["system"]["name"] == system
    assert set(manifest.data) == {"train", "valid", "test"}
    assert attempts.last_word(attempts.read(workdir))[0] == "done"
    assert "first step " in ended.err
    assert f"{system} on dates, test split" in ended.out
    assert "train: 160 pairs" in ended.err


def test_the_same_command_again_changes_no_number(runs: Runs) -> None:
    workdir, _ = runs("rnnsearch")
    kept = {p: p.read_bytes() for p in workdir.rglob("*") if p.suffix in (".jsonl", ".png", ".txt")}
    results = json.loads((workdir / "results.json").read_text())
    assert run_command(arguments("rnnsearch", workdir)).code == 0
    assert {path: path.read_bytes() for path in kept} == kept
    again = json.loads((workdir / "results.json").read_text())
    assert {**again, "decoding_seconds": 0} == {**results, "decoding_seconds": 0}


def test_a_run_begun_under_the_old_mask_goes_on_under_it_and_says_so(tmp_path: Path) -> None:
    """Its stored config has no `optimizer.decayed`, and the file of today has another."""
    short = ["optimizer=adamw", "training.steps=4", "training.evaluate_every=0"]
    begun = arguments("transformer", tmp_path / "run", *short, "system.positions=learned")
    completed([*begun, "--config.optimizer.decayed=rank"])
    manifest = Manifest.read(tmp_path / "run")
    del manifest.config["optimizer"]["decayed"]
    older = dataclasses.replace(manifest, config_hash=configs.config_hash(manifest.config))
    older.write(tmp_path / "run")
    again = run_command(begun)
    assert (again.code, again.err.count("goes by rank, as in runs of earlier versions")) == (0, 1)
    assert "optimizer.decayed: saved" in refused(*begun, "--config.optimizer.decayed=kind")
    evaluated = ["evaluate", *begun[1:], "--split=valid"]
    assert run_command(evaluated).code == 0


@pytest.mark.full
def test_divergence_is_told_and_exit_code_1(tmp_path: Path) -> None:
    diverging = ["optimizer=sgd", "schedule.peak=1e38", "training.clip=0", "checkpoint.every=1"]
    ended = run_command(arguments("rnnsearch", tmp_path / "run", *diverging))
    assert ended.code == 1
    assert "diverged: loss" in ended.out
    assert "the last good checkpoint is kept" in ended.out
    state, step, message = attempts.last_word(attempts.read(tmp_path / "run"))
    assert state == "diverged" and f"at step {step}" in message
    assert not (tmp_path / "run" / "results.json").exists()


@pytest.mark.parametrize(
    ("error", "state", "reached"),
    [
        (RuntimeError("boom"), "failed", 5),
        (KeyboardInterrupt(), "interrupted", 5),
        (UserError("no space"), "pending", 0),
    ],
)
def test_an_error_after_the_beginning_is_left_in_the_status(
    error: BaseException, state: str, reached: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One before it leaves no record."""

    def broken(run: Any, session: Any) -> None:
        if reached:
            session.attempts[0].at(reached)
        raise error

    monkeypatch.setattr(loop, "train", broken)
    if state == "failed":
        with pytest.raises(RuntimeError, match="boom"):
            run_command(arguments("rnnsearch", tmp_path / "run"))
    else:
        code = run_command(arguments("rnnsearch", tmp_path / "run")).code
        assert code == (130 if reached else 2)
    ended, step, message = attempts.last_word(attempts.read(tmp_path / "run"))
    assert (ended, step) == (state, reached)
    assert message == (f"{type(error).__name__}: {error}" if reached else "")


@pytest.mark.quick
def test_default_workdir_tells_configs_apart() -> None:
    first = configs.load("configs/translation.py:rnnsearch")
    other = configs.load("configs/translation.py:rnnsearch", ["seed=1"])
    path = default_workdir("configs/translation.py:rnnsearch", first)
    assert path.startswith("runs/translation-rnnsearch-")
    assert path == default_workdir("configs/translation.py:rnnsearch", first)
    assert path != default_workdir("configs/translation.py:rnnsearch", other)
    elsewhere = configs.load(
        "configs/translation.py:rnnsearch", ["parallel.devices=2", "parallel.backend=mesh"]
    )
    # the same run on other devices goes on there
    assert path == default_workdir("configs/translation.py:rnnsearch", elsewhere)
    stored = configs.from_dict(json.loads(json.dumps(configs.to_dict(first))))
    assert path == default_workdir("some/where/translation.py:rnnsearch", stored)
    # one made from a run is named by that run
    assert default_workdir("runs/a/manifest.json", first).startswith("runs/a-rnnsearch-")


def test_no_workdir_is_one_below_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(loop, "train", lambda *rest: loop.Outcome("diverged", 1, None, "no"))
    command = [one for one in arguments("rnnsearch", tmp_path) if not one.startswith("--workdir")]
    assert run_command(command).code == 1
    (workdir,) = (tmp_path / "runs").iterdir()
    assert (workdir / "manifest.json").is_file()
    assert workdir.name.startswith("translation-rnnsearch-")


def test_a_tracked_run_is_one_run_to_its_tracker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command again, without the flag, tells it nothing else under the same id; a run that
    goes on from it is another one, with one curve.
    """
    stand_in(monkeypatch, tmp_path / "packages")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path / "store"))
    command = arguments("rnn_encoder_decoder", tmp_path / "run")
    assert "'wandb'" in refused(*command, "--track=wandbb")
    assert not (tmp_path / "run").exists()
    for flags in (["--track=wandb"], []):
        assert run_command([*command, *flags]).code == 0
        stored = Tracking.read(tmp_path / "run")
        assert stored is not None and stored.to == {"wandb": str(tmp_path / "store")}
        told = wandb_told(tmp_path / "store", stored.id)
        steps = [(line[1], "valid/loss" in line[2]) for line in told if line[0] == "log"]
        assert steps == [(3, False), (6, True), (9, False), (12, True)]
        results = json.loads((tmp_path / "run" / "results.json").read_text())
        assert told[-2][1]["final/test/loss"] == results["loss"] and told[-1] == ["finish", 0]
    longer = ["--config.training.steps=15", "--config.schedule=constant", "--track=wandb"]
    words = ["continue", str(tmp_path / "run"), f"--workdir={tmp_path / 'longer'}", *longer]
    assert run_command(words).code == 0
    other = Tracking.read(tmp_path / "longer")
    assert other is not None and other.id != stored.id
    told = wandb_told(tmp_path / "store", other.id)
    assert [line[1] for line in told if line[0] == "log"] == [3, 6, 9, 12, 15]


@pytest.mark.parametrize("command", [["sweep", "experiments/quickstart.py"], ["work"]])
def test_a_tracker_is_refused_before_anything_begins(tmp_path: Path, command: list[str]) -> None:
    directory = sweep(tmp_path / "made", {"additive": (0.9,)}) if command == ["work"] else tmp_path
    folder = [str(directory)] if command == ["work"] else [f"--dir={directory / 'new'}"]
    assert "mlflow:http://HOST:PORT" in refused(*command, *folder, "--track=mlflow:file.db")
    assert not (directory / "tracking.json").exists() and not (directory / "new").exists()


def test_what_a_run_takes(tmp_path: Path) -> None:
    workdir = tmp_path / "run"
    ended = completed([*arguments("rnnsearch", workdir), "--dry-run"])
    lines = dict(line.rsplit("  ", 1) for line in ended.out.splitlines() if "  " in line)
    lines = {name.strip(): value.strip() for name, value in lines.items()}
    parameters = re.findall(r"^(\w+) +([\d,]+)$", ended.out.partition("what it takes")[0], re.M)
    numbers = {name: int(number.replace(",", "")) for name, number in parameters}
    assert numbers.pop("all") == sum(numbers.values())
    for name in ("parameters", "optimizer", "peak, on each device", "FLOPs of a step", "12 steps"):
        assert name in lines, ended.out
    assert lines["largest batch"].startswith("16x")
    assert "only the largest of the first 12 batches" in ended.out
    assert not workdir.exists()
    assert max(map(len, ended.out.splitlines())) <= 100


LONGER = "--config.training.steps=15"


def test_a_finished_run_goes_on_with_another_batch(runs: Runs, tmp_path: Path) -> None:
    """The manifest says where the data begins; the same command again, of a run that has ended,
    changes nothing; another RUN is refused.
    """
    parent, _ = runs("rnnsearch")
    words = ["continue", str(parent), f"--workdir={tmp_path / 'new'}", LONGER]
    words += ["--config.batch.size=8", "--config.schedule.peak=1e-4"]
    ended = completed(words)
    assert f"goes on from step 12 of {parent}; its data begins at step 12 with its" in ended.err
    assert "own plan; no score is compared with one of before" in ended.err
    manifest, old = Manifest.read(tmp_path / "new"), Manifest.read(parent)
    assert manifest.parent == {
        "workdir": str(parent),
        "config_hash": old.config_hash,
        "step": 12,
        "data_from": 12,
        "before": [],
        "joined": False,
        "trial": None,
    }
    metrics = tmp_path / "new" / "metrics.jsonl"
    assert {record["step"] for record in read_records(metrics)} == {15}
    assert (tmp_path / "new" / BEFORE).read_bytes() == (parent / "metrics.jsonl").read_bytes()
    content = metrics.read_bytes()
    again = run_command(words)
    assert again.code == 0 and metrics.read_bytes() == content
    words[1] = str(tmp_path / "other")
    assert f'training.after: saved "{parent}", wanted' in refused(*words)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "training.steps=12, and {run} is at step 12 already; take more"),
        ([LONGER, "--from-step=5"], "the steps"),
        ([LONGER, "--from-step=last"], "--from-step: 'last' is no"),
        ([LONGER, "--config.system.maxout=8"], "another config: system.maxout: saved 6, wanted 8"),
        ([LONGER, "--config.training.clip=0"], "training.clip: saved 1.0, wanted 0.0"),
        ([LONGER, "--config.checkpoint.by=accuracy"], "checkpoint.by: saved"),
        ([LONGER, "--workdir={run}"], 'training.after: saved "", wanted'),
        ([LONGER, "--config=configs/translation.py:rnnsearch"], "--config: the config is that of"),
    ],
)
def test_what_may_not_change_is_refused_by_name(
    flags: list[str], words: str, runs: Runs, tmp_path: Path
) -> None:
    parent, _ = runs("rnnsearch")
    flags = [flag.format(run=parent) for flag in flags]
    ended = refused("continue", str(parent), f"--workdir={tmp_path / 'new'}", *flags)
    if "the steps" in words:  # which are there depends on the best
        assert "name one of those, as FOLDER@STEP" in ended
    else:
        assert words.format(run=parent) in ended
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("name", "flags", "words"),
    [
        ("a@12", [], "reads such a name otherwise"),
        ("a{seed}", [], "reads such a name otherwise"),
        ("a@8", ["--from-step=12"], ""),
    ],
)
def test_a_dry_run_of_a_run_that_goes_on_counts_its_own_steps(
    name: str, flags: list[str], words: str, runs: Runs, tmp_path: Path
) -> None:
    """Also with a batch of its own, whose plan begins there; names that would be read otherwise
    are refused.
    """
    parent = tmp_path / name
    parent.symlink_to(runs("rnnsearch")[0])
    flags = ["continue", str(parent), f"--workdir={tmp_path / 'new'}", LONGER, "--dry-run", *flags]
    flags += ["--config.batch.size=8"]
    if words:
        assert words in refused(*flags)
        return
    ended = completed(flags)
    assert "\n3 steps " in ended.out and "first 3 batches after step 12," in ended.out
    assert re.search("largest batch +8x", ended.out)


def test_scores_of_other_rows_are_not_compared_and_a_trial_behind_is_known(
    runs: Runs, tmp_path: Path
) -> None:
    (tmp_path / "plan.json").touch()
    trial = tmp_path / "trials" / "base" / "seed0"
    trial.parent.mkdir(parents=True)
    trial.symlink_to(runs("rnnsearch")[0])
    manifest = Manifest.read(trial)
    for changes, joined in (([], True), (["training.evaluate_rows=4"], False)):
        changes = [f"training.after={trial}", "training.steps=15", *changes]
        lineage = lineage_of(configs.prepare(configs.from_dict(manifest.config), changes))
        assert lineage is not None and lineage["joined"] is joined and lineage["data_from"] == 0
        assert lineage["trial"] == str(trial)
    with RunLock(trial), pytest.raises(UserError, match=r"training.after=.* is at work \(pid"):
        lineage_of(configs.prepare(configs.from_dict(manifest.config), changes))


def test_no_run_is_one_line(tmp_path: Path) -> None:
    words = "continue", str(tmp_path / "none")
    assert "no --workdir given; name the new folder" in refused(*words)
    assert "holds no run; name the folder" in refused(*words, f"--workdir={tmp_path / 'new'}")
