"""`preview` tells what is in data, and its last line trains on it."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from attnlab import config as configs
from attnlab.commands.preview import CONFIGS
from attnlab.data.rows import NAMES, TAKES
from tests.commands.tiny import completed, refused

VALUES: dict[str, Any] = {"words": ["a", "b"], "tags": ["X", "Y"], "answers": []}


def previewed(*words: object) -> str:
    """What `preview` prints, which comes to its end."""
    ended = completed(["preview", *map(str, words)])
    return ended.out


@pytest.mark.parametrize("method", CONFIGS)
def test_the_command_of_every_kind_is_a_config(method: str, tmp_path: Path) -> None:
    row = {"n": 0} | {NAMES[column]: VALUES.get(column, "so so") for column in TAKES[method]}
    if method == "objects":
        row = {"n": 0, "image": "a", "objects": {"bbox": [[0] * 4], "category": ["cat", "cat"]}}
    (tmp_path / "mine.jsonl").write_text(json.dumps(row))
    shown = previewed(tmp_path / "mine.jsonl")
    assert re.search(r"\nn +int +0% +1 .*'0' 1\n", shown)
    of_boxes = re.search(r"objects.category +list .*'cat' 2[^*]*config.data.boxes must", shown)
    assert (of_boxes is not None) == (method == "objects")
    line = shlex.split(shown.strip().splitlines()[-1])
    assert line[:4] == ["python", "launch.py", "train", f"--config={CONFIGS[method]}"]
    flags = [word.removeprefix("--config.") for word in line[4:-1]]
    settings = configs.load(CONFIGS[method], flags)
    assert settings.data["files"] == "mine.jsonl" and line[-1] == "--workdir=runs/mine"


def test_columns_and_what_would_be_cut(tmp_path: Path) -> None:
    """Of a folder with a file for each split; names that are not there are one line."""
    rows = [f"{'so ' * n}so,{n % 3}" for n in range(100)]
    (tmp_path / "train.csv").write_text("\n".join(["review,stars", *rows]))
    *_, before, example = previewed(tmp_path).splitlines()
    text, label = "--config.data.columns.text=review", "--config.data.columns.label=stars"
    assert before == "name them, as by" and example.endswith(f"preview {tmp_path} {text} {label}")
    shown = previewed(tmp_path, text, label)
    assert re.search(r"stars +str +0% +3 +1 +'0' 34, '1' 33, '2' 33", shown)
    assert re.search(r"review +str +0% +100 +1 [▅-█]{8} 100 ", shown)
    assert "37 of 100 rows have too many words for batch.max_length=64 tokens" in shown
    place = f"--config.data.directory={tmp_path}"
    assert f"{place} --config.data.files=train {text} {label}" in shown
    assert max(map(len, shown.splitlines()[:-1])) <= 120
    (tmp_path / "train").mkdir()  # without a table in it
    test, valid = (tmp_path / f"{split}.csv" for split in ("test", "dev"))
    for there, split in (([test], "valid"), ([valid], "test"), ([test, valid], "")):
        for path in there:
            path.write_text("review,stars\nso,1\n")
        shares = ["--config.data.train=train[:90%]", f"--config.data.{split}=train[90%:]"]
        words = [place, *(shares if split else []), text, label]
        assert shlex.join(words) in previewed(tmp_path, text, label)
        test.unlink(missing_ok=True)
    both = ["--config.data.columns.source=stars", "--config.data.columns.target=review"]
    shown = previewed(tmp_path, *both)
    assert re.search(r"\n[1-9]\d of 100 rows have too many words", shown)
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "none").mkdir()
    (tmp_path / "none.txt").write_text("so")
    for name in ("a/dev.csv", "a/all.csv", "b/train.csv", "b/train.tsv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text\na\n")
    for arguments, message in (
        ([str(tmp_path), text + "s"], "has no column 'reviews'; did you mean 'review'"),
        ([str(tmp_path), "--config.data.column=a"], "config.data.column: no such key"),
        ([str(tmp_path / "none.csv")], "preview: no table (.csv, .tsv, .jsonl"),
        ([str(tmp_path / "none.txt")], f"preview: {tmp_path}/none.txt is no table (.csv"),
        ([str(tmp_path / "none")], f"preview: {tmp_path}/none holds no table (.csv"),
        ([str(tmp_path / "empty.csv")], "empty.csv has no row"),
        ([str(tmp_path / "a")], "has a table for valid and none for train"),
        ([str(tmp_path / "b")], "has train.csv and train.tsv; name the one that is meant"),
    ):
        assert message in refused("preview", *arguments)
