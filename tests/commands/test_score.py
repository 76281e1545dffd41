"""`score` prints and writes what `run.score` gives, goes on after a stop, and refuses in a line."""

import csv
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

import attnlab
from attnlab.commands import score
from tests.commands.tiny import refused, run_command
from tests.test_doc_pages import gpt2

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
    two = run_command(["score", "gpt2", "--text=A dog, a cat", "--text=two dogs"])
    assert two.out.startswith(text.out) and two.out.endswith("\ttwo dogs\n")
    assert re.search(r"text [12] is the likeliest, by \d", two.err) and "/2" not in two.err
    assert "2 texts, " in two.err and "2 texts, " in questions.out
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
        (["--text=a"], "", "no --workdir given; name the folder"),
        (["gpt2", "--file=x.txt"], "a\n\n", "x.txt, line 2: no tokens to score; expected text"),
        (["gpt2", "--file=x.txt"], "", "x.txt holds no texts"),
        (["gpt2", "--file=x.jsonl"], '{"source": "a"}', "line 1: no tokens to score; expected te"),
        (["gpt2", "--file=x.jsonl"], '{"choices": 3}', "line 1: no tokens to score; expected te"),
        (["gpt2", "--text=a", "--out=x.tsv"], "", "--out=x.tsv cannot be written: end it with"),
        (["gpt2", "--text=a", "--out=no/x.csv"], "", "--out=no/x.csv: there is no folder"),
        (["gpt2", "--text=\udcff"], "", "text 1 is not UTF-8"),
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


@pytest.mark.parametrize("given", ["--tasks=x", "--text=a"])
@pytest.mark.parametrize(
    ("flag", "of_texts"),
    [
        *((name, True) for name in ("--window=9", "--stride=9", "--no-end")),
        *((name, False) for name in ("--include=x", "--shots=0", "--limit=9")),
        *((name, None) for name in ("--ensemble=x", "--config=x", "--accept-changed-code")),
    ],
)
def test_flags_that_would_do_nothing(
    folder: Path, given: str, flag: str, of_texts: bool | None
) -> None:
    """Those of texts with tasks and the other way round, and those of runs with a folder."""
    if of_texts == (given == "--text=a"):
        return
    line = refused("score", "gpt2", given, flag)
    assert f"score: {flag.partition('=')[0]} is " in line and "leave it out" in line


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"review": "a"}, "unknown key 'review'; choose from"),
        ({"context": "a", "target": "b"}, "unknown key 'context'"),
        ({"choices": ["a", "b"], "anwser": 0}, "unknown key 'anwser'; did you mean 'answer'?"),
        ({"text": "a", "target": "b"}, "'target' does not go with 'text'"),
        ({"text": "a", "choices": ["a", "b"]}, "'choices' does not go with 'text'"),
        ({"target": "a", "choices": ["a", "b"]}, "'choices' does not go with 'target'"),
        ({"text": "a", "answer": 0}, "'answer' does not go with 'text'"),
        ({"target": "a", "answer": 0}, "'answer' does not go with 'target'"),
        *(
            ({"choices": ["a", "b"], "answer": answer}, "expected 0 to 1")
            for answer in (True, 1.0, "1", -1, 2, [0])
        ),
    ],
)
def test_objects_that_are_no_question(folder: Path, line: dict[str, Any], words: str) -> None:
    Path("x.jsonl").write_text('{"text": "a"}\n' + json.dumps(line) + "\n")
    message = refused("score", "gpt2", "--file=x.jsonl")
    assert "x.jsonl, line 2: " in message and words in message


HEADER = 14 + 64 + 1  # bytes


def stopped(words: list[str]) -> bytes:
    """What a command leaves that is stopped when all is scored, before its file is written."""
    with pytest.MonkeyPatch.context() as patched, pytest.raises(ZeroDivisionError):
        patched.setattr(score, "_as_file", lambda *_: 1 / 0)
        run_command(words)
    return Path("x.csv.part").read_bytes()


@pytest.mark.parametrize("size", [0, 5, 40, HEADER - 1, HEADER, HEADER + 9, -3])
def test_a_torn_record_is_written_again(folder: Path, size: int) -> None:
    """Wherever it is torn, and the header stands there only at the beginning."""
    words = ["score", "gpt2", "--config.decoding.batch=2", "--file=questions.jsonl", "--out=x.csv"]
    journal, whole = Path("x.csv.part"), stopped(words)
    assert whole.count(b"attnlab score ") == 1 and whole.count(b"\n") == 7
    for torn in (whole[:size], whole[:HEADER] + b"\xff\n"):
        journal.write_bytes(torn)
        assert stopped(words) == whole
    assert run_command(words).code == 0 and not journal.exists()


@pytest.mark.parametrize("content", [b"notes of mine\n", b"\xff\xfe", b'"a"', b"attnlab sCore 1\n"])
def test_a_file_of_another_stays(folder: Path, content: bytes) -> None:
    journal = folder / "x.csv.part"
    journal.write_bytes(content)
    line = refused("score", "gpt2", "--text=a", "--out=x.csv")
    assert "x.csv.part is there, and not what a stopped 'score' leaves; move it away" in line
    assert journal.read_bytes() == content


def test_other_weights_or_another_tokenizer_begin_anew(folder: Path) -> None:
    """In the same folder, with the same config."""
    headers = []
    for scale in (1, 1, 2, 1):
        file = folder / "gpt2" / "model.safetensors"
        if len(headers) == 3:
            tokenizer = folder / "gpt2" / "tokenizer.json"
            tokenizer.write_text(tokenizer.read_text() + "\n")
        tensors = {name: scale * array for name, array in load_file(file).items()}
        save_file(tensors, file, metadata={"format": "pt"})
        header, _ = stopped(["score", "gpt2", "--text=A dog", "--out=x.csv"]).splitlines()
        headers.append(header)
    assert headers[0] == headers[1] and len(set(headers)) == 3


def test_another_ensemble_begins_anew(folder: Path, searched: Path) -> None:
    shutil.copytree(searched, folder / "run")
    shutil.copytree(searched, folder / "member")
    words = ["score", "run", "--text=3 of march 1967", "--target=1967-03-03", "--out=x.csv"]
    members: list[list[str]] = [[], [], ["--ensemble=member"]]
    headers = [stopped([*words, *more]).splitlines()[0] for more in members]
    assert headers[0] == headers[1] != headers[2]
