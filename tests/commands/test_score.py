"""`score` prints and writes what `run.score` gives, goes on after a stop, and refuses in a line."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

import attnlab
from attnlab.commands import score
from tests.commands.tiny import refused, run_command
from tests.test_pretrained_page import gpt2

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "scores.md").read_text()
QUESTIONS = re.findall(r"^```json\n(.*?)^```$", PAGE, re.M | re.S)[0]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With what the page names, and where commands run."""
    gpt2(tmp_path / "gpt2")
    (tmp_path / "questions.jsonl").write_text(QUESTIONS)
    (tmp_path / "long.txt").write_text("A dog, a cat; two dogs! " * 9 + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_of_the_page(folder: Path, searched: Path) -> None:
    """Candidates and their answers, tokens with their places, windows, a pair as `generate` has it."""
    shutil.copytree(searched, folder / "runs" / "dates")
    (block,) = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.M | re.S)
    lines = [shlex.split(line)[2:] for line in block.splitlines()]
    text, _, questions, windows, pair = [run_command(line) for line in lines]
    assert {ended.code for ended in (text, questions, windows, pair)} == {0}, text.err
    run = attnlab.load_pretrained("gpt2")
    (whole,) = run.score(["A dog, a cat"])
    assert text.out == f"{whole.log_prob:.6f}\tA dog, a cat\n" and "bits per byte" in text.err
    records = [json.loads(line) for line in (folder / "scores.jsonl").open()]
    assert [record["line"] for record in records] == [1, 2, 3, 3, 4, 4]
    (alone,) = run.score([("A dog,", " a cat")], end=False)
    kept = {"line": 2, "source": "A dog,", "text": " a cat", **alone.record()}
    assert records[1].keys() == kept.keys()
    for name, value in kept.items():
        close = name in ("log_prob", "log_probs", "perplexity", "bits_per_byte")
        assert records[1][name] == (pytest.approx(value, rel=1e-5) if close else value)
    assert len(re.findall(r"candidate is right in \d of 2 questions", questions.out)) == 2
    (row,) = csv.DictReader((folder / "scores.csv").open())
    (long,) = run.score([row["text"]], window=32, stride=8)
    assert float(row["log_prob"]) == pytest.approx(long.log_prob) and json.loads(row["offsets"])
    typed = "3 of march 1967\t1967-03-03\n"
    printed = run_command(["generate", "--workdir=runs/dates", "--score"], typed).out
    assert pair.out.split("\t")[0] == printed.split("\t")[0]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_stopped_command_goes_on(folder: Path, monkeypatch: Any, form: str) -> None:
    """To the same file, without what it has scored already; other texts begin anew."""
    monkeypatch.setattr(score, "_BATCHES", 1)
    words = ["score", "gpt2", "--config.decoding.batch=2", "--file=questions.jsonl"]
    assert run_command([*words, f"--out=whole.{form}"]).code == 0
    scored, real = [], attnlab.Run.score

    def stopping(run: Any, texts: Any, **options: Any) -> Any:
        scored.append(len(texts))
        if len(scored) == 2:
            raise KeyboardInterrupt
        return real(run, texts, **options)

    monkeypatch.setattr(attnlab.Run, "score", stopping)
    assert run_command([*words, f"--out=stopped.{form}"]).code == 130
    assert run_command([*words, f"--out=stopped.{form}"]).code == 0 and scored == [2] * 4
    whole, stopped = (Path(f"{name}.{form}") for name in ("whole", "stopped"))
    assert whole.read_bytes() == stopped.read_bytes() and not list(folder.glob("*.part"))


@pytest.mark.parametrize(
    ("flags", "line", "words"),
    [
        (["gpt2"], "", "score: give --text (and --target), --file or --tasks, one of them"),
        (["--text=a"], "", "score: name one run, as 'score RUN' or by --workdir"),
        (["gpt2", "--file=x.txt"], "a\n\n", "x.txt, line 2: no tokens to score; expected text"),
        (["gpt2", "--file=x.txt"], "", "x.txt holds no texts"),
        (["gpt2", "--file=x.jsonl"], '{"review": "a"}', "line 1: no tokens to score; expected te"),
        (["gpt2", "--file=x.jsonl"], '{"choices": 3}', "line 1: no tokens to score; expected te"),
        (
            ["gpt2", "--file=x.jsonl"],
            '{"choices": ["a", "b"], "answer": 2}',
            "line 1: answer=2; expected 0 to 1",
        ),
        (["gpt2", "--text=a", "--out=x.tsv"], "", "--out=x.tsv cannot be written: end it with"),
        (["gpt2", "--text=a", "--window=2", "--stride=3"], "", "a stride of at most a window"),
        (["gpt2", f"--text={'a ' * 99}", "--window=99"], "", "64"),
    ],
)
def test_mistakes(folder: Path, flags: list[str], line: str, words: str) -> None:
    """One line, and nothing is written."""
    for name in ("x.txt", "x.jsonl"):
        (folder / name).write_text(line)
    before = {path.name for path in folder.iterdir()}
    assert words in refused("score", *flags)
    assert {path.name for path in folder.iterdir()} == before
