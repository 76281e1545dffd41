"""Golden numbers of the encoders of `transformers`, as `golden.py` has them of its language models;
it runs in the same way:

    python -m tests.weights.golden_encoders write [NAME ...]     golden/encoders/NAME.json and NAME.npz anew
    python -m tests.weights.golden_encoders check FOLDER         does transformers load each FOLDER/NAME whole, and compute the same?

NAME.npz has ids and types [2,13] (a row begins with the id 3, its second text at token 5), outputs
(logits of tokens [2,13,V], or of texts [2,C]), labels, related [2,2] where there is a head for
pairs, loss (mean cross-entropy of outputs against labels, and of related against 0 and 1), grad_norm
and grad_along as in `golden.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from tests.weights import golden_files, rule

torch.set_num_threads(1)
GOLDEN = Path(__file__).parent / "golden" / "encoders"
BEGIN = 3  # the id that begins every row; token 5 begins the second text
BERT: dict[str, Any] = {
    "vocab_size": 101,
    "hidden_size": 36,
    "intermediate_size": 55,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "max_position_embeddings": 31,
    "type_vocab_size": 2,
    "pad_token_id": None,
}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert_masked": ("BertForMaskedLM", BERT),
    "bert_pretraining": (
        "BertForPreTraining",
        {**BERT, "hidden_act": "gelu_new", "layer_norm_eps": 1e-3, "num_attention_heads": 3},
    ),
    "bert_texts": (
        "BertForSequenceClassification",
        {**BERT, "num_labels": 5, "type_vocab_size": 3},
    ),
    "bert_tokens": (
        "BertForTokenClassification",
        {**BERT, "num_labels": 7, "hidden_act": "relu", "num_hidden_layers": 2},
    ),
}


def built(name: str) -> Any:
    """The model of a name, float32, its own attention, no dropout; every tensor by the rule."""
    architecture, settings = CONFIGS[name]
    config = transformers.BertConfig(**settings)
    kind = getattr(transformers, architecture)
    model = kind._from_config(config, attn_implementation="eager").float().eval()
    golden_files.drawn(model.named_parameters())
    return model


def computed(model: Any) -> dict[str, np.ndarray]:
    """The numbers of NAME.npz."""
    ids = rule.tokens(model.config.vocab_size, 2, 13)
    ids[:, 0] = BEGIN
    types = np.broadcast_to(np.arange(13) >= 5, (2, 13)).astype(np.int32)
    model.zero_grad()
    given = (torch.from_numpy(one.copy()).long() for one in (ids, types))
    found = model(**dict(zip(("input_ids", "token_type_ids"), given, strict=True)))
    outputs = found.logits if "logits" in found else found.prediction_logits
    labels = torch.from_numpy(rule.tokens(outputs.shape[-1], 2, 13)).long()
    labels = labels if outputs.ndim == 3 else labels[:, 0]
    cost = torch.nn.functional.cross_entropy
    loss = cost(outputs.reshape(-1, outputs.shape[-1]), labels.reshape(-1))
    related = {}
    if "seq_relationship_logits" in found:
        loss = loss + cost(found.seq_relationship_logits, torch.tensor([0, 1]))
        related = {"related": found.seq_relationship_logits.detach().numpy()}
    loss.backward()
    return {
        "ids": ids,
        "types": types,
        "outputs": outputs.detach().numpy(),
        "labels": labels.numpy(),
        **related,
        "loss": np.float64(loss.item()),
        **golden_files.slopes(model.named_parameters()),
    }


def write(name: str) -> None:
    """NAME.json and NAME.npz."""
    model = built(name)
    numbers = computed(model)
    shapes = {key: list(tensor.shape) for key, tensor in model.named_parameters()}
    golden_files.store(GOLDEN, name, golden_files.config_of(model), shapes, numbers)


def check(folder: Path) -> bool:
    """Does transformers load a folder whole, and compute from it what it computed before?"""
    name = folder.name
    kind = getattr(transformers, CONFIGS[name][0])
    model, left = golden_files.loaded(kind, folder)
    return golden_files.same(name, left, computed(model), computed(built(name)))


if __name__ == "__main__":
    golden_files.main(CONFIGS, write, check)
