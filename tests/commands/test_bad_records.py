"""Records that somebody has edited by hand are answered with a result or with one line by every
command, never with a traceback. Files that cannot be read or written are told in one line with the
file and the reason, and nothing is called damaged; so are mistakes with the folders and flags of
sweeps.
"""

import contextlib
import itertools
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attnlab.commands import session
from tests.commands.tiny import CommandResult, arguments, refused, run_command
from tests.experiments import synthetic
from tests.sampling import rounds, seed

GONE = object()
NASTY = (
    *(None, True, 0, -1, 1.5, math.inf, math.nan, 10**30),
    *("x", "../../x", "", "\ud800", [], [1], {}, {"x": None}, GONE),
)
WHOLE = (
    *(b"", b"null\n", b"[]\n", b"{}\n", b"1\n", b"\xff\n", b'{"step": Infinity}\n'),
    *(b"[" * 100_000 + b"\n", b'{"step": ' * 9999 + b"\n"),
)
VARIANTS = {"additive": (0.9, 0.8), "location": (0.7, 0.6)}
SHARED = ("plan.json", "choice.json", "looks.jsonl")
FILES = (
    *("events.jsonl", "manifest.json", "metrics.jsonl", "timing.jsonl"),
    *("valid.json", "results.json", "look.json"),
)


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value; of a list its first two."""
    if path:
        yield path
    inner = node.items() if isinstance(node, dict) else ()
    for key, one in enumerate(node[:2]) if isinstance(node, list) else inner:
        yield from places(one, (*path, key))


def harmed(content: bytes, each: int) -> Iterator[bytes]:
    """The content with one value replaced, `each` times at every place, by values that take turns;
    and what replaces all of it.
    """
    turns = itertools.cycle(NASTY)
    lines = content.decode().splitlines() if b"\n{" in content else [content.decode()]
    for number in {0, len(lines) - 1}:
        for path in places(json.loads(lines[number])):
            for value in itertools.islice(turns, each):
                node = json.loads(lines[number])
                at = node
                for key in path[:-1]:
                    at = at[key]
                if value is GONE:
                    del at[path[-1]]
                else:
                    at[path[-1]] = value
                yield "\n".join(
                    [*lines[:number], json.dumps(node), *lines[number + 1 :], ""]
                ).encode()
    yield from WHOLE


def answered(ended: CommandResult, harm: bytes) -> None:
    """It has come to its end, or been refused in one line."""
    lines = [line for line in ended.err.splitlines() if "error: " in line]
    assert ended.code in (0, 1) or (
        ended.code == 2 and len(lines) == 1 and ended.err.endswith(f"{lines[0]}\n")
    ), (ended, harm[:2000])


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished sweep with a budget, whose report draws nothing."""
    budget = {"match": "parameters", "within": 0.01, "knob": "x", "to": "additive", "knobs": {}}
    tune = [{"name": "a", "overrides": {"x.y": 1}}]
    data = dict.fromkeys(VARIANTS, "1" * 64)
    folder = synthetic.sweep(tmp_path / "sweep", VARIANTS, budget=budget, tune=tune, test_data=data)
    plan, choice = (
        json.loads((folder / name).read_bytes()) for name in ("plan.json", "choice.json")
    )
    solved = {"wanted": 1.0, "reached": 1.0, "knob": "x", "value": 3, "matched": True, "note": ""}
    counted = {"transcendentals": 1.0, "loops": 1, "idle": ["w"], "examples": 2.0}
    plan["candidates"][0] |= {"budget": solved, "counted": counted}
    code = {"revision": "1", "dirty": False}
    look = {"time": "2026-01-01T00:00:00+00:00", "plan": "p", "seeds": [0], "code": code}
    frozen = {"event": "choice", "chosen": {"additive": "a"}}
    tested = {"event": "test", "candidate": "a", "scored": [0]}
    synthetic.lines(folder / "looks.jsonl", [{**frozen, **look}, {**tested, **look}])
    one = choice["chosen"]["additive"]
    one["scores"] = {one["candidate"]: {"mean": 0.1, "seeds": {"0": 0.1}}}
    synthetic.write(folder / "plan.json", plan)
    synthetic.write(folder / "choice.json", choice)
    return folder


@pytest.mark.parametrize("name", [*SHARED, *FILES])
def test_of_a_sweep(name: str, sweep: Path) -> None:
    path = sweep / name if name in SHARED else synthetic.workdir(sweep, "additive", 0) / name
    content, outside = path.read_bytes(), set(sweep.parent.iterdir())
    assert [run_command([command, str(sweep)]).code for command in ("status", "report")] == [0, 0]
    every = rounds(12, 1)  # of the harms
    harms = harmed(content, 1 if name == "plan.json" else 2)
    for harm in itertools.islice(harms, seed() % every, None, every):
        path.write_bytes(harm)
        for command in ("status", "report"):
            answered(run_command([command, str(sweep)]), harm)
    assert set(sweep.parent.iterdir()) == outside


class Reached(Exception):
    """All records have been read."""


@pytest.mark.parametrize("name", ["manifest.json", "metrics.jsonl", "vocabulary/shared.json"])
def test_of_run(name: str, searched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes after reading is left out, apart from the vocabulary, which is read with the
    data.
    """
    run = Path(shutil.copytree(searched, tmp_path / "run"))
    content = (run / name).read_bytes()
    commands = [["evaluate", f"--workdir={run}", "--split=valid"]]
    if name != "vocabulary/shared.json":
        commands += [["verify", str(run)], arguments("rnnsearch", run)]

        def reached(*given: Any) -> None:
            raise Reached

        monkeypatch.setattr(session, "start_jax", reached)
    every = rounds(6, 1) * (40 if name == "vocabulary/shared.json" else 3)
    for harm in itertools.islice(harmed(content, 1), seed() % every, None, every):
        (run / name).write_bytes(harm)
        for command in commands:
            with contextlib.suppress(Reached):
                answered(run_command(command), harm)


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
