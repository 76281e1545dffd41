"""The commands of `docs/pretrained.md` do what the page says, from top to bottom."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

import attnlab
from attnlab.weights.names import flat
from tests.commands.tiny import CommandResult, run_command
from tests.data.test_tokenizer import byte_level
from tests.weights import models, rule

PAGE = Path(__file__).resolve().parents[1] / "docs" / "pretrained.md"
BLOCKS = re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
Page = tuple[Path, list[CommandResult]]
TEXT = "A dog, a cat; two dogs!\nit's the cat's bird\n" * 20
WIDTH, LAYERS, ROWS = 32, 2, 290


def gpt2(folder: Path) -> None:
    """The folder that the page's block in Python makes, of other random weights."""
    byte_level(folder)
    told: dict[str, Any] = {"n_positions": 64, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": 4}
    told |= {"model_type": "gpt2", "vocab_size": ROWS, "bos_token_id": 0, "eos_token_id": 0}
    (folder / "config.json").write_text(json.dumps(told))
    products = {"attn.c_attn": (1, 3), "attn.c_proj": (1, 1), "mlp.c_fc": (1, 4)}
    products["mlp.c_proj"] = (4, 1)
    layer = {f"{norm}.{end}": [WIDTH] for norm in ("ln_1", "ln_2") for end in ("weight", "bias")}
    for name, (inner, outer) in products.items():
        layer[f"{name}.weight"] = [inner * WIDTH, outer * WIDTH]
        layer[f"{name}.bias"] = [outer * WIDTH]
    shapes = {"wte.weight": [ROWS, WIDTH], "wpe.weight": [64, WIDTH]}
    shapes |= {f"h.{i}.{name}": shape for i in range(LAYERS) for name, shape in layer.items()}
    shapes |= {f"ln_f.{end}": [WIDTH] for end in ("weight", "bias")}
    tensors = {f"transformer.{name}": rule.parameter(name, shape) for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def animals(folder: Path) -> None:
    """Dark cats and light dogs, of the size that the tiny ViT reads."""
    drawn = np.random.default_rng(0)
    for split, count in (("train", 40), ("test", 10)):
        for animal, least in (("cat", 0), ("dog", 155)):
            (folder / split / animal).mkdir(parents=True)
            for number in range(count):
                pixels = drawn.integers(least, least + 100, (6, 9, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / split / animal / f"{number}.png")


def ran(folder: Path, blocks: list[str]) -> list[CommandResult]:
    """How the commands of some blocks of the page end in a folder that has its model."""
    (folder / "gpt2").mkdir()
    gpt2(folder / "gpt2")
    ended = []
    with pytest.MonkeyPatch.context() as moved:
        moved.chdir(folder)
        for line in "".join(blocks).splitlines():
            words, typed = shlex.split(line), ""
            if words[0] == "echo":
                typed, words = words[1] + "\n", words[3:]
            assert words[:2] == ["python", "launch.py"], line
            ended.append(run_command(words[2:], typed))
            assert ended[-1].code == 0, (line, ended[-1].err)
    return ended


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """A folder in which all commands have run, and how each ended."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "texts").mkdir()
    for split in ("train", "valid", "test"):
        (folder / "texts" / f"{split}.txt").write_text(TEXT)
    models.folder("images/vit", folder / "vit")
    animals(folder / "images")
    return folder, ran(folder, BLOCKS)


def test_a_model_is_imported_and_goes_on_with_a_text(tmp_path: Path) -> None:
    """The first block, without training; all others in the full mode."""
    imported, generated = ran(tmp_path, BLOCKS[:1])
    assert (tmp_path / "runs" / "gpt2" / "manifest.json").is_file(), imported.err
    assert generated.out.startswith("A dog")


@pytest.mark.full
def test_every_command_runs_and_says_what_the_page_says(page: Page) -> None:
    _, ended = page
    assert len(ended) == 10 and ended[1].out.startswith("A dog")
    told = [line for line in PAGE.read_text().splitlines() if line.startswith("pretrained: ")]
    assert len(told) == 3 and all(line in ended[2].err.splitlines() for line in told)
    ((trained, every),) = re.findall(r"^(\S+) of (\S+) parameters are trained", ended[4].err, re.M)
    assert f"{trained} of " in PAGE.read_text() and every  # the number of pieces differs


@pytest.mark.full
def test_tuning_lowers_the_loss_and_what_is_written_is_what_was_tuned(page: Page) -> None:
    folder, _ = page
    for name, kind in (("swapped", "starcoder2"), ("lora", "gpt2")):
        run = attnlab.load(folder / "runs" / name)
        before, after = (
            json.loads(line)["loss"]
            for number, line in enumerate((folder / "runs" / name / "metrics.jsonl").open())
            if '"valid"' in line and number >= 0
        )
        assert after < before
        back = attnlab.load_pretrained(folder / "runs" / name / "exports" / "transformers")
        assert back.config.pretrained.folder.endswith("exports/transformers")
        told = json.loads((Path(back.config.pretrained.folder) / "config.json").read_text())
        assert told["model_type"] == kind
        for path, one in flat(run.params).items():
            np.testing.assert_array_equal(flat(back.params)[path], one, err_msg=path)


@pytest.mark.full
def test_low_rank_products_leave_all_other_weights_as_they_were(page: Page) -> None:
    folder, _ = page
    before = load_file(folder / "gpt2" / "model.safetensors")
    after = load_file(folder / "runs" / "lora" / "exports" / "transformers" / "model.safetensors")
    assert before.keys() == after.keys()
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed == {f"transformer.h.{i}.attn.c_attn.weight" for i in range(LAYERS)}


@pytest.mark.full
def test_a_model_of_images_learns_other_classes(page: Page) -> None:
    """It tells dark from light, and what is written has the new classes."""
    folder, _ = page
    run = folder / "runs" / "animals"
    scores = json.loads((run / "results.json").read_text())
    assert scores["accuracy"] >= 0.9, scores
    back = attnlab.load_pretrained(run / "exports" / "transformers")
    assert back.task.data.learned.classes == ("cat", "dog")
    source = str(folder / "images" / "test" / "dog" / "0.png")
    assert back.respond([source])[0][0].text == "dog"
