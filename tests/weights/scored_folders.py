"""Folders of a GPT-2 and a Llama with tokenizers, texts, and tasks of the evaluation harness on local
files; neither torch nor attnlab is needed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, pre_tokenizers, processors, trainers
from tokenizers import models as kinds

from tests.weights import models, rule

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
_QUESTIONS = [
    {"q": "A dog,", "a": "a cat", "wrong": "old Köln"},
    {"q": "it's the cat's", "a": "bird", "wrong": "dogs two dogs"},
    {"q": "Grüße aus", "a": "Köln", "wrong": "it's"},
    {"q": "the old dog sees", "a": "a cat", "wrong": "x"},
    {"q": TEXTS[2] + "the old dog", "a": "sees a cat", "wrong": "two dogs!"},
]
_TASKS: dict[str, dict[str, Any]] = {
    "local_choice": {
        "output_type": "multiple_choice",
        "doc_to_text": "{{q}}",
        "doc_to_choice": "{{[a, wrong]}}",
        "doc_to_target": 0,
        "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
    },
    "local_last": {
        "output_type": "loglikelihood",
        "doc_to_text": "{{q}}",
        "doc_to_target": " {{a}}",
        "metric_list": [{"metric": "perplexity"}, {"metric": "acc"}],
    },
    "local_rolling": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{q}} {{a}}",
        "metric_list": [{"metric": name} for name in ("word_perplexity", "bits_per_byte")],
    },
    "local_written": {
        "output_type": "generate_until",
        "doc_to_text": "{{q}}",
        "doc_to_target": " {{a}}",
        "generation_kwargs": {"until": ["e"], "max_gen_toks": 9},
        "metric_list": [{"metric": "exact_match"}],
    },
}


def folder(name: str, path: Path) -> Path:
    """A golden model with a table of as many rows as its tokenizer has ids."""
    path.mkdir(parents=True, exist_ok=True)
    described = models.described(name)
    special = ["<|end|>"] if name == "gpt2" else ["<s>", "</s>"]
    config = {**described["config"], "vocab_size": SIZE, "bos_token_id": 0}
    config["eos_token_id"] = len(special) - 1
    (path / "config.json").write_text(json.dumps(config))
    rows = described["config"]["vocab_size"]
    shapes = {
        key: [SIZE if n == rows else n for n in shape] for key, shape in described["shapes"].items()
    }
    tensors = {key: rule.parameter(key, shape) for key, shape in shapes.items()}
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
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
    path.mkdir(parents=True, exist_ok=True)
    data = path / "questions.jsonl"
    data.write_text("".join(json.dumps(question) + "\n" for question in _QUESTIONS))
    for name, task in _TASKS.items():
        read = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(data)}}}
        whole = {"task": name, "test_split": "test", **read, **task}
        (path / f"{name}.yaml").write_text(json.dumps(whole))  # JSON is YAML
    return tuple(_TASKS)
