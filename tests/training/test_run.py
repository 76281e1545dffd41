"""A run reads and writes no more than it needs before the first step, and a resumed one is told what
has changed.
"""

import io
import os
import pwd
from pathlib import Path
from typing import Any

import jax
import pytest

from attnlab import config as configs
from attnlab.progress import Progress
from attnlab.records.manifest import Manifest
from attnlab.tasks import TASKS
from attnlab.training.run import Run, start_jax
from tests.commands.tiny import on_files
from tests.refusals import check_refused


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The settings of a tiny RNNsearch on parallel files in `data`, without a test split."""
    return [
        *on_files(tmp_path / "data", str(tmp_path / "data"), train=64, valid=8),
        "parallel.devices=1",
    ]


def config(files: list[str], *overrides: str) -> Any:
    """That of the RNNsearch."""
    return configs.load("configs/translation.py:rnnsearch", [*files, *overrides])


def prepared(parts: Any, workdir: Path) -> Run:
    splits = ("train", "valid")
    return Run.prepare(TASKS.resolve(parts.task), parts, workdir, splits, Manifest.read(workdir))


def progress(out: io.StringIO | None = None) -> Progress:
    return Progress(12, every=100, stream=out or io.StringIO())


def test_where_programs_are_kept_and_that_they_are_not_without_a_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {}
    monkeypatch.setattr(jax.config, "update", settings.__setitem__)
    start_jax()
    assert settings["jax_compilation_cache_dir"] == f"{os.environ['ATTNLAB_CACHE']}/jax"
    for cache in (str(tmp_path), ""):  # another one is named already; none is wanted
        settings.clear()
        monkeypatch.setenv("ATTNLAB_CACHE", cache)
        start_jax()
        assert "jax_compilation_cache_dir" not in settings
    settings.clear()
    monkeypatch.delenv("ATTNLAB_CACHE")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", lambda number: {}[number])
    start_jax()
    assert settings.keys() <= {"jax_default_matmul_precision"}
    monkeypatch.setenv("ATTNLAB_CACHE", "~/cache")
    check_refused("~/cache: there is no home folder here", start_jax)


@pytest.mark.quick
def test_only_the_splits_asked_for_are_opened_and_nothing_is_written(
    files: list[str], tmp_path: Path
) -> None:
    """There is no test split in the folder; preparing leaves no trace, describing leaves vocabulary
    and manifest.
    """
    workdir = tmp_path / "run"
    run, other = (prepared(config(files), workdir) for _ in range(2))
    assert set(run.task.data.rows) == {"train", "valid"} and not workdir.exists()
    workdir.mkdir()
    run.describe(progress())
    check_refused(
        "another process, or an earlier loop, has trained .* meanwhile", other.describe, progress()
    )
    manifest = Manifest.read(workdir)
    assert set(manifest.data) == {"train", "valid"}
    assert (workdir / "vocabulary").is_dir()
    words = "holds another config: training.steps: saved 12, wanted 13"
    check_refused(words, prepared, config(files, "training.steps=13"), workdir)


def test_products_are_computed_in_the_precision_of_the_config(
    files: list[str], tmp_path: Path
) -> None:
    run = prepared(config(files, "training.precision=tensorfloat32"), tmp_path / "run")
    arguments = run.updates.state_like(run.task), run.batches(0)
    text = jax.jit(run.updates.step(run.task)).lower(*arguments).as_text()
    assert "precision = [HIGH, HIGH]" in text and "DEFAULT" not in text
    prepared(config(files), tmp_path / "other")
    text = jax.jit(run.task.sums).lower(arguments[0].params, arguments[1]).as_text()
    assert "precision = [HIGHEST, HIGHEST]" in text and "DEFAULT" not in text


def test_a_resumed_run_is_told_what_has_changed_and_refused_other_data(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workdir = tmp_path / "run"
    workdir.mkdir()
    prepared(config(files), workdir).describe(progress())
    manifest = Manifest.read(workdir)
    manifest.packages["jax"] = "0.0.1"
    monkeypatch.setenv("NPROC", "7")  # what XLA asks for the number of its threads
    for recorded in (manifest.devices["cores"], None):
        if recorded is None:  # as in older runs
            del manifest.devices["cores"]
        manifest.write(workdir)
        out = io.StringIO()
        prepared(config(files), workdir).describe(progress(out))
        assert 'note: not what this run began with: packages.jax: saved "0.0.1"' in out.getvalue()
        told = f"began with: devices.cores: saved {recorded}, wanted 7" in out.getvalue()
        assert told == ("cores" in out.getvalue()) == (recorded is not None)
    valid = tmp_path / "data" / "valid.de"
    valid.write_text(valid.read_text().replace("3", "drei"))
    words = r"the data of workdir .* has changed since it began \(split valid\)"
    check_refused(words, prepared(config(files), workdir).describe, progress())


def test_a_lost_vocabulary_is_not_replaced_by_another(files: list[str], tmp_path: Path) -> None:
    """That the same one is learned again: tests/test_bad_input.py."""
    workdir = tmp_path / "run"
    workdir.mkdir()
    prepared(config(files), workdir).describe(progress())
    (copy,) = (workdir / "vocabulary").iterdir()
    manifest = Manifest.read(workdir)
    assert {*manifest.vocabulary} == {copy.name}
    manifest.vocabulary[copy.name] = "0" * 64  # as if another version of the library had learned it
    manifest.write(workdir)
    copy.unlink()
    words = "has lost its vocabulary, and the data gives another one now"
    check_refused(words, prepared(config(files), workdir).describe, progress())
    assert not copy.exists()
