"""What of a run's states may go, by its files alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attnlab.errors import UserError
from attnlab.records import attempts, states
from attnlab.records.manifest import Manifest


def step(folder: Path, number: int, best: int | None, ema: bool = False) -> None:
    """A committed step whose parameters take 48 bytes, with a file of 100 bytes."""
    shapes = {"params/w": [3, 4], "opt_state/0/mu/w": [3, 4], **({"ema/w": [3, 4]} if ema else {})}
    arrays = {path: {"dtype": "float32", "shape": shape} for path, shape in shapes.items()}
    content = {"step": number, "best": best, "arrays": arrays, "meta": {}}
    path = folder / "checkpoints" / str(number)
    (path / "meta").mkdir(parents=True)
    text = json.dumps({"content": content, "sha256": states.text_digest(content)})
    (path / "meta" / "metadata").write_text(text)
    (path / "state").write_bytes(bytes(100))


def run(folder: Path, state: str = "done") -> Path:
    """A run of three steps, the first of which is the best."""
    config = {"training": {"steps": 3}}
    Manifest.build(config, devices={}, data={}).write(folder)
    for number in (1, 2, 3):
        step(folder, number, 1)
    attempt = attempts.Attempt.start(folder)
    attempt.end(state, 3)  # type: ignore[arg-type]
    (folder / "results.json").write_text("{}")
    return folder


@pytest.mark.quick
def test_what_goes_and_what_stays(tmp_path: Path) -> None:
    folder = run(tmp_path)
    (folder / "checkpoints" / "damaged-4").mkdir()
    best = states.prunable(folder, "best")
    assert best.step == 1 and [path.name for path in best.take] == ["2", "3", "damaged-4"]
    assert best.files == 4 and best.size > 200 and not best.writes
    alone = states.prunable(folder, "best-params")
    assert [path.name for path in alone.take] == ["1", "2", "3", "damaged-4"]
    assert alone.writes == 48
    states.take(best)
    assert states.saved_steps(folder / "checkpoints") == [1]
    assert not states.prunable(folder, "best").take


def test_a_moving_average_is_what_is_used(tmp_path: Path) -> None:
    step(tmp_path, 1, 1, ema=True)
    arrays = states.step_record(tmp_path / "checkpoints" / "1")["arrays"]
    assert states.used_paths(arrays) == {"params/w": "ema/w"}


def test_without_a_best_step_the_newest_is_used(tmp_path: Path) -> None:
    folder = run(tmp_path)
    for path in (folder / "checkpoints").iterdir():
        path.rename(folder / path.name)
    step(folder, 7, None)
    assert states.prunable(folder, "best").step == 7


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: (path / "manifest.json").unlink(), "holds no run"),
        (lambda path: (path / "results.json").unlink(), "no results yet"),
        (lambda path: attempts.reopen(path), "interrupted at step 3 of 3"),
        (
            lambda path: (path / "checkpoints/1/meta/metadata").write_text("{}"),
            "missing or damaged",
        ),
        (lambda path: (path / "checkpoints").rename(path / "away"), "missing or damaged"),
    ],
)
def test_a_run_that_is_not_pruned(spoil: object, said: str, tmp_path: Path) -> None:
    spoil(run(tmp_path))  # type: ignore[operator]
    with pytest.raises(UserError, match=said) as raised:
        states.prunable(tmp_path, "best")
    assert "\n" not in str(raised.value)


def test_what_goes_on_from_a_pruned_run_says_what_is_missing(tmp_path: Path) -> None:
    states.mark(states.prunable(run(tmp_path), "best-params"))
    manifest = Manifest.read(tmp_path)
    assert manifest is not None and manifest.pruned is not None
    for enough in ((), ("best",)):
        with pytest.raises(
            UserError, match=r"best parameters \(step 1, .*optimizer's state is gone"
        ):
            manifest.check_states(tmp_path, enough)
    manifest.check_states(tmp_path, ("best-params",))
