"""The one evaluation on the test split: only after the choice, only of what was chosen, once."""

import shutil
import subprocess
from pathlib import Path

import pytest

from attnlab.experiments.run import looked
from attnlab.experiments.run.scoring import due
from attnlab.experiments.run.selection import freeze
from attnlab.records.items import Items
from attnlab.records.manifest import Manifest
from tests.experiments import real, stub
from tests.experiments.conftest import DONE, Swept
from tests.experiments.run.test_launcher import written


def called(directory: Path, candidate: str) -> subprocess.CompletedProcess[str]:
    """The evaluation in a process of its own."""
    return real.perform(directory, "final", f"{candidate}/seed0")


@pytest.mark.quick
def test_before_the_choice_it_is_refused(tmp_path: Path) -> None:
    plan = stub.finished(tmp_path)
    ended = called(tmp_path, plan.candidates[0].id)
    assert ended.returncode == 2
    assert "has no frozen choice: the test split stays closed" in ended.stderr
    choice = freeze(plan, tmp_path)
    assert list(due(plan, choice, tmp_path)) == [one.id for one in plan.candidates]


def test_one_that_was_not_chosen_is_refused(swept: Swept) -> None:
    (broken,) = real.plan(swept.directory).of("broken")
    ended = called(swept.directory, broken.id)
    assert ended.returncode == 2 and "was not chosen" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_one_seed_that_cannot_be_evaluated_does_not_stop_the_others(copy: Path) -> None:
    plan = real.plan(copy)
    (candidate,) = plan.of("additive")
    first, *others = (plan.trial(candidate.id, seed).workdir(copy) for seed in plan.seeds)
    for workdir in (first, *others):
        (workdir / "results.json").unlink()
    shutil.rmtree(first / "checkpoints")
    assert called(copy, candidate.id).returncode == 1
    assert "no checkpoint in" in (first / "log.txt").read_text()
    assert not (first / "results.json").exists()
    assert others and all((workdir / "results.json").exists() for workdir in others)


@pytest.mark.full
def test_pictures_that_a_kill_has_prevented_are_drawn_by_the_next_launch(copy: Path) -> None:
    """Scores are written first, so a kill can fall between the two; the scores stay as they are."""
    plan = real.plan(copy)
    (candidate,) = plan.of("additive")
    first, second = (plan.trial(candidate.id, seed).workdir(copy) for seed in plan.seeds)
    (first / "curves.png").unlink()
    shutil.rmtree(first / "maps")
    files = (first / "results.json", second / "results.json", second / "curves.png")
    kept = [(path, path.stat().st_mtime_ns) for path in files]
    assert called(copy, candidate.id).returncode == 0
    assert (first / "curves.png").is_file() and (first / "maps" / "test0.npz").is_file()
    assert kept == [(path, path.stat().st_mtime_ns) for path, _ in kept]


def test_it_leaves_what_train_leaves_and_is_not_done_twice(swept: Swept) -> None:
    plan = real.plan(swept.directory)
    for variant in DONE:
        (candidate,) = plan.of(variant)
        for seed in plan.seeds:
            workdir = plan.trial(candidate.id, seed).workdir(swept.directory)
            results = real.read(workdir / "results.json")
            assert results["split"] == "test" and results["sentences"] == 1
            assert {"loss", "exact", "bleu", "parameters", "step"} <= set(results)
            assert results["parameters"] == candidate.parameters
            assert results["step"] == real.read(workdir / "valid.json")["step"]
            known = results["measures"]
            assert known["exact"]["count"] == 1 and known["exact"]["of"] == "sentences"
            assert known["bleu"]["high"] == 100.0
            items = Items.read(workdir)
            assert items is not None and len(items) == 1 and set(items.rules) == set(known)
            names = ("bleu", "chrf", "exact", "accuracy")
            assert all(items.score(name) == results[name] for name in names)
            manifest = Manifest.read(workdir)
            assert manifest is not None and "test" not in manifest.data
            assert len(manifest.read_data(workdir)["test"]) == 64
            assert real.read(workdir / "valid.json")["measures"]["loss"] == known["loss"]
            assert len((workdir / "translations.txt").read_text().splitlines()) == 1
            assert (workdir / "curves.png").is_file() and (workdir / "maps" / "test0.npz").is_file()
            drawn = any((workdir / "maps").glob("test0-*.png"))
            assert drawn == (seed == plan.seeds[0])
        kept = written(swept.directory)
        assert called(swept.directory, candidate.id).returncode == 0
        assert kept == written(swept.directory)
    frozen, *read = looked(swept.directory)
    assert frozen["event"] == "choice" and frozen["plan"] == plan.hash
    assert [*frozen["chosen"]] == [*plan.variants]
    chosen = sorted(plan.of(variant)[0].id for variant in DONE)
    assert sorted(one["candidate"] for one in read) == chosen
    assert {one["scored"] for one in read} == {plan.seeds}
    assert {path.parents[1].name for path in swept.directory.rglob("results.json")} == {*chosen}
