"""Folders of a GPT-2 and a Llama with tokenizers, texts, and tasks of the evaluation harness on local
files; neither torch nor attnlab is needed.
"""

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, pre_tokenizers, processors, trainers
from tokenizers import models as kinds

from tests.weights import models

NAMES = ("gpt2", "llama")
SIZE = 300  # ids
TEXTS = [
    "A dog, a cat; two dogs!",
    "it's the cat's bird",
    "Grüße aus Köln: the old dog sees a cat. " * 14,
    "x",
]
PAIRS = [("A dog,", " a cat"), ("it's the", " cat's bird"), ("", "two dogs"), ("the old ", "dog")]
WINDOWS = [(None, None), (24, 24), (24, 7), (24, 1)]
TASKS = models.GOLDEN / "scores" / "tasks"


def folder(name: str, path: Path) -> Path:
    """A golden model with a table of as many rows as its tokenizer has ids."""
    special = ["<|end|>"] if name == "gpt2" else ["<s>", "</s>"]
    models.folder(name, path, vocab_size=SIZE, bos_token_id=0, eos_token_id=len(special) - 1)
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
    tokenizer.save(str(path / "tokenizer.json"))
    names = {"tokenizer_class": "PreTrainedTokenizerFast"}
    names |= {"bos_token": special[0], "eos_token": special[-1]}
    (path / "tokenizer_config.json").write_text(json.dumps(names))
    return path


def tasks(path: Path) -> tuple[str, ...]:
    """The names of local tasks, whose files are written into a folder."""
    path.mkdir(parents=True)
    for file in TASKS.iterdir():
        (path / file.name).write_text(file.read_text().replace("FOLDER", str(path)))
    return tuple(sorted(file.stem for file in TASKS.glob("*.yaml")))
