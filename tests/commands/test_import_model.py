"""What `import` refuses, and that it reads no data; what else it does, tests/api/test_pretrained.py
tells.
"""

import json
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.commands.tiny import completed, refused, run_command
from tests.data.test_chat import TEMPLATE
from tests.test_doc_pages import TEXT, gpt2
from tests.weights import models


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--workdir=run"], "--from"),
        (["--from=none", "--workdir=run"], "none is no folder"),
        (["--from=.", "--workdir=run"], "has no config.json"),
        (["--from=.", "--workdir=run", "--config.training.stepz=3"], "has no config.json"),
    ],
)
def test_one_line_and_nothing_written(
    flags: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refused("import", *flags)
    assert not list(tmp_path.iterdir())


SMALL = [
    f"--config.{setting}"
    for setting in (
        *("training.steps=1", "training.evaluate_every=1", "schedule.warmup=0"),
        *("batch.size=4", "batch.max_length=8", "decoding.batch=4"),
    )
]


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of a language model with a chat template, in a folder without data."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt2").mkdir()
    gpt2(tmp_path / "gpt2")
    (tmp_path / "gpt2" / "chat_template.jinja").write_text(
        TEMPLATE.replace("<|im_start|>", "").replace("<|im_end|>", "<|end|>")
    )
    ended = completed(["import", "--from=gpt2", "--workdir=run"])
    (line,) = [line for line in ended.out.splitlines() if line.startswith("to train it: ")]
    (tmp_path / "line").write_text(line.removeprefix("to train it: "))
    return tmp_path / "run"


def test_no_data_is_read_and_none_is_made_up(imported: Path) -> None:
    """What needs data names the line that works; it works, and so does the one that `import` says."""
    manifest = json.loads((imported / "manifest.json").read_text())
    assert {*manifest["data"]} == {"pretrained"} and manifest["config"]["data"] == {"name": "none"}
    why = "no test split; add --config.data=text --config.data.directory=FOLDER"
    assert why in refused("evaluate", "--workdir=run")
    tuning = shlex.split((imported.parent / "line").read_text())
    assert "no train split; add" in refused(*tuning[:2], "--workdir=new")
    for split in ("train", "valid", "test"):
        (imported.parent / f"{split}.txt").write_text(TEXT)
    flags = ["--config.data=text", "--config.data.directory=."]
    ended = run_command(["evaluate", "--workdir=run", "--json", *flags])
    assert ended.code == 0 and json.loads(ended.out)["loss"] > 1, ended.err
    completed([*tuning, *SMALL, "--config.data.directory=."])
    kept = json.loads((imported.parent / "run-tuned" / "manifest.json").read_text())
    assert {*kept["data"]} == {"pretrained", "train", "valid", "test"}


@pytest.mark.full
def test_data_that_comes_later_is_that_of_the_run(imported: Path) -> None:
    """Named at the import, read when training begins, and from then on it may not change."""
    words = [*SMALL, "--config.data=text", "--config.data.directory=."]
    assert run_command(["import", "--from=gpt2", "--workdir=later", *words]).code == 0
    train = ["train", f"--config=configs/pretrained.py:{imported.parent / 'gpt2'}"]
    train += ["--workdir=later", *words]
    assert "cannot" in refused(*train)
    for split in ("train", "valid", "test"):
        (imported.parent / f"{split}.txt").write_text(TEXT)
    assert run_command(train).code == 0
    (imported.parent / "train.txt").write_text(TEXT * 2)
    assert "the data of workdir later has changed since it began (split train)" in refused(*train)


def test_special_tokens_and_chats(imported: Path) -> None:
    """A chat answers, it does not repeat the line; a special token ends nothing in a prompt."""
    flags = ["--config.decoding.method=greedy", "--config.decoding.max_extra=3"]
    command = ["generate", "--workdir=run", *flags]
    plain, special = (
        run_command([*command, *more], "A dog <|end|>\n\n").out.split("\n")
        for more in ([], ["--special"])
    )
    assert plain[0].startswith("A dog <|end|>") and special[0].startswith("A dog <|end|>")
    assert plain[0] != special[0] and plain[1:] == special[1:] == ["", ""]
    for flag in ("--special", "--chat"):
        assert "--score takes plain texts" in refused(*command, "--score", flag)
    if find_spec("jinja2") is None:
        assert "pip install 'attnlab[chat]'" in refused(*command, "--chat", stdin="A dog\n")
        return
    answers = run_command([*command, "--chat"], "A dog\n")
    assert answers.code == 0 and not answers.out.startswith("A dog"), answers.err
    said = json.dumps([{"role": "user", "content": "A dog"}])
    assert run_command([*command, "--chat=messages"], said + "\n").out == answers.out


@pytest.mark.full
@pytest.mark.parametrize("name", ["images/vit", "pairs/t5"])
def test_models_of_other_kinds_need_no_data_either(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    models.folder(name, folder) if name == "images/vit" else models.t5(folder)
    completed(["import", f"--from={folder}", f"--workdir={tmp_path / 'run'}"])
    assert (tmp_path / "run" / "manifest.json").is_file()
