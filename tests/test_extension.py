"""What `docs/extending.md` and the pages below it tell a user to do works: files outside the package
are like any of its own.
"""

import dataclasses
import importlib
import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnlab
from attnlab import config as configs
from attnlab.api.costs import measured, mixer
from attnlab.attention.needs import Need
from attnlab.attention.protocol import Capabilities
from attnlab.commands import COMMANDS
from attnlab.config.registry import build
from attnlab.data import SOURCES
from attnlab.data.tfds import Tfds
from attnlab.errors import UserError
from attnlab.experiments import Budget, Claim, Contrast, Experiment, Search
from attnlab.experiments.define.axes import text
from attnlab.experiments.define.loading import load_experiment
from attnlab.records.items import Items
from attnlab.tasks import TASKS
from attnlab.training.optimizers import build_optimizer
from attnlab.training.run import check
from tests.commands.tiny import (
    SHARED,
    SMALL,
    CommandResult,
    completed,
    refused,
    run_command,
    train,
    under,
)
from tests.refusals import check_refused
from tests.systems import checks, own

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "docs" / "examples"
SLOTS = {
    "rnnsearch": ["attention"],
    "transformer": ["encoder_attention", "decoder_attention", "cross_attention"],
}


GUIDES = [ROOT / "docs" / "extending.md", *sorted((ROOT / "docs" / "extending").glob("*.md"))]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with the examples in it and nothing else of ours; the test stands there."""
    for example in EXAMPLES.glob("*.py"):
        shutil.copy(example, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    for name in (example.stem for example in EXAMPLES.glob("*.py")):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.fixture
def digits(folder: Path) -> Path:
    """With the files that `digits.py` writes."""
    exec(compile((EXAMPLES / "digits.py").read_text(), "digits.py", "exec"), {})
    return folder


def commands(guide: Path) -> Iterator[list[str]]:
    """The commands of a guide, as words; what a pipe feeds them is left out."""
    for block in re.findall(r"(?:^    .*\n)+", guide.read_text(), re.MULTILINE):
        for line in re.sub(r"\\\n", " ", block).splitlines():
            words = shlex.split(line.rpartition(" | ")[2])
            if words[0] in ("python", "mkdir"):
                yield words


SHORT = [*SHARED, "training.steps=2", "data.test=1"]


def trains(config: str, *settings: str) -> CommandResult:
    """A run in `run`, which comes to its end."""
    ended = completed(train(config, "run", *settings))
    return ended


def suite(room: str, *options: str) -> tuple[dict[str, int], str]:
    """How many tests of a room passed, were skipped or failed in a process of their own, and what
    was printed.
    """
    tests = ["-m", "pytest", str(ROOT / "tests" / room), "-q", "-rs", "-p", "no:cacheprovider"]
    words = [sys.executable, *tests, *options]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = re.findall(r"(\d+) (passed|skipped|failed)", done.stdout)
    return {word: int(number) for number, word in counts}, done.stdout


def test_every_example_is_one_short_file() -> None:
    """Of the lines that the guide says; an oracle is its formula alone."""
    page = GUIDES[0].read_text()
    lines = {path.name: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}
    assert max(lines.values()) <= 75
    for row in re.findall(r"^\| .*\(examples/.*$", page, re.MULTILINE):
        named, said = re.findall(r"\(examples/(\w+\.py)\)", row), row.split("|")[4]
        assert [int(number) for number in said.split(", ")] == [lines[name] for name in named]
    guides = "".join(guide.read_text() for guide in GUIDES)
    assert [name for name in lines if name not in guides] == []


@pytest.mark.parametrize("guide", GUIDES, ids=lambda one: one.stem)
def test_the_commands_of_a_guide_are_right(guide: Path, digits: Path) -> None:
    """Files and folders are there, commands exist, and configs with all their overrides pass every
    check before data.
    """
    found = list(commands(guide))
    assert len(found) >= 2
    for _, program, *words in (one for one in found if one[0] == "python"):
        if program == "$CLONE/launch.py":
            assert words and words[0] in COMMANDS
        elif program != "-m":
            assert (digits / program).is_file()
        if words[:1] == ["train"]:
            overrides = [
                one.removeprefix("--config.") for one in words if one.startswith("--config.")
            ]
            (path,) = (w.removeprefix("--config=") for w in words if w.startswith("--config="))
            config = configs.load(path, overrides)
            check(TASKS.resolve(config.task), config)
    for link in re.findall(r"\]\(([^)#]+)\)", guide.read_text()):
        assert (guide.parent / link).exists(), link


HOPFIELD = """
import jax, numpy as np, hopfield
module = hopfield.Hopfield(width=4)
query = source = np.ones((1, 3, 4), np.float32)
params = module.init(jax.random.key(0), query, source)["params"]
"""


@pytest.mark.parametrize("guide", GUIDES, ids=lambda one: one.stem)
def test_the_blocks_of_a_guide_run(guide: Path, folder: Path) -> None:
    """Indented lines are commands, all else is Python in a fence."""
    fence = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
    for lines in re.findall(r"(?:^    .*\n)+", fence.sub("", guide.read_text()), re.MULTILINE):
        first = lines.split()[0]
        assert first in ("python", "echo", "mkdir") or first.startswith("--"), lines
    for block in fence.findall(guide.read_text()):
        before = HOPFIELD if guide.stem == "extending" else ""
        Path("block.py").write_text(before + block)
        runpy.run_path("block.py")


EXPLAINED = [
    ("extending.md", Capabilities),
    ("extending/system.md", Need),
    *(("extending/experiment.md", one) for one in (Experiment, Budget, Claim, Contrast, Search)),
]


@pytest.mark.parametrize(("page", "kind"), EXPLAINED, ids=[one.__name__ for _, one in EXPLAINED])
def test_every_field_is_explained_with_its_default(page: str, kind: Any) -> None:
    """In the table of that class: the one whose rows begin with its first field."""
    fields = {one.name: one for one in dataclasses.fields(kind)}
    tables = re.findall(r"(?:^\|.*\n)+", (ROOT / "docs" / page).read_text(), re.MULTILINE)
    (table,) = (x for x in tables if x.splitlines()[2].startswith(f"| `{next(iter(fields))}` |"))
    rows = [[one.strip() for one in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    assert [row[0].strip("`") for row in rows] == list(fields)
    for name, said, meaning in rows:
        field = fields[name.strip("`")]
        none, make = dataclasses.MISSING, field.default_factory
        default = field.default if make is none else make()
        assert said == "none" if default is none else eval(said.strip("`")) == default, name
        assert len(meaning) > 10


@pytest.mark.full
def test_it_passes_the_whole_suite_by_one_command(folder: Path) -> None:
    own = ["--mechanism=hopfield:Hopfield", "--oracle=hopfield_oracle:oracle"]
    counts, printed = suite("attention", *own)
    assert counts["passed"] >= 16 and "failed" not in counts, printed
    reasons = set(re.findall(r"^SKIPPED .*?: (.*)$", printed, flags=re.MULTILINE))
    assert not [reason for reason in reasons if "oracle" in reason], reasons


@pytest.mark.full
@pytest.mark.parametrize(
    ("flag", "name", "oracle"),
    [
        ("score", "Power", "power"),
        ("alignment", "Squared", "squared"),
        ("positions", "Near", "nearness"),
    ],
)
def test_a_part_passes_its_suite(flag: str, name: str, oracle: str, folder: Path) -> None:
    counts, printed = suite("attention", f"--{flag}=parts:{name}", f"--oracle=parts:{oracle}")
    assert counts["passed"] >= 5 and "failed" not in counts, printed


def test_parts_of_ones_own_fit_each_other_and_are_counted(folder: Path) -> None:
    """By shapes alone."""
    fields = {"heads": 2, "score": "parts:Power", "alignment": "parts:Squared"}
    point = measured("own", mixer("multihead", fields, "causal", 8), 4, backward=False)
    assert (point.why, point.parameters) == ("", 4 * 8 * 8) and point.flops > 2 * 4 * 4 * 8 * 8
    module = attnlab.mechanism("multihead", **fields, positions="parts:Near")(width=8)
    x = jnp.ones((1, 4, 8))
    reading = jax.eval_shape(lambda: module.init_with_output(jax.random.key(0), x, x)[0])
    assert reading.context.shape == x.shape


@pytest.mark.full
@pytest.mark.parametrize("system", SLOTS)
def test_it_trains_everywhere(system: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps in all slots, by the command line alone; then it is evaluated and its maps are
    drawn.
    """
    monkeypatch.setattr("attnlab.analysis.results.PICTURED", 1)
    small = [one for one in SMALL[system] if "score" not in one]  # which has been replaced
    chosen = [f"system.{slot}=hopfield:Hopfield" for slot in SLOTS[system]]
    chosen.append(f"system.{SLOTS[system][0]}.steps=1")
    trains(f"translation.py:{system}", *chosen, *small, *SHORT)
    results = json.loads((folder / "run" / "results.json").read_text())
    assert results["step"] == 2 and list((folder / "run" / "maps").glob("*.png"))


@pytest.mark.full
def test_a_norm_and_a_feed_forward_of_ones_own_train(folder: Path) -> None:
    """Two steps of a Transformer; their parameters are there, and something else is refused."""
    chosen = ["normalisation=maxout:L1Norm", "feed_forward=maxout:Maxout", "feed_forward.pieces=3"]
    chosen = [f"system.{one}" for one in chosen]
    trains("translation.py:transformer", *chosen, *SMALL["transformer"], *SHORT)
    inner = attnlab.load("run").params["encoder_0"]["feed_forward"]["inner"]["kernel"]
    assert inner.shape == (16, 48)
    swapped = "system.normalisation=maxout:Maxout"
    line = refused(*train("translation.py:transformer", "other", swapped))
    assert "normalisation" in line and "Norm" in line


@pytest.mark.full
def test_a_system_is_put_through_what_all_of_its_kind_are(folder: Path) -> None:
    """By one command; a part of it here, for the same functions run over every registered
    system.
    """
    own = ["--system=look_after:LookAfter", "--oracle=look_after_oracle:oracle"]
    some = ["-k", "slots or oracle or (causality and single)"]
    counts, printed = suite("systems", *own, *some)
    assert counts == {"passed": 5, "skipped": 2}, printed
    assert "the oracle leaves this setting out: written for the score 'dot'" in printed


PEEKING = """
import jax.numpy as jnp
from look_after import LookAfter
TIED, SILENT, LARGER = True, ("gate/bias",), {"width": 8}
class Peeking(LookAfter):
    def decode(self, memory, target_in):
        return super().decode(memory, jnp.roll(target_in, -1, axis=1))
def oracle(params, settings, source, target_in):
    raise AssertionError(settings)
"""


def test_the_promises_of_every_kind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `--system` runs: all checks of the kind for every setting; open slots are filled; what
    the file says beside it is heard.
    """
    monkeypatch.setattr(own, "PROMISES", [])
    monkeypatch.setattr(checks, "TIED", set())
    monkeypatch.setattr(checks, "SILENT", {})
    (folder / "peeking.py").write_text(PEEKING)

    def promised(path: str) -> list[str]:
        own.only(path)
        return [name for name, _ in own.PROMISES]

    always = ("slots and shapes", "gradients", "padding", "dropout", "the oracle-")
    always = (*always, "the oracle reads every parameter")
    lstm = "attnlab.systems.recurrent.lstm_lm:LSTMLanguageModel"
    pooling = "attnlab.systems.recurrent.pooling:AttentionPooling"
    both = ("causality", "learning by heart")
    for path, count, names in (
        (lstm, 10, (*both, "pieces")),
        (pooling, 26, ("every text counts of 2 texts",)),
        ("peeking:Peeking", 21, (*both, "cached decoding", "maps", "multihead")),
    ):
        found = promised(path)
        expected = [one if path != pooling or one[0] == "s" else one.rstrip("-") for one in always]
        missing = {start for start in (*expected, *names) if not any(start in one for one in found)}
        assert len(found) == count and not missing, found
    assert {"peeking:Peeking"} == checks.TIED and checks.SILENT["peeking:Peeking"] == ("gate/bias",)
    assert own.PROMISES[-1][1].args[0]["width"] == 8  # type: ignore[attr-defined]
    peeks, told = (
        next(promise for name, promise in own.PROMISES if name.startswith(start))
        for start in ("causality", "the oracle-")
    )
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        peeks()
    with pytest.raises(
        AssertionError, match="'dropout': 0.0, .*'embedding': 32|'embedding': 32, .*'dropout': 0.0"
    ):  # defaults and all
        told()
    for path, words in (
        ("attnlab.errors:nearest", "expected a class derived from"),
        ("look_aftr:LookAfter", "cannot import 'look_aftr'"),
    ):
        check_refused(words, promised, path)


@pytest.mark.full
def test_pairs_system_optimizer_and_schedule_train_together(digits: Path) -> None:
    """Two steps with nothing of ours but the task; then it is evaluated, and translates."""
    chosen = [
        *("data=jsonl:JsonLines", "system=look_after:LookAfter", "vocabulary.kind=word"),
        *("system.attention=hopfield:Hopfield", "system.attention.steps=1"),
        *("optimizer=lion:lion", "optimizer.b1=0.8", "schedule=lion:stay_and_fall"),
        *under("system", embedding=8, width=8),
    ]
    small = [one for one in SHORT if not one.startswith(("data.", "schedule."))]
    for split in ("train", "valid", "test"):
        lines = (digits / f"{split}.jsonl").read_text().splitlines(keepends=True)
        (digits / f"{split}.jsonl").write_text("".join(lines[:40]))
    trains("translation.py:rnnsearch", *chosen, *small)
    manifest = json.loads((digits / "run" / "manifest.json").read_text())
    chosen = {"name": "lion:lion", "b1": 0.8, "b2": 0.99, "weight_decay": 0.1}
    assert manifest["config"]["optimizer"] == chosen
    ended = run_command(["evaluate", "--workdir=run", "--split=valid", "--json"])
    assert ended.code == 0 and json.loads(ended.out)["sentences"] == 40, ended.err
    ended = run_command(["generate", "--workdir=run"], stdin="3 1 2\n\n")
    assert ended.code == 0 and len(ended.out.splitlines()) == 2, ended.err


@pytest.mark.full
def test_a_task_of_ones_own_trains_is_evaluated_and_answers(digits: Path) -> None:
    chosen = [
        *("task=regression:Regression", "checkpoint.by=correlation"),
        *("data=jsonl:JsonLines", "data.target=", "schedule.peak=2e-2", "schedule.warmup=2"),
        *under("system", embedding=8, width=8, hidden=8),
        *under("batch", buckets=10, max_length=10),
        *under("training", steps=80, evaluate_every=40),
    ]
    ended = trains("classification.py:bilstm_pooling", *chosen)
    results = json.loads((digits / "run" / "results.json").read_text())
    assert results["correlation"] > 0.8  # the mean of digits is easily learnt
    assert {"loss", "absolute_error", "examples"} <= set(results)
    ways = {"loss": "min", "absolute_error": "min", "correlation": "max"}
    assert {name: one["better"] for name, one in results["measures"].items()} == ways
    items = Items.read(digits / "run")
    assert len(items) == 200
    assert set(items.rules) == {"loss", "absolute_error"}
    assert "warning" not in ended.err
    lines = (digits / "run" / "predictions.tsv").read_text().splitlines()
    assert len(lines) == 200 and all(len(line.split("\t")) == 2 for line in lines)
    ended = run_command(["evaluate", "--workdir=run", "--split=valid"])
    assert ended.code == 0 and "Pearson's" in ended.out, ended.err
    ended = run_command(["generate", "--workdir=run"], stdin="1 1 1\n9 9 9\n")
    low, high = map(float, ended.out.split())
    assert ended.code == 0 and low + 1 < high, ended.err


def test_json_lines_are_read_and_what_is_wrong_with_them_is_named(digits: Path) -> None:
    def source(**fields: str) -> Any:
        return build(SOURCES, {"name": "jsonl:JsonLines", **fields}, "config.data")()

    pair, *_ = source().pairs("test")
    text, *_ = source().texts("test")
    labelled, *_ = source(target="").labelled("test")
    assert pair == (text, " ".join(sorted(text.split())))
    assert labelled[0] == (text,)
    assert source().labelled("test")[0][0] == pair
    assert float(labelled[1]) == pytest.approx(np.mean(list(map(int, text.split()))), abs=1e-4)
    assert source(target="").sentences == 1
    for line, words in (
        ("{", r"valid.jsonl, line 2: no JSON"),
        ("[1]", "line 2: expected an object"),
        ('{"sorce": "a"}', "line 2: no field 'source'; did you mean 'sorce'"),
    ):
        (digits / "valid.jsonl").write_text(f'{{"source": "a", "target": "b"}}\n{line}\n')
        check_refused(words, source().pairs, "valid")
    check_refused("cannot find gone.jsonl", source(test="gone.jsonl").pairs, "test")


def test_a_tfds_dataset_of_ones_own_needs_no_tensorflow(digits: Path) -> None:
    module = importlib.import_module("phrases")
    module.Phrases(data_dir="prepared", file_format="array_record").download_and_prepare()
    assert "tensorflow" not in sys.modules
    columns = {"source": "source", "target": "target", "label": "label"}
    source = Tfds(directory="prepared/phrases/1.0.0", valid="validation[:50%]", **columns)
    records = [json.loads(line) for line in (digits / "valid.jsonl").read_text().splitlines()]
    pairs = source.pairs("valid")
    assert len(pairs) == 100 and set(pairs) <= {(one["source"], one["target"]) for one in records}
    assert source.labelled("valid")[0][1] in {str(one["label"]) for one in records}


def test_lion_and_its_schedule_are_what_they_say(folder: Path) -> None:
    """Five updates against NumPy, with values that are not the defaults; the schedule at its
    corners.
    """
    schedule = {"name": "lion:stay_and_fall", "peak": 0.2, "warmup": 4, "share": 0.5, "floor": 0.02}
    lion = {"name": "lion:lion", "b1": 0.7, "b2": 0.6, "weight_decay": 0.3}
    optimizer, rate = build_optimizer(lion, schedule, steps=20, clip=0.0)
    wanted = {1: 0.05, 2: 0.1, 4: 0.2, 10: 0.2, 11: 0.182, 15: 0.11, 20: 0.02}
    np.testing.assert_allclose([rate(t - 1) for t in wanted], [*wanted.values()], rtol=1e-5)
    rng = np.random.default_rng(0)
    w = {"kernel": rng.normal(size=(2, 3)), "bias": rng.normal(size=3)}
    params = {name: jnp.asarray(x, jnp.float32) for name, x in w.items()}
    m = {name: 0.0 * x for name, x in w.items()}
    state = optimizer.init(params)
    for t in range(1, 6):
        g = {name: rng.normal(size=x.shape) for name, x in w.items()}
        updates, state = optimizer.update(
            {name: jnp.asarray(x, jnp.float32) for name, x in g.items()}, state, params
        )
        params = {name: params[name] + updates[name] for name in params}  # type: ignore[index]
        for name, decay in (("kernel", 0.3), ("bias", 0.0)):
            w[name] = w[name] - float(rate(t - 1)) * (
                np.sign(0.7 * m[name] + 0.3 * g[name]) + decay * w[name]
            )
            m[name] = 0.6 * m[name] + 0.4 * g[name]
            np.testing.assert_allclose(params[name], w[name], rtol=1e-5, atol=1e-6)
    with pytest.raises(UserError, match="schedule.share=0 must be above 0"):
        build_optimizer({"name": "lion:lion"}, {**schedule, "share": 0}, steps=20, clip=0.0)


def test_the_experiment_is_one(folder: Path) -> None:
    """Every variant is a config that passes every check, and the argument says how many seeds; the
    dry run was tried by hand.
    """
    experiment = load_experiment("looking.py:2")
    assert experiment.seeds == (0, 1)
    names = [variant.name for variant in experiment.compare]
    assert names == ["before", "after", "after, heads", "after, twice"]
    for point in experiment.compare:
        settings = {**experiment.base, **point.overrides, **experiment.tune[0].overrides}
        config = configs.load(
            experiment.config, [f"{key}={text(x)}" for key, x in settings.items()]
        )
        check(TASKS.resolve(config.task), config)
    check_refused("expected a number of seeds", load_experiment, "looking.py:many")
