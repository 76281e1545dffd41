"""Folders of golden models, made anew from `golden/` and `rule.py`, and what they compute; some with
tokenizers, texts, and tasks of the evaluation harness on local files. Neither torch nor attnlab is needed.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, pre_tokenizers, processors, trainers
from tokenizers import models as kinds

from tests.weights import rule

GOLDEN = Path(__file__).parent / "golden"
SCORED = ("gpt2", "llama")
SIZE = 300  # ids of their tokenizers
TEXTS = [
    "A dog, a cat; two dogs!",
    "it's the cat's bird",
    "Grüße aus Köln: the old dog sees a cat. " * 14,
    "x",
]
PAIRS = [("A dog,", " a cat"), ("it's the", " cat's bird"), ("", "two dogs"), ("the old ", "dog")]
WINDOWS = [(None, None), (24, 24), (24, 7), (24, 1)]
TASKS = GOLDEN / "scores" / "tasks"
SENTINELS = [f"<extra_id_{number}>" for number in range(6)]


def described(name: str) -> dict[str, Any]:
    """ "config" and "shapes" of a golden model."""
    actual: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text())
    return actual


def numbers(name: str) -> dict[str, np.ndarray]:
    """What `transformers` has computed, see `golden.py`."""
    with np.load(GOLDEN / f"{name}.npz") as actual:
        return dict(actual)


def tensors(name: str, **changes: Any) -> dict[str, np.ndarray]:
    """The tensors of its file, with `changes` of its config, of which the vocabulary's size counts."""
    golden = described(name)
    size = golden["config"].get("vocab_size")
    sizes = {size: changes.get("vocab_size", size)}
    shapes = {key: [sizes.get(n, n) for n in shape] for key, shape in golden["shapes"].items()}
    return {key: rule.parameter(key, shape) for key, shape in shapes.items()}


def folder(name: str, path: Path, **changes: Any) -> Path:
    """The folder as `save_pretrained` writes it; `changes` of its config."""
    path.mkdir(parents=True, exist_ok=True)
    config = {**described(name)["config"], **changes}
    (path / "config.json").write_text(json.dumps(config))
    save_file(tensors(name, **changes), path / "model.safetensors", metadata={"format": "pt"})
    return path


def tokenized(name: str, path: Path) -> Path:
    """A golden language model with a table of as many rows as its tokenizer has ids."""
    special = ["<|end|>"] if name == "gpt2" else ["<s>", "</s>"]
    folder(name, path, vocab_size=SIZE, bos_token_id=0, eos_token_id=len(special) - 1)
    tokenizer = Tokenizer(kinds.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    if name == "llama":
        tokenizer.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 0)])
    names = {"tokenizer_class": "PreTrainedTokenizerFast"}
    return _saved(path, tokenizer, names | {"bos_token": special[0], "eos_token": special[-1]})


def t5(path: Path, name: str = "pairs/t5") -> Path:
    """A golden T5: padding 0, which its decoder reads first, end 1; sentinels last, descending."""
    return _pairs(path, name, ["<pad>", "</s>", "<unk>"], "$A </s>", [("</s>", 1)], SENTINELS[::-1])


def bart(path: Path, name: str = "pairs/bart") -> Path:
    """A golden BART: every text begins with <s> and ends with </s>, which its decoder reads first."""
    special = [("<s>", 0), ("</s>", 2)]
    return _pairs(path, name, ["<s>", "<pad>", "</s>", "<unk>"], "<s> $A </s>", special)


def _pairs(
    path: Path,
    name: str,
    first: list[str],
    template: str,
    special: list[tuple[str, int]],
    last: Sequence[str] = (),
) -> Path:
    folder(name, path)
    model = Tokenizer(kinds.BPE(unk_token="<unk>"))
    model.pre_tokenizer = pre_tokenizers.Metaspace()
    size = described(name)["config"]["vocab_size"] - len(last)
    texts = ["the old dog sees a cat", "a cat sees the two dogs", "old cats see old dogs"]
    model.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=size, special_tokens=first, show_progress=False)
    )
    model.decoder = decoders.Metaspace()
    model.add_special_tokens([*last])
    model.post_processor = processors.TemplateProcessing(single=template, special_tokens=special)
    return _saved(path, model, {"eos_token": "</s>", "pad_token": "<pad>"})


def _saved(path: Path, tokenizer: Tokenizer, names: dict[str, str]) -> Path:
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps(names))
    return path


def tasks(path: Path) -> tuple[str, ...]:
    """The names of local tasks, whose files are written into a folder."""
    path.mkdir(parents=True)
    for file in TASKS.iterdir():
        (path / file.name).write_text(file.read_text().replace("FOLDER", str(path)))
    return tuple(sorted(file.stem for file in TASKS.glob("*.yaml")))
