"""What trials share and where they differ, from their manifests."""

from pathlib import Path

import pytest

from attnlab.experiments.report.collect import collect
from attnlab.experiments.report.environment import differing, environment, shared
from tests.experiments.synthetic import edit, sweep, workdir


@pytest.mark.quick
def test_what_differs_is_shown_with_its_trials(tmp_path: Path) -> None:
    directory = sweep(tmp_path, {"a": (0.9, 0.8), "b": (0.7, 0.6)})
    path = workdir(directory, "b", 1) / "manifest.json"
    code = {"revision": "e" * 40, "dirty": True}
    edit(path, python="3.12.0", code=code, packages={"jax": "0.10.2"})
    (workdir(directory, "a", 1) / "manifest.json").unlink()  # one that has not begun says nothing
    found = environment(collect(directory).trials)
    others = ["a-0a1b2c3d/seed0", "b-0a1b2c3d/seed0"]
    assert found.differing["python"] == {"3.11.7": others, "3.12.0": ["b-0a1b2c3d/seed1"]}
    assert found.differing["flax"] == {"0.12.8": others, "absent": ["b-0a1b2c3d/seed1"]}
    assert list(found.differing["code"]) == ["f" * 12, f"{'e' * 12} with changes"]
    assert set(found.differing) == {"code", "python", "flax"}
    assert found.shared["jax"] == "0.10.2"
    assert found.shared["devices"] == "kind cpu, count 1, processes 1"
    table = differing(found)
    assert ("python", "3.12.0", "b-0a1b2c3d/seed1") in table.rows


def test_alike_everywhere_is_said(tmp_path: Path) -> None:
    records = collect(sweep(tmp_path))
    found = environment(records.trials)
    assert differing(found) is None
    table = shared(found, records)
    assert ("train data", "a" * 12) in table.rows
    assert table.notes[1].startswith("Records of version 1: 12 of 12 trials, and the sweep; what")
    for path in (tmp_path / "plan.json", *tmp_path.rglob("manifest.json")):
        edit(path, version=2)
    records = collect(tmp_path)
    assert len(shared(environment(records.trials), records).notes) == 1


def test_code_of_the_users_own_differs_only_between_trials_that_have_it(tmp_path: Path) -> None:
    """One that went on with other code names both."""
    directory = sweep(tmp_path, {"a": (0.9, 0.8), "b": (0.7, 0.6)})
    for seed, digest in ((0, "a" * 64), (1, "b" * 64)):
        path = workdir(directory, "b", seed) / "manifest.json"
        digests = {"mine": digest, "aid": "c" * 64}
        modules = {
            name: {"file": f"{name}.py", "sha256": one, "copy": f"code/{name}.py"}
            for name, one in digests.items()
        }
        word = {"by": "me", "step": 40, "changed": {"mine": {"was": "a" * 64, "now": digest}}}
        own = {"modules": modules, "files": {}, "accepted": [word] * seed}
        edit(path, own_code=own)
    found = environment(collect(directory).trials)
    first, second = ["b-0a1b2c3d/seed0"], ["b-0a1b2c3d/seed1"]
    mixed = f"{'a' * 12} until step 40, then {'b' * 12}"
    assert found.differing == {"your code: mine": {"a" * 12: first, mixed: second}}
    assert found.shared["your code: aid"] == "c" * 12
