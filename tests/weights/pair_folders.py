"""Folders of T5 and BART with tokenizers, as `transformers` has them."""

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, pre_tokenizers, processors, trainers
from tokenizers import models as kinds

from tests.weights import models

TEXTS = ["the old dog sees a cat", "a cat sees the two dogs", "old cats see old dogs"]
SENTINELS = [f"<extra_id_{number}>" for number in range(6)]


def t5(path: Path, name: str = "pairs/t5") -> Path:
    """A golden T5: padding 0, which its decoder reads first, end 1; sentinels last, descending."""
    return _kept(path, name, ["<pad>", "</s>", "<unk>"], "$A </s>", [("</s>", 1)], SENTINELS[::-1])


def bart(path: Path, name: str = "pairs/bart") -> Path:
    """A golden BART: every text begins with <s> and ends with </s>, which its decoder reads first."""
    special = [("<s>", 0), ("</s>", 2)]
    return _kept(path, name, ["<s>", "<pad>", "</s>", "<unk>"], "<s> $A </s>", special, [])


def _kept(
    path: Path,
    name: str,
    first: list[str],
    template: str,
    special: list[tuple[str, int]],
    last: list[str],
) -> Path:
    folder = models.folder(name, path)
    model = Tokenizer(kinds.BPE(unk_token="<unk>"))
    model.pre_tokenizer = pre_tokenizers.Metaspace()
    size = models.described(name)["config"]["vocab_size"] - len(last)
    model.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=size, special_tokens=first, show_progress=False)
    )
    model.decoder = decoders.Metaspace()
    model.add_special_tokens(last)
    model.post_processor = processors.TemplateProcessing(single=template, special_tokens=special)
    model.save(str(folder / "tokenizer.json"))
    tokens = {"eos_token": "</s>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens))
    return folder
