"""`diff RUN RUN`: the settings that differ, then the results; a run's folder is a config, and stands
as an argument or a flag. `verify` says that a run comes out identical, or where it first differs
and what is not as it was.
"""

import json
import shutil
from pathlib import Path

import pytest

from attnlab import config as configs
from attnlab.commands.verify import changes, first_difference
from attnlab.records.manifest import Manifest
from attnlab.records.stream import read_records
from tests.bad_input_cases import rewrite_config
from tests.commands.tiny import completed, refused, run_command
from tests.experiments.synthetic import edit, lines


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


RECORDS = [
    {"step": 2, "split": "train", "loss": 1.5, "tokens": 7.0},
    {"step": 4, "split": "valid", "loss": float("nan")},
]


@pytest.fixture
def copied(searched: Path, tmp_path: Path) -> Path:
    """What verify reads of a finished run, to be changed."""
    for name in ("manifest.json", "metrics.jsonl"):
        shutil.copy(searched / name, tmp_path / name)
    return tmp_path


@pytest.mark.full
def test_a_run_comes_out_the_same(searched: Path) -> None:
    before = {path: path.read_bytes() for path in searched.rglob("*") if path.is_file()}
    ended = run_command(["verify", str(searched)])
    assert (ended.code, ended.out) == (0, f"{searched}: identical, 6 records up to step 12\n")
    assert {path: path.read_bytes() for path in searched.rglob("*") if path.is_file()} == before


def test_the_first_difference_is_named_and_what_is_not_as_it_was(copied: Path) -> None:
    """It is looked for within the steps that are asked for."""
    first, second, valid, *later = read_records(copied / "metrics.jsonl")
    # at step 6
    lines(copied / "metrics.jsonl", [first, second, valid | {"accuracy": 0.123}, *later])
    edit(copied / "manifest.json", packages={"jax": "0.0.1"})
    ended = run_command(["verify", str(copied), "--steps=6"])
    assert ended.code == 1
    assert ended.out.startswith(
        f"{copied}: differs first at step 6 (valid), in accuracy: recorded 0.123, now 0."
    )
    assert '  not as it was: packages.jax: saved "0.0.1", wanted "' in ended.out


def test_first_difference() -> None:
    assert first_difference(RECORDS, [dict(record) for record in RECORDS]) is None  # NaN is itself
    other = [{**RECORDS[0], "loss": 1.5000000000000002}, RECORDS[1]]
    fewer = [{name: value for name, value in RECORDS[0].items() if name != "tokens"}, RECORDS[1]]
    first, second = "differs first at step 2 (train), in", "differs first at step 4 (valid):"
    for recorded, now, said in (
        (RECORDS, other, f"{first} loss: recorded 1.5, now 1.5000000000000002"),
        (RECORDS, fewer, f"{first} tokens: recorded 7.0, now nothing"),
        (fewer, RECORDS, f"{first} tokens: recorded nothing, now 7.0"),
        (RECORDS, RECORDS[:1], f"{second} this record was recorded but did not come now"),
        (RECORDS[:1], RECORDS, f"{second} this record was not recorded but came now"),
    ):
        assert first_difference(recorded, now) == said


def test_what_training_did_not_read_is_no_change() -> None:
    """A run of `train` has read the test split too; a stacked trial says that it was one."""
    then = Manifest.build(
        {}, devices={"kind": "cpu", "stacked": 3}, data={"train": "a", "valid": "b", "test": "c"}
    )
    now = Manifest.build({}, devices={"kind": "cpu"}, data={"train": "a", "valid": "x"})
    one, two = changes(then, now)
    assert one == 'data.valid: saved "b", wanted "x"' and "one program with 2 other trials" in two


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{empty}"], "holds no run; name the folder of a run"),
        (["{run}", "--steps=2"], "--steps=2: the first record of"),
        (["{run}", "--stpes=2"], "verify: unknown flag --stpes; did you mean '--steps'?"),
        ([], "no --workdir given"),
    ],
)
def test_mistakes_are_named(
    arguments: list[str], words: str, copied: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    where = {"run": copied, "empty": tmp_path_factory.mktemp("empty")}
    assert words in refused("verify", *(word.format(**where) for word in arguments))


def test_a_run_without_records(copied: Path) -> None:
    (copied / "metrics.jsonl").unlink()
    assert "has no records yet" in refused("verify", str(copied))
