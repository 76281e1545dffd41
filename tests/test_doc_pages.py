"""What `docs/python.md` and `docs/inside.md` show, run block by block; what their functions make of
the weights of other libraries computes their formulas (the conventions that they name are held by
the oracles). The commands of `docs/pretrained.md` do what the page says, from top to bottom; the
notebook of docs/examples runs in a new kernel, and finds what it says.
"""

import json
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

import attnlab
from attnlab.attention.view import CAUSAL
from attnlab.layers.lstm import LSTMLayer
from attnlab.weights.names import flat
from tests.api.test_pretrained import bert_folder
from tests.commands.tiny import CommandResult, Runs, run_command
from tests.data.test_tokenizer import byte_level
from tests.flags import FAST
from tests.rounding import assert_close
from tests.weights import models, rule

PAGES = Path(__file__).resolve().parents[1] / "docs"


def blocks(page: str, language: str = "python") -> list[str]:
    """The blocks of a page in a language."""
    text = (PAGES / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


BLOCKS = blocks("python.md")
GIVEN = np.random.default_rng(0)


@pytest.fixture(scope="module")
def page(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The names that the blocks leave behind, run in order in a folder that has the run the page
    speaks of.
    """
    folder = tmp_path_factory.mktemp("page")
    shutil.copytree(runs("rnnsearch")[0], folder / "runs" / "first")
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as moved:
        moved.chdir(folder)
        for number, block in enumerate(BLOCKS, start=1):
            exec(compile(block, f"docs/python.md, block {number}", "exec"), names)
    return names


def test_every_block_runs_in_order(page: dict[str, Any]) -> None:
    """The run that is loaded is the one that was trained, and its picture is drawn."""
    assert len(BLOCKS) >= 12 and page["run"].step == 12 and not jax.config.jax_enable_x64
    assert "".join(page["search"].queries) == "1967-03-03</s>" and len(page["most"]) == 11


def test_the_blocks_of_the_page_on_the_inside(runs: Runs, tmp_path: Path) -> None:
    """They run in order, and leave the atlas behind."""
    shutil.copytree(runs("transformer")[0], tmp_path / "runs" / "transformer")
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as moved:
        moved.chdir(tmp_path)
        for number, block in enumerate(blocks("inside.md"), start=1):
            exec(compile(block, f"docs/inside.md, block {number}", "exec"), names)
    assert (tmp_path / "atlas.html").is_file() and names["inside"].examples == 8


def given(*shape: int) -> np.ndarray:
    return GIVEN.normal(size=shape).astype(np.float32)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def heads(x: np.ndarray, count: int) -> np.ndarray:
    """[B,T,n D] to [B,n,T,D], heads side by side."""
    return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | bool) -> np.ndarray:
    """softmax(q k^T / sqrt(D)) v of heads [B,H,T,D] where `mask` is True, side by side again."""
    scores = np.where(mask, q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    context = weights / weights.sum(axis=-1, keepdims=True) @ v
    return context.transpose(0, 2, 1, 3).reshape(context.shape[0], context.shape[2], -1)


def test_torchs_multihead_attention_with_its_masks(page: dict[str, Any]) -> None:
    """torch's: y = softmax(...) with x W^T + b, W [out, in], the rows of `in_proj` q, k, v; True in
    a mask of it is what is hidden.
    """
    state = {
        "in_proj_weight": given(24, 8),
        "in_proj_bias": given(24),
        "out_proj.weight": given(8, 8),
        "out_proj.bias": given(8),
    }
    # their key_padding_mask
    x, hidden = (given(2, 5, 8), np.array([[False] * 5, [False] * 3 + [True] * 2]))
    q, k, v = np.split(x @ state["in_proj_weight"].T + state["in_proj_bias"], 3, axis=-1)
    later = np.triu(np.ones((5, 5), bool), 1)  # their attn_mask
    mask = ~(hidden[:, None, None] | later)
    y = attended(heads(q, 2), heads(k, 2), heads(v, 2), mask)
    expected = y @ state["out_proj.weight"].T + state["out_proj.bias"]
    module = attnlab.mechanism("multihead", heads=2, bias=True)(width=8)
    found = module.apply({"params": page["multihead_of_torch"](state)}, x, x, CAUSAL, ~hidden)
    assert_close(found.context, expected, eps=8)  # type: ignore[union-attr]


def test_torchs_lstm(page: dict[str, Any]) -> None:
    """Its gates stand i, f, g, o in the rows of both matrices, and both biases count."""
    state = {
        "weight_ih_l0": given(12, 4),
        "weight_hh_l0": given(12, 3),
        "bias_ih_l0": given(12),
        "bias_hh_l0": given(12),
    }
    w_x, w_h, b_x, b_h = state.values()
    x, h, c = given(2, 5, 4), np.zeros((2, 3)), np.zeros((2, 3))
    for t in range(5):
        rows = x[:, t] @ w_x.T + b_x + h @ w_h.T + b_h
        i, f, g, o = np.split(rows, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
    outputs, last = LSTMLayer(3).apply(
        {"params": page["lstm_of_torch"](state)}, x, jnp.ones((2, 5), bool)
    )  # type: ignore[misc]
    np.testing.assert_allclose(outputs[:, -1], h, atol=1e-5)
    np.testing.assert_allclose(last.c, c, atol=1e-5)


PRETRAINED = PAGES / "pretrained.md"
COMMANDS = blocks("pretrained.md", "bash")
Ran = tuple[Path, list[CommandResult]]
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


def ran(folder: Path, commands: list[str]) -> list[CommandResult]:
    """How the commands of some blocks of the page end in a folder that has its model."""
    (folder / "gpt2").mkdir()
    gpt2(folder / "gpt2")
    ended = []
    with pytest.MonkeyPatch.context() as moved:
        moved.chdir(folder)
        for line in "".join(commands).splitlines():
            words, typed = shlex.split(line), ""
            if words[0] == "echo":
                typed, words = words[1] + "\n", words[3:]
            assert words[:2] == ["python", "launch.py"], line
            ended.append(run_command(words[2:], typed))
            assert ended[-1].code == 0, (line, ended[-1].err)
    return ended


@pytest.fixture(scope="module")
def tuning(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A folder in which all commands have run, and how each ended."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "texts").mkdir()
    for split in ("train", "valid", "test"):
        (folder / "texts" / f"{split}.txt").write_text(TEXT)
    models.folder("images/vit", folder / "vit")
    bert_folder(folder / "bert", "bert_masked")
    rows = (f"x{n} {'aa' if n % 2 else 'bb'},{n % 2}\n" for n in range(90))
    (folder / "reviews.csv").write_text("review,stars\n" + "".join(rows))
    animals(folder / "images")
    return folder, ran(folder, COMMANDS)


def test_a_model_is_imported_and_goes_on_with_a_text(tmp_path: Path) -> None:
    """The first block, without training; all others in the full mode."""
    imported, generated = ran(tmp_path, COMMANDS[:1])
    assert (tmp_path / "runs" / "gpt2" / "manifest.json").is_file(), imported.err
    assert generated.out.startswith("A dog")


@pytest.mark.full
def test_every_command_runs_and_says_what_the_page_says(tuning: Ran) -> None:
    _, ended = tuning
    assert len(ended) == 11 and ended[1].out.startswith("A dog")
    page = PRETRAINED.read_text()
    told = [line for line in page.splitlines() if line.startswith("pretrained: ")]
    assert len(told) == 3 and all(line in ended[2].err.splitlines() for line in told)
    ((trained, every),) = re.findall(r"^(\S+) of (\S+) parameters are trained", ended[4].err, re.M)
    assert f"{trained} of " in page and every  # the number of pieces differs


@pytest.mark.full
def test_tuning_lowers_the_loss_and_what_is_written_is_what_was_tuned(tuning: Ran) -> None:
    folder, _ = tuning
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
def test_low_rank_products_leave_all_other_weights_as_they_were(tuning: Ran) -> None:
    folder, _ = tuning
    before = load_file(folder / "gpt2" / "model.safetensors")
    after = load_file(folder / "runs" / "lora" / "exports" / "transformers" / "model.safetensors")
    assert before.keys() == after.keys()
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed == {f"transformer.h.{i}.attn.c_attn.weight" for i in range(LAYERS)}


@pytest.mark.full
def test_a_masked_language_model_learns_labels(tuning: Ran) -> None:
    scores = json.loads((tuning[0] / "runs" / "reviews" / "results.json").read_text())
    assert scores["accuracy"] >= 0.9, scores


@pytest.mark.full
def test_a_model_of_images_learns_other_classes(tuning: Ran) -> None:
    """It tells dark from light, and what is written has the new classes."""
    folder, _ = tuning
    run = folder / "runs" / "animals"
    scores = json.loads((run / "results.json").read_text())
    assert scores["accuracy"] >= 0.9, scores
    back = attnlab.load_pretrained(run / "exports" / "transformers")
    assert back.task.data.learned.classes == ("cat", "dog")
    source = str(folder / "images" / "test" / "dog" / "0.png")
    assert back.respond([source])[0][0].text == "dog"


NOTEBOOK = PAGES / "examples" / "look_inside.ipynb"
FOUND = "assert right > 0.9 and strongest['restored'] > 0.5, (right, strongest)"


@pytest.mark.full
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nbclient", "nbformat", "ipykernel"):
        pytest.importorskip(name, reason="needs pip install 'attnlab[notebook]'")
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(NOTEBOOK.parents[2]), prepend=os.pathsep)
    monkeypatch.setenv("XLA_FLAGS", FAST)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    notebook.cells.append(nbformat.v4.new_code_cell(FOUND))
    client = NotebookClient(notebook, timeout=280, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    pictures = [
        out
        for cell in notebook.cells
        for out in cell.get("outputs", ())
        if "image/png" in out.get("data", {})
    ]
    assert len(pictures) == 2
