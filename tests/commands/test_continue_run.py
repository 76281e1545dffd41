"""`continue` from a folder to a longer run, and what it refuses."""

import re
from pathlib import Path

import pytest

from attnlab import config as configs
from attnlab.errors import UserError
from attnlab.records.locks import RunLock
from attnlab.records.manifest import Manifest
from attnlab.records.stream import BEFORE, read_records
from attnlab.training.parent import lineage_of
from tests.commands.tiny import Runs, completed, refused, run_command

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
