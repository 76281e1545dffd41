"""The experiments of the repository: each file loads without jax, the settings of every candidate
are resolved, and its variants are equally large; a default run builds those of a few files.
"""

import itertools
import json
import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from attnlab import config as configs
from attnlab.experiments.define.loading import definition, load_experiment
from attnlab.experiments.plan import Plan, building, process
from attnlab.experiments.plan.building import Builder
from attnlab.experiments.plan.process import listed, made
from attnlab.tasks import models
from tests import sampling
from tests.changed import changed
from tests.experiments import real
from tests.refusals import check_refused

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "experiments").glob("*.py"))
DRAWN = random.Random(sampling.seed()).sample(FILES, 3)
BUILT = [
    pytest.param(file, marks=() if file in DRAWN else pytest.mark.full, id=file) for file in FILES
]
BOTTLENECK = "experiments/bottleneck.py"
FEW = 200
WORDS = ["ein", "haus", "und", "noch", "ein", "garten", "mit", "rosen", "hinter", "dem", "zaun"]


class Sharing(Builder):
    """A builder of little data, which it shares with others."""

    drawn: ClassVar[dict[str, Any]] = {}

    def __init__(self, file: str, seed: int) -> None:
        super().__init__(file, seed)
        self._data = self.drawn

    def resolved(self, overrides: Mapping[str, Any]) -> Any:
        """Few examples, but more where the file has more."""
        config = super().resolved(overrides)
        fewer = {
            name.replace(".", "__"): min(drawn, FEW + drawn // 50)
            for name, drawn in configs.flat(config).items()
            if name.startswith("data.")
            and name.endswith((".examples", ".train", ".valid", ".test"))
            if isinstance(drawn, int)
        }
        return changed(config, **fewer)


@pytest.fixture
def sizes_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a budget is solved a system is built at several sizes, and traced once at each: what
    does not depend on them, such as what a pass leaves aside, is found at the first. With words to
    stand in for the data's it is built once for all variants with the same positions, whose reach
    is checked: each is built with the data's too. Data that two files name is drawn once.
    """
    monkeypatch.setattr(process, "Builder", Sharing)
    checked, aside = set(), {}

    def check(kind: Any, config: Any) -> None:
        settings = {
            key: value
            for key, value in configs.flat(config).items()
            if not key.startswith("system.") or re.search("^system.name$|positions|longest", key)
        }
        if (shape := re.sub(r"\d+", "N", json.dumps(settings))) not in checked:
            building_check(kind, config)
            checked.add(shape)

    def left_aside(system: Any, *given: Any) -> Any:
        if (shape := re.sub(r"\d+", "N", repr(system))) not in aside:
            aside[shape] = find_aside(system, *given)
        return aside[shape]

    find_aside, building_check = models.left_aside, building.check
    monkeypatch.setattr(building, "check", check)
    monkeypatch.setattr(models, "left_aside", left_aside)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Parallel text of 1 to 9 words a sentence, as many of each length."""
    for split, count in (("train", 90), ("valid", 18), ("test", 18)):
        for language, turn in (("de", 0), ("en", 3)):
            lines = [
                " ".join(
                    WORDS[(number + turn + place) % len(WORDS)] for place in range(number % 9 + 1)
                )
                for number in range(count)
            ]
            (tmp_path / f"{split}.{language}").write_text("".join(line + "\n" for line in lines))
    return tmp_path


@pytest.mark.quick
def test_every_file_loads_without_jax_and_says_how_to_run_it() -> None:
    code = (
        "import sys; from attnlab.experiments.define.loading import load_experiment as load\n"
        "for file in sys.argv[1:]:\n    load(file)\n"
        "    print(file, [name for name in ('jax', 'numpy', 'flax') if name in sys.modules])"
    )
    done = real.python("-c", code, *FILES, cwd=ROOT)
    wanted = "".join(f"{file} []\n" for file in FILES)
    assert (done.returncode, done.stdout) == (0, wanted), done.stderr
    for file in FILES:
        assert f"python launch.py sweep {file} --dir=runs/" in (ROOT / file).read_text()


@pytest.mark.quick
def test_every_candidate_of_every_file_has_settings_that_exist() -> None:
    for file in FILES:
        defined = definition(load_experiment(file), file)
        plan = Plan(**defined, file=file, hash="", created="", candidates=())
        assert len(plan.seeds) >= 3 and len(plan.variants) >= 4 and plan.claim is not None
        builder = Builder(plan.config, plan.seeds[0])
        for candidate in listed(plan):
            with building.naming(f"{file}: {candidate.variant}", candidate.tuned):
                builder.resolved(candidate.overrides)


@pytest.mark.usefixtures("uncounted", "sizes_alike")
@pytest.mark.parametrize("file", BUILT)
def test_every_file_plans_and_its_variants_are_equally_large(file: str, tmp_path: Path) -> None:
    plan = made(file, tmp_path)
    assert len(plan.candidates) == len(plan.variants)
    sizes = [candidate.parameters for candidate in plan.candidates]
    within = plan.budget["within"] if plan.budget else 0.01
    assert max(sizes) <= (1 + 2 * within) * min(sizes), dict(zip(plan.variants, sizes, strict=True))
    assert all(each.budget is None or each.budget["matched"] for each in plan.candidates)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("file", "trials"),
    [
        *(("blocks.py:norms", 18), ("blocks.py:ways", 12), ("blocks.py:mask", 6)),
        *(("blocks.py:rotary", 6), ("heads.py:scale", 18), ("positions.py:decoder", 18)),
        *(("positions.py:longer", 18), ("positions.py:beside", 12)),
        *(("depth.py:images", 24), ("hard.py:captions", 12)),
    ],
)
def test_what_an_argument_asks_fits_two_cores(file: str, trials: int) -> None:
    experiment = load_experiment(f"experiments/{file}")
    assert len(experiment.compare) * len(experiment.seeds) == trials
    assert experiment.claim is not None
    assert experiment.baseline in {point.name for point in experiment.compare}


@pytest.mark.full
@pytest.mark.usefixtures("uncounted")
def test_bottleneck_on_text_compares_its_extreme_thirds(folder: Path, tmp_path: Path) -> None:
    experiment = load_experiment(f"{BOTTLENECK}:{folder}")
    pairs = itertools.product(("fixed vector", "attention"), ("up to 3 words", "7 to 50 words"))
    assert [point.name for point in experiment.compare] == [", ".join(pair) for pair in pairs]
    plan = made(f"{BOTTLENECK}:{folder}", tmp_path / "sweep")
    data = [candidate.config["data"] for candidate in plan.candidates]
    assert [(texts["shortest"], texts["longest"]) for texts in data] == 2 * [(1, 3), (7, 50)]
    assert all(texts["of"]["directory"] == str(folder) for texts in data)
    assert plan.measure["metric"] == "bleu"


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("quickstart.py:fast", "experiments/quickstart.py:fast: it takes no argument"),
        ("memory.py:ages", "experiments/memory.py has no experiment 'ages'; did you mean 'age'?"),
        ("depth.py:step", "experiments/depth.py has no experiment 'step'; did you mean 'steps'?"),
        (
            "hard.py:caption",
            "experiments/hard.py has no experiment 'caption'; did you mean 'captions'?",
        ),
        ("asked.py:{folder}/none", "cannot find {folder}/none/train_questions.tsv"),
        ("training_images.py:{folder}", "cannot find {folder}/train-images-idx3-ubyte"),
        (
            "order.py:window",
            "experiments/order.py has no experiment 'window'; did you mean 'windows'?",
        ),
        (
            "bottleneck.py:{folder}:de",
            "{folder}:de: expected the endings of both languages, such as 'de-en'",
        ),
        ("bottleneck.py:{folder}:fr-en", "cannot find {folder}/train.fr"),
        ("bottleneck.py:{folder}/nowhere", "cannot find {folder}/nowhere/train.de"),
    ],
)
def test_what_an_argument_must_be(argument: str, words: str, folder: Path) -> None:
    file = f"experiments/{argument.format(folder=folder)}"
    check_refused(re.escape(words.format(folder=folder)), load_experiment, file)


def test_text_of_one_length_is_refused(folder: Path) -> None:
    for language in ("de", "en"):
        (folder / f"train.{language}").write_text("ein haus\n" * 9)
    words = "no third of the training sentences is longer than another"
    check_refused(words, load_experiment, f"{BOTTLENECK}:{folder}")
