"""Dependencies point one way, heavy imports stay where they belong, and every registered name is
tested.
"""

import ast
import functools
import itertools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import attnlab
from attnlab.attention import MECHANISMS
from attnlab.attention.alignments import ALIGNMENTS
from attnlab.attention.positions import POSITIONS, SCALINGS
from attnlab.attention.scores import SCORES
from attnlab.attention.visibility import VISIBILITIES
from attnlab.config.registry import Table
from attnlab.data import SOURCES
from attnlab.layers import CELLS, FEED_FORWARDS, INITIALIZERS, NORMS
from attnlab.layers.backbones import BACKBONES
from attnlab.layers.gates import GATES
from attnlab.systems import SYSTEMS
from attnlab.tasks import TASKS
from attnlab.training.optimizers import OPTIMIZERS, SCHEDULES
from tests.commands.tiny import alone

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "attnlab"
ORDER = """
config records layers attention mixers systems data weights decoding training tasks analysis pages
experiments processes api commands
"""
ROOMS = tuple(ORDER.split())
# What each room may import besides itself and the foundation (files directly in the package).
_MODELS = {"layers", "attention", "mixers"}
ALLOWED = {
    "config": set(),
    "records": {"config"},
    "layers": {"config"},
    "attention": {"config", "layers"},
    "mixers": {"config", "layers", "attention"},
    "systems": {"config"} | _MODELS,
    "data": {"config", "records"},
    "weights": {"config", "records", "data"},
    "decoding": {"config", "records", "data"},
    "training": {"config", "records"},
    "tasks": {"config", "records", "data", "weights", "decoding", "systems", "training"} | _MODELS,
    "analysis": {"config", "records", "attention", "data", "systems", "training", "tasks"},
    "pages": {"records"},
    "experiments": set(ROOMS) - {"processes", "api", "commands", "experiments"},
    "processes": set(),
    "api": set(ROOMS) - {"api", "commands"},
    "commands": set(ROOMS),
}
# The foundation imports no room, with one exception: the package's own names stand in `api`, from
# where they come when they are asked for.
EXCEPTIONS = {("__init__", "api")}
TRACKERS = "experiments.report.trackers"
LIGHT_FILES = {
    "": "config commands progress errors",
    "config": "registry",
    "records": "attempts files provenance measures items",
    "pages": "html svg tables",
    "experiments": "define plan run report",
    "experiments.run": "worker searching studies",
    "processes": "supervision meeting",
    "api": "stored",
    "commands": "sweep status report session compare export",
    TRACKERS: "wandb_offline mlflow_store tensorboard_hparams",
}
LIGHT = tuple(
    ".".join(filter(None, ("attnlab", folder, name)))
    for folder, names in LIGHT_FILES.items()
    for name in names.split()
)


TABLES: dict[str, tuple[Table, ...]] = {
    "systems": (SYSTEMS,),
    "attention": (SCORES, ALIGNMENTS, POSITIONS, SCALINGS, VISIBILITIES),
    "layers": (NORMS, CELLS, FEED_FORWARDS, INITIALIZERS, GATES, BACKBONES),
    "data": (SOURCES,),
    "training": (OPTIMIZERS, SCHEDULES),
    "tasks": (TASKS,),
}
"""All tables but that of mechanisms, by the room whose tests name what is in them."""


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imported(path: Path, types: bool = True) -> Iterator[str]:
    """Everything a file imports, wherever in it, by its full name; without `types` not what only a
    type checker reads.
    """
    nodes = list(ast.walk(parsed(path)))
    unread = {
        inner
        for node in nodes
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in nodes if types else [node for node in nodes if node not in unread]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room(name: str) -> str | None:
    """The room of a module of ours; None for the foundation and for other packages."""
    parts = name.split(".")
    return parts[1] if parts[0] == "attnlab" and len(parts) > 1 and parts[1] in ROOMS else None


@pytest.mark.quick
def test_dependencies_point_one_way() -> None:
    wrong = []
    for path in modules():
        here = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for name in imported(path, types=False):
            there = room(name)
            allowed = (
                there is None
                or there == here
                or there in ALLOWED.get(here, set())
                or (here, there) in EXCEPTIONS
            )
            if not allowed:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert wrong == []
    assert (
        set(ROOMS)
        == {folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").is_file()}
        == set(ALLOWED)
    )


def test_the_rooms_of_experiments_have_one_way_in() -> None:
    """Whoever is not in one of them imports from its `__init__.py`, and each knows only those
    before it.
    """
    rooms = ("define", "plan", "run", "report")
    wrong = []
    for path in [
        *modules(),
        *sorted((ROOT / "benchmarks").glob("*.py")),
        *sorted((ROOT / "experiments").glob("*.py")),
    ]:
        parts = path.relative_to(ROOT).parts
        here = parts[2] if parts[:2] == ("attnlab", "experiments") and len(parts) > 3 else None
        nodes = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.ImportFrom)]
        for below in (str(node.module).removeprefix("attnlab.experiments.") for node in nodes):
            there, _, deeper = below.partition(".")
            # a door of its own, for the simulation of its methods
            if deeper.startswith(("statistics", "effects")) and path.parent.name == "benchmarks":
                continue
            if (
                there in rooms
                and there != here
                and (deeper or (here is not None and rooms.index(there) > rooms.index(here)))
            ):
                wrong.append(f"{path.relative_to(ROOT)} imports {below}")
    assert wrong == []


def test_no_room_is_in_a_circle() -> None:
    """`ALLOWED` itself points one way: every room comes after what it may import."""
    for number, name in enumerate(ROOMS[:-1]):
        assert ALLOWED[name] <= set(ROOMS[:number])


def test_no_tensorflow_and_no_torch() -> None:
    """tensorflow_datasets is another package; only its reader is used, and preparing data is a
    program of its own.
    """
    for path in modules():
        for name in imported(path):
            assert name.split(".")[0] not in ("tensorflow", "torch", "torchvision"), (path, name)


@pytest.mark.parametrize("folder", ["attnlab", "configs", "tests", "benchmarks"])
def test_no_room_for_odds_and_ends(folder: str) -> None:
    names = {path.stem for path in (ROOT / folder).rglob("*") if "__pycache__" not in path.parts}
    assert not names & {"utils", "util", "common", "helpers", "helper", "misc"}


HEAVY = ["jax", "flax", "optax", "numpy", "scipy", "tensorflow", "matplotlib", "orbax"]
HEAVY += ["optuna", "submitit"]


@pytest.mark.quick
def test_light_modules_do_not_load_jax() -> None:
    """The command line answers at once: config, commands and progress import neither jax nor numpy;
    records need no numpy either.
    """
    of_all = ["jax", "flax", "numpy", "ml_collections"]
    cases = [(LIGHT, HEAVY), (("attnlab.records.stream",), ["jax", "numpy"])]
    for names, banned in [*cases, (("attnlab",), of_all)]:
        imports = f"import sys, {', '.join(names)}; dir(attnlab)"
        code = f"{imports}; print({{*{banned}}} & {{*sys.modules}})"
        assert alone(code, cwd=ROOT) == "set()\n"


@pytest.mark.parametrize("command", ["sweep", "report"])
def test_help_of_sweeps_loads_nothing_heavy(command: str) -> None:
    """What a command imports when its flags are added counts too."""
    code = f"""
import contextlib, sys
from attnlab.commands import main
with contextlib.suppress(SystemExit):
    main([{command!r}, "--help"])
print({{*{HEAVY}}} & {{*sys.modules}})
"""
    assert alone(code, cwd=ROOT).endswith("\nset()\n")


def test_importing_everything_starts_no_backend_and_no_heavy_package() -> None:
    """Training loads orbax, matplotlib, sacrebleu and data sets only when it comes to them."""
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in modules()
    ]
    code = f"""
import sys, importlib
for name in {names}: importlib.import_module(name)
from jax._src import xla_bridge
print([name for name in ("orbax", "matplotlib", "sacrebleu", "tensorflow_datasets", "tensorflow", "tensorboardX") if name in sys.modules])
print(xla_bridge._backends)
"""
    assert alone(code, cwd=ROOT) == "[]\n{}\n"


def test_multihead_loads_the_parts_that_it_has_and_no_others() -> None:
    """24 modules of ours beside those of configs; any other part is imported when it is named."""
    code = """
import sys, attnlab.attention.mechanisms.multihead
print(sum(name.startswith("attnlab") and name.split(".")[1:2] != ["config"] for name in sys.modules))
"""
    assert int(alone(code, cwd=ROOT)) <= 24


@pytest.mark.quick
def test_every_registered_name_is_tested() -> None:
    """Mechanisms have an oracle and a case, systems an oracle; every other name, and theirs,
    stands, quoted, in the tests of its room.
    """
    from tests.attention.cases import SETTINGS
    from tests.attention.oracles import ORACLES as of_mechanisms
    from tests.systems.oracles import ORACLES as of_systems

    assert set(MECHANISMS.names()) == set(of_mechanisms) == set(SETTINGS)
    assert set(SYSTEMS.names()) == set(of_systems)
    for folder, tables in TABLES.items():
        text = "".join(path.read_text() for path in (ROOT / "tests" / folder).rglob("*.py"))
        missing = [
            name
            for table in tables
            for name in table.names()
            if f'"{name}"' not in text and table.resolve(name).__name__ not in text
        ]
        assert missing == [], f"no test in tests/{folder} names {missing}"


def test_every_table_leads_somewhere() -> None:
    for table in (MECHANISMS, *itertools.chain(*TABLES.values())):
        for name in table.names():
            assert callable(table.resolve(name)), f"{table.kind} {name}"
            assert (table.resolve(name).__doc__ or "").strip(), f"{table.kind} {name}"


MIXERS = "passing decaying delta_rule ttt longformer reformer rwkv7 mlstm"
"""Mixers that attention/test_mixer.py and mixers/test_whole.py or test_stateful.py test."""


def test_tests_mirror_the_source() -> None:
    """tests/<room>/test_<file>.py for every file, but for these, whose tests are of another
    shape.
    """
    elsewhere = {
        "attention/mechanisms",  # the conformance suite
        # contract tests over each of these tables, beside the tests of families
        *("attention/scores", "attention/alignments", "attention/positions"),
        "attention/visibility",  # one suite over all rules
        "attention/kernels",  # one suite, all kernels against plain: test_kernels*.py
        "attention/features/maps.py",  # test_features.py
        "attention/needs.py",  # test_protocol.py
        *("layers/lstm.py", "layers/readers.py"),  # test_recurrent.py
        *("layers/history.py", "layers/feedforward.py"),  # test_convolution.py; test_block.py
        "layers/gates",  # one suite over all gates, test_gates.py
        "layers/backbones",  # test_backbones.py, and with a read-out tests/systems/test_systems.py
        "layers/recurrence",  # one suite over all forms, test_forms.py
        "systems",  # checks over all systems
        "weights",  # one suite over the models of others: test_parity.py, test_folder.py, test_configs.py
        "config",  # test_resolve.py tests checks and tree too
        # classes of settings: tests/config/test_schema.py
        *("data/settings.py", "training/settings.py", "tasks/schemas.py"),
        *("gathering.py", "decoding/rows.py"),  # of a mesh: training/test_mesh.py
        *(f"mixers/{name}.py" for name in MIXERS.split()),
        # with other commands on the folder of a sweep: test_sweep_folders.py
        *(f"commands/{name}.py" for name in ("compare", "export", "report", "status", "stop")),
        *("analysis/passes.py", "api/maps.py"),  # test_ablation.py, test_trained.py
        "records/own_files.py",  # with what is kept of them: test_provenance.py
        # test_train.py (two), test_diff.py, test_sweep.py, tests/api/test_training.py
        *("commands/continue_run.py", "commands/dry_run.py", "commands/verify.py"),
        *("commands/sweep_flags.py", "commands/session.py"),
    }
    missing = []
    for path in modules():
        relative = path.relative_to(PACKAGE)
        if path.name in ("__init__.py", "__main__.py") or any(
            str(relative).startswith(one) for one in elsewhere
        ):
            continue
        if not (ROOT / "tests" / relative.parent / f"test_{path.name}").is_file():
            missing.append(str(relative))
    assert missing == []


def test_the_names_of_the_package_are_there_when_asked_for() -> None:
    assert {"UserError", "load", "mechanism", "Run"} <= set(attnlab.__all__) <= set(dir(attnlab))
    assert all(getattr(attnlab, name) is not None for name in attnlab.__all__)
    with pytest.raises(AttributeError, match="module 'attnlab' has no attribute 'lod'"):
        attnlab.lod  # noqa: B018


def test_the_files_around_the_package_say_what_is_so() -> None:
    """The workflow runs `.ci/run` on the oldest Python that is promised and a newer one, and
    `.ci/full` every night; hooks call tools of the dev extra; one version.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    pythons = workflow["jobs"]["run"]["strategy"]["matrix"]["python"]
    assert f">={pythons[0]}" == project["requires-python"] and "3.13" in pythons
    for job in ("run", "full"):
        steps = workflow["jobs"][job]["steps"]
        assert [step["run"] for step in steps if "run" in step] == [f".ci/{job}"]
        assert (ROOT / ".ci" / job).stat().st_mode & 0o100

    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    hooks = {hook["entry"]: hook for hook in local["hooks"]}
    assert local["repo"] == "local" and {hook["language"] for hook in hooks.values()} == {"system"}
    assert {entry.split()[0] for entry in hooks} == {"ruff", "mypy", "python"}
    expected = ["python -m pytest -n 2 -q -m quick"]
    assert [entry for entry, hook in hooks.items() if hook.get("stages") == ["manual"]] == expected

    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(cited)
    assert cited["license"] == project["license"]
    changes = re.findall(r"^## \[(.*)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert cited["version"] == attnlab.__version__
    assert changes[:2] == ["Unreleased", attnlab.__version__]


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "docs/README.md", "docs/rooms.md"]
)
def test_what_a_page_points_to_is_there(page: str) -> None:
    text = (ROOT / page).read_text()
    named = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    named += re.findall(r"`((?:attnlab|tests|docs|experiments|benchmarks|configs)/[\w/.]*)`", text)
    folders = (ROOT, (ROOT / page).parent)
    assert named and [one for one in named if not any((f / one).exists() for f in folders)] == []
