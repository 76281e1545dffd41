"""Files that cannot be read or written are told in one line with the file and the reason, and nothing
is called damaged; so are mistakes with the folders and flags of sweeps.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.commands.tiny import refused
from tests.experiments import synthetic


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of files that may not be read. Tests may run as root, whom no mode keeps out."""
    names: set[str] = set()
    read = Path.read_bytes

    def guarded(path: Path) -> bytes:
        if path.name in names:
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", guarded)
    return names


@pytest.mark.parametrize(
    "name",
    [
        *("plan.json", "choice.json", "events.jsonl", "manifest.json"),
        *("metrics.jsonl", "timing.jsonl", "results.json"),
    ],
)
def test_records_that_may_not_be_read(name: str, unreadable: set[str], tmp_path: Path) -> None:
    sweep = synthetic.sweep(tmp_path / "sweep", {"additive": (0.9,), "location": (0.7,)})
    unreadable.add(name)
    line = refused("report", str(sweep))
    assert "ermission denied" in line and name in line and "damaged" not in line, line
    assert not (sweep / "report.md").exists()


@pytest.mark.parametrize("command", ["train", "evaluate", "verify"])
def test_a_run_that_may_not_be_read(command: str, unreadable: set[str], tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    unreadable.add("manifest.json")
    line = refused(command, *(flag.format(name=tmp_path) for flag in FLAGS[command]))
    assert line.endswith(f"error: Permission denied: {tmp_path}/manifest.json\n"), line


FLAGS: dict[str, Any] = {
    "train": ["--config=configs/translation.py:rnnsearch", "--workdir={name}"],
    "evaluate": ["--workdir={name}"],
    "generate": ["--workdir={name}"],
    "inspect": ["--workdir={name}", "--source=a"],
    "verify": ["{name}"],
    "status": ["{name}"],
    "report": ["{name}"],
    "sweep": ["experiments/quickstart.py", "--dir={name}"],
}


@pytest.mark.parametrize("command", FLAGS)
@pytest.mark.parametrize("name", ["x" * 300, "file/run", "loop/run"], ids=["long", "file", "loop"])
def test_names_that_cannot_be(command: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    line = refused(command, *(flag.format(name=tmp_path / name) for flag in FLAGS[command]))
    assert "damaged" not in line, line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "loop"]


@pytest.mark.parametrize("flags", [["--input={name}"], ["--output={name}"]])
@pytest.mark.parametrize("name", ["x" * 300, "file/a", "loop"], ids=["long", "file", "loop"])
def test_files_of_generate(flags: list[str], name: str, searched: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    given = [flag.format(name=tmp_path / name) for flag in flags]
    refused("generate", f"--workdir={searched}", *given, stdin="3 of may 1967\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "loop"]
    assert (tmp_path / "loop").is_symlink()


NO_SWEEP = "holds no sweep (no plan.json in it)"
MISTAKES = [
    *(
        ("report {empty}", NO_SWEEP),
        ("report {empty}/absent", NO_SWEEP),
        ("status {empty}", NO_SWEEP),
    ),
    *(("stop {empty} a-1/seed0", NO_SWEEP), ("export {empty} --to=tensorboard", NO_SWEEP)),
    ("compare {one} {empty}/absent", NO_SWEEP),
    ("report", "the following arguments are required: DIR"),
    ("report {empty} --interval=z", "invalid choice: 'z'"),
    ("report {empty} --latx", "did you mean '--latex'?"),
    ("export {empty}", "the following arguments are required: --to"),
    ("export {empty} --to=comet", "invalid choice: 'comet'"),
    ("compare {one}", "the following arguments are required: DIR2"),
    ("compare {one} {one}/", "is named twice; name two sweeps"),
    ("compare {one} {other} --out=both.txt", "--out=both.txt: the name of a file that ends"),
    ("compare {one} {other}", "take two sweeps with the same measure"),
]
"""Commands on sweeps, and what their line says."""


@pytest.mark.parametrize(("line", "words"), MISTAKES)
def test_mistakes_with_sweeps(line: str, words: str, tmp_path: Path) -> None:
    other = {"metric": "loss", "mode": "min"}
    where = {
        "one": synthetic.sweep(tmp_path / "one", {"a": (0.9, 0.8)}),
        "other": synthetic.sweep(tmp_path / "other", {"a": (0.9, 0.8)}, measure=other),
        "empty": tmp_path / "empty",
    }
    where["empty"].mkdir()
    before = sorted(tmp_path.rglob("*"))
    assert words in refused(*line.format(**where).split())
    assert sorted(tmp_path.rglob("*")) == before
