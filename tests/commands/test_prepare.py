"""`prepare` on the command line, and the run that reads what it has made."""

import json
from pathlib import Path

import pytest

from tests.commands.tiny import CommandResult, run_command
from tests.data.tiny_corpus import lines


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("\n".join(lines(90)) + "\n")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": x}) + "\n" for x in lines(30)))
    return tmp_path


def prepare(*flags: str) -> CommandResult:
    return run_command(["prepare", "--processes=1", *flags])


@pytest.mark.quick
def test_from_text_to_a_config(here: Path) -> None:
    out = prepare("--to=c/train", "--from=a.txt", "--size=90", "--length=500").out
    assert "90 documents" in out and "uint16" in out
    config = out[out.index("--config.data=shards") :].split()
    assert f"--config.data.directory={here}/c" in config
    assert "it is read as the split 'train', with folders 'valid' and 'test'" in out
    flags = ("--vocabulary=c/train", "--length=500")
    out = prepare("--to=c/valid", "--from=a.jsonl", *flags).out
    assert "30 documents" not in out  # blank ones are left out
    assert "as the split 'valid', with folders 'train' and 'test'" in out
    assert "data.train" not in out
    assert "complete" in prepare("--to=c/valid", "--from=a.jsonl", *flags).err
    shown = run_command(["show", "--config=configs/language_modelling.py:decoder", *config])
    assert shown.code == 0 and "shards" in shown.out


def test_a_tokenizer_from_elsewhere(here: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel({"the": 0, "<e>": 1, "u": 2}, "u"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    model.save("tokenizer.json")
    Path("tokenizer_config.json").write_text('{"eos_token": "<e>"}')
    assert prepare("--to=s", "--from=a.txt", "--tokenizer=tokenizer.json").code == 0
    index = json.loads(Path("s/index.json").read_text())
    assert index["special"] == {"pad": -1, "bos": 1, "eos": 1, "unk": 2}
    assert index["vocabulary"]["settings"]["file"] == "tokenizer.json"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--from=a.txt"], "--to"),
        (["--to=s"], "--from"),
        (["--to=s", "--from=b.txt"], "--from=b.txt: there is no such file"),
        (["--to=a.txt", "--from=a.txt"], "a.txt is not a folder"),
        (["--to=.", "--from=a.txt"], "has other files in it"),
        (["--to=s", "--from=."], "no set of TensorFlow Datasets"),
        (["--to=s", "--from=a.jsonl", "--field=txt"], "no field 'txt'; did you mean 'text'?"),
        (["--to=s", "--from=empty.txt"], "empty.txt is empty"),
        (["--to=s", "--from=a.txt", "--size=3"], "leaves no room beside"),
        (["--to=s", "--from=a.txt", "--reserved=1000000000"], "'1000000000' is no whole number"),
        (["--to=s", "--from=a.txt", "--vocabulary=bpee"], "--vocabulary=bpee is no kind"),
        (["--to=s", "--from=a.txt", "--vocabulary=."], "is a folder without index.json"),
        (["--to=s", "--from=a.txt", "--tokenizer=x", "--size=9"], "--size is for a vocabulary"),
        (["--to=s", "--from=a.txt", "--tokenizer=x"], "there is no tokenizer x"),
        (["--to=s", "--from=a.txt", "--tokenizer=x", "--vocabulary=word"], "not allowed with"),
        (["--to=s", "--from=a.txt", "--documents=word"], "invalid choice"),
    ],
)
def test_one_line_and_nothing_written(here: Path, flags: list[str], message: str) -> None:
    (here / "empty.txt").touch()
    before = sorted(here.rglob("*"))
    ended = prepare(*flags)
    *before_it, line = ended.err.splitlines()
    assert ended.code == 2 and "error:" in line and message in line
    assert not any("error:" in words for words in before_it)
    assert sorted(here.rglob("*")) == before
