"""What is built from this tree works without it: a source distribution that builds and tests itself,
and a wheel that needs no clone beside it.
"""

import os
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.commands.tiny import SMALL, alone, train, under

setuptools = pytest.importorskip(
    "setuptools", "77", reason="the extra 'test' brings the setuptools that builds this project"
)

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ("configs", "experiments")
TINY = [
    *under("data", examples=64, valid=4, test=2),
    *under("training", steps=2, evaluate_every=2),
    *SMALL["rnnsearch"],
    *under("decoding", method="greedy", max_extra=0, max_ratio=0.2),
    *("batch.size=16", "schedule.warmup=1"),
]


def built(kind: str, source: Path, into: Path) -> Path:
    """The sdist or wheel of a source tree, as pip has it built."""
    code = (
        "import sys; from setuptools import build_meta;"
        f" print(build_meta.build_{kind}(sys.argv[1]))"
    )
    return into / alone(code, str(into), cwd=source).splitlines()[-1]


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The unpacked sdist of a copy of this tree, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("built")
    skipped = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "runs")
    sdist = built("sdist", shutil.copytree(ROOT, folder / "clone", ignore=skipped), folder)
    with tarfile.open(sdist) as archive:
        # Python has the filter since 3.11.4, and asks for it since 3.12
        archive.extractall(folder, **{"filter": "data"} if hasattr(tarfile, "data_filter") else {})
    source = folder / sdist.name.removesuffix(".tar.gz")
    return source, built("wheel", source, folder)


def files(root: Path, *folders: str) -> set[str]:
    """All files of these folders but what Python leaves there."""
    found = (
        path.relative_to(root).as_posix()
        for folder in folders
        for path in (root / folder).rglob("*")
        if path.is_file()
    )
    return {name for name in found if "__pycache__" not in name}


@pytest.mark.full
def test_an_sdist_has_all_that_building_and_testing_need(distributions: tuple[Path, Path]) -> None:
    source, _ = distributions
    beside = {"pyproject.toml", "README.md", "LICENSE", "launch.py"}
    wanted = files(ROOT, "attnlab", *SHIPPED, "tests", "docs", "benchmarks")
    assert sorted((wanted | beside) - files(source, ".")) == []


@pytest.mark.full
def test_a_wheel_has_all_that_it_is_used_with(distributions: tuple[Path, Path]) -> None:
    """Every module, the mark of types, configs and experiments inside the package, and nothing else
    beside it.
    """
    _, wheel = distributions
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (file,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(file).decode()
    shipped = {f"attnlab/_shipped/{name}" for name in files(ROOT, *SHIPPED)}
    assert names == files(ROOT, "attnlab") | shipped
    assert "attnlab/py.typed" in names
    assert "License-Expression: Apache-2.0" in metadata
    assert "Classifier: Typing :: Typed" in metadata


@pytest.mark.full
def test_it_trains_from_an_empty_folder(distributions: tuple[Path, Path], tmp_path: Path) -> None:
    """Configs and experiments are listed by the names that commands take, and found by them."""
    with zipfile.ZipFile(distributions[1]) as archive:
        archive.extractall(tmp_path / "site")
    empty = tmp_path / "empty"
    empty.mkdir()
    command = train("translation.py:rnnsearch", "run", *TINY)
    code = f"""
import attnlab
from attnlab.commands import main
from attnlab.experiments.define.loading import load_experiment
print(attnlab.__file__)
assert load_experiment("experiments/quickstart.py").baseline == "none"
assert main(["list", "configs"]) == main(["list", "experiments"]) == main({command}) == 0
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    lines = alone(code, cwd=empty, env=environment).splitlines()
    assert lines[0] == str(tmp_path / "site" / "attnlab" / "__init__.py")
    listed = {line.split()[0] for line in lines if line.strip()}
    assert {"configs/translation.py", "configs/g2p.py", "experiments/quickstart.py"} <= listed
    assert (empty / "run" / "results.json").is_file()
    assert [path.name for path in empty.iterdir()] == ["run"]
