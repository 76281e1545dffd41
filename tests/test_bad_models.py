"""Bad input of commands that begin with a model from elsewhere: exit code 2, one line that helps,
and no workdir.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bad_input_cases import contents, launch, refused
from tests.test_doc_pages import TEXT, gpt2

SMALL = (
    "--config.data=text",
    "--config.training.steps=1",
    "--config.training.evaluate_every=1",
    "--config.schedule.warmup=0",
    "--config.batch.size=4",
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with texts, a model `gpt2` of 64 positions, and a run made of it."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("gpt2", "texts"):
        (folder / name).mkdir()
    gpt2(folder / "gpt2")
    for split in ("train", "valid", "test"):
        (folder / "texts" / f"{split}.txt").write_text(TEXT)
    return folder


def set_to(**changes: object) -> Callable[[Path], None]:
    """Writes other values into config.json."""

    def harm(folder: Path) -> None:
        told = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(told | changes))

    return harm


def another_piece(folder: Path) -> None:
    """Gives the tokenizer an id that the embedding has no row for."""
    told = json.loads((folder / "tokenizer.json").read_text())
    told["model"]["vocab"]["zzzz"] = 320
    (folder / "tokenizer.json").write_text(json.dumps(told))


INTACT = lambda folder: None
CASES: dict[str, tuple[Callable[[Path], object], list[str], str]] = {
    "tensors of other shapes": (
        set_to(n_embd=16),
        [],
        "28 of another shape: transformer.wte.weight [290, 32] instead of [290, 16]",
    ),
    "tensors missing": (set_to(n_layer=3), [], "12 missing: transformer.h.2."),
    "no tokenizer": (
        lambda folder: (folder / "tokenizer.json").unlink(),
        [],
        "there is no tokenizer {folder}/tokenizer.json; transformers writes one",
    ),
    "the tokenizer of another": (
        another_piece,
        [],
        "tokenizer.json: the tokenizer has 321 ids and the model 290: they do not belong",
    ),
    "rows beyond the last position": (
        INTACT,
        ["--config.batch.max_length=65"],
        "rows of 65 tokens, but positions end at 64; lower config.batch.max_length",
    ),
    "another system without saying so": (
        INTACT,
        ["--config.system.attention.key_heads=2"],
        "the config changes its system: set pretrained.take=matching",
    ),
    "heads that cannot be shared": (
        INTACT,
        ["--config.pretrained.take=matching", "--config.system.attention.key_heads=3"],
        "heads=4 is not divisible by key_heads=3; key_heads could be 1 or 2 or 4",
    ),
}
"""What is done to a good folder, what is changed in the config, and the words of its line."""


@pytest.mark.parametrize("case", CASES)
def test_a_bad_folder_or_setting(case: str, base: Path, tmp_path: Path) -> None:
    harm, changes, words = CASES[case]
    folder = Path(shutil.copytree(base / "gpt2", tmp_path / "model"))
    harm(folder)
    where = (f"--config.data.directory={base / 'texts'}", f"--workdir={tmp_path / 'run'}")
    line = launch("train", f"--config=configs/pretrained.py:{folder}", *SMALL, *changes, *where)
    refused(line, words.format(folder=folder))
    assert not (tmp_path / "run").exists()


def test_a_beginning_beyond_the_last_position(base: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    small = ("--config.data=text", f"--config.data.directory={base / 'texts'}")
    made = launch("import", f"--from={base / 'gpt2'}", f"--workdir={run}", *small)
    assert made.code == 0, made.err
    before = contents(run)
    done = launch("generate", f"--workdir={run}", stdin=b"a dog, " * 30 + b"\n")
    refused(done, "tokens are to be read and written, but positions end at 64; take shorter")
    assert contents(run) == before
