"""`diff RUN RUN`: the settings that differ, then the results; a run's folder is a config, and stands as
an argument or a flag.
"""

import json
import shutil
from pathlib import Path

import pytest

from attnlab import config as configs
from tests.bad_input_cases import rewrite_config
from tests.commands.tiny import completed, refused, run_command
from tests.experiments.synthetic import edit


@pytest.fixture
def two(searched: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A finished run, and one of another rate whose loss is larger by a half."""
    first, second = tmp_path / "runs" / "first", tmp_path / "runs" / "second"
    for folder in (first, second):
        folder.mkdir(parents=True)
        for name in ("manifest.json", "results.json"):
            shutil.copy(searched / name, folder / name)
    rewrite_config(second, "schedule.peak", 0.5)
    loss = json.loads((second / "results.json").read_text())["loss"]
    edit(second / "results.json", loss=loss + 0.5)
    return first, second


def test_settings_then_results(two: tuple[Path, Path]) -> None:
    ended = completed(["diff", *map(str, two)])
    settings, results = ended.out.split("\n\nresults\n")
    assert settings.splitlines()[1].split() == ["setting", "first", "second"]
    assert settings.splitlines()[3].startswith("schedule.peak")
    assert len(settings.splitlines()) == 4  # one setting
    (loss,) = (line.split() for line in results.splitlines() if line.startswith("loss "))
    assert float(loss[3]) == pytest.approx(0.5)


def test_a_run_without_results_and_what_else_differs(two: tuple[Path, Path]) -> None:
    _, second = two
    (second / "results.json").unlink()
    edit(second / "manifest.json", packages={"jax": "0.0.1"})
    out = run_command(["diff", *map(str, two)]).out
    assert f"{second.name} has no results yet" in out
    assert 'made otherwise: packages.jax "' in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{first}"], "required: RUN2"),
        (["{first}", "{first}"], "is named twice"),
        (["{first}", "{first}/.."], "holds no run"),
        (["{first}", "{first}/none"], "holds no run"),
    ],
)
def test_refused(words: list[str], message: str, two: tuple[Path, Path]) -> None:
    assert message in refused("diff", *[word.format(first=two[0]) for word in words])


@pytest.mark.parametrize("name", ["", "manifest.json"])
def test_a_run_is_a_config(name: str, two: tuple[Path, Path]) -> None:
    _, second = two
    config = configs.load(str(second / name), ["seed=7"])
    stored = json.loads((second / "manifest.json").read_text())["config"]
    assert configs.flat(config) == {**configs.flat(configs.from_dict(stored)), "seed": 7}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "is no manifest of a run"),
        ("[" * 99, "is no manifest of a run"),
        ('{"config": {"seed": 1}}', "config.task is missing"),
    ],
)
def test_no_manifest(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(text)
    assert message in refused("show", f"--config={tmp_path}")


def test_a_run_takes_no_argument_and_is_named_once(two: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = map(str, two)
    assert "takes no argument" in refused("show", f"--config={first}:x")
    assert "is a folder; " in refused("show", f"--config={tmp_path}")
    assert "two runs are named" in refused("evaluate", first, f"--workdir={second}")
    assert "unexpected argument" in refused("evaluate", first, second)
    assert f"no --config given, and {tmp_path} holds no run" in refused("train", str(tmp_path))


def test_a_run_is_an_argument_or_a_flag(trained: Path) -> None:
    scores = [
        run_command(["evaluate", *words])
        for words in (("--json", str(trained)), (f"--workdir={trained}", "--json", str(trained)))
    ]
    assert [ended.code for ended in scores] == [0, 0], scores
    assert json.loads(scores[0].out)["loss"] == json.loads(scores[1].out)["loss"]


def test_train_goes_on_with_a_run(trained: Path) -> None:
    before = (trained / "metrics.jsonl").read_bytes()
    completed(["train", str(trained)])
    assert (trained / "metrics.jsonl").read_bytes() == before
