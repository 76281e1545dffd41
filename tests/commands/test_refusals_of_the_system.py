"""Files that cannot be read or written, by the command: one line with the file and the reason, and
nothing is called damaged.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.commands.tiny import called
from tests.experiments import synthetic


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of files that may not be read. Tests may run as root, whom no mode keeps out."""
    names: set[str] = set()
    read = Path.read_bytes

    def refused(path: Path) -> bytes:
        if path.name in names:
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refused)
    return names


@pytest.mark.parametrize(
    "name",
    [
        "plan.json",
        "choice.json",
        "events.jsonl",
        "manifest.json",
        "metrics.jsonl",
        "timing.jsonl",
        "results.json",
    ],
)
def test_records_of_a_sweep_that_may_not_be_read(
    name: str, unreadable: set[str], tmp_path: Path
) -> None:
    sweep = synthetic.sweep(tmp_path / "sweep", {"additive": (0.9,), "location": (0.7,)})
    unreadable.add(name)
    ended = called(["report", str(sweep)])
    assert ended.code == 2, ended
    assert ended.err.count("\n") == 1, ended
    assert "ermission denied" in ended.err, ended
    assert name in ended.err, ended
    assert "damaged" not in ended.err and not (sweep / "report.md").exists()


@pytest.mark.parametrize("command", ["train", "evaluate", "verify"])
def test_a_run_that_may_not_be_read(command: str, unreadable: set[str], tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    unreadable.add("manifest.json")
    flags = {
        "train": ["--config=configs/translation.py:rnnsearch", f"--workdir={tmp_path}"],
        "verify": [str(tmp_path)],
    }
    ended = called([command, *flags.get(command, [f"--workdir={tmp_path}"])])
    assert (ended.code, ended.out) == (2, ""), ended
    assert ended.err.endswith(f"error: Permission denied: {tmp_path}/manifest.json\n"), ended


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
    ended = called([command, *(flag.format(name=tmp_path / name) for flag in FLAGS[command])])
    assert (ended.code, ended.out) == (2, ""), ended
    assert ended.err.count("\n") == 1, ended
    assert "damaged" not in ended.err, ended
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "loop"]


@pytest.mark.parametrize("flags", [["--input={name}"], ["--output={name}"]])
@pytest.mark.parametrize("name", ["x" * 300, "file/a", "loop"], ids=["long", "file", "loop"])
def test_files_of_generate_that_cannot_be(
    flags: list[str], name: str, searched: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    ended = called(
        [
            "generate",
            f"--workdir={searched}",
            *(flag.format(name=tmp_path / name) for flag in flags),
        ],
        "3 of may 1967\n",
    )
    assert (ended.code, ended.out) == (2, "") and ended.err.count("\n") == 1, ended
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "loop"]
    assert (tmp_path / "loop").is_symlink()
