"""BERT (Devlin et al. 2019) in the files of `transformers`: with the head of a masked language model,
those of pretraining, or one for texts or for tokens.

The published files are older than their `config.json`: norms have `gamma` and `beta`, and there are
the pooler and the head for pairs where the architecture has neither; these are left out.
"""

from collections.abc import Mapping
from typing import Any

from attnlab.errors import UserError
from attnlab.weights.foreign import ACTIVATIONS, ForeignConfig, Key, brief, content_of
from attnlab.weights.names import Name, Names, matrix, norm

ARCHITECTURES = {"bert": "BertForMaskedLM"}
SYSTEMS = ("bert", "bert_classifier")
HEADS: Mapping[str, dict[str, Any]] = {
    "BertForMaskedLM": {"name": "bert", "head": "tied", "next_sentence": False},
    "BertForPreTraining": {"name": "bert", "head": "tied", "next_sentence": True},
    "BertForTokenClassification": {"name": "bert", "head": "linear", "next_sentence": False},
    "BertForSequenceClassification": {"name": "bert_classifier", "pooling": "pooler"},
}
"""Architectures and what of a system says which it is."""
TASKS = {
    "BertForTokenClassification": "tagging",
    "BertForSequenceClassification": "classification",
}
"""Architectures with a head for labels, and the task of each."""

_H, _L = "bert.encoder.layer.{i}", "layer_{i}"
NAMES = Names(
    (
        Name("bert.embeddings.word_embeddings.weight", "embed/embedding"),
        Name("bert.embeddings.position_embeddings.weight", "positions/table"),
        Name("bert.embeddings.token_type_embeddings.weight", "embed_types/embedding"),
        *norm("bert.embeddings.LayerNorm", "embed_norm"),
        *matrix(f"{_H}.attention.self.query", f"{_L}/attention/w_query"),
        *matrix(f"{_H}.attention.self.key", f"{_L}/attention/w_key"),
        *matrix(f"{_H}.attention.self.value", f"{_L}/attention/w_value"),
        *matrix(f"{_H}.attention.output.dense", f"{_L}/attention/out"),
        *norm(f"{_H}.attention.output.LayerNorm", f"{_L}/around_attention/normalisation"),
        *matrix(f"{_H}.intermediate.dense", f"{_L}/feed_forward/inner"),
        *matrix(f"{_H}.output.dense", f"{_L}/feed_forward/outer"),
        *norm(f"{_H}.output.LayerNorm", f"{_L}/around_feed_forward/normalisation"),
        *matrix("bert.pooler.dense", "pooler"),
        Name("cls.predictions.bias", "out/bias", required="out/inner/kernel"),
        *matrix("cls.predictions.transform.dense", "out/inner"),
        *norm("cls.predictions.transform.LayerNorm", "out/normalisation"),
        *matrix("cls.seq_relationship", "relation"),
        *matrix("classifier", "out"),
    ),
    prefix="bert.",
    dropped=(r"bert\.pooler\..*", r"cls\.seq_relationship\..*", r"bert\.embeddings\.position_ids"),
    tied={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    older={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
)


ENCODER = {
    "width": Key("hidden_size", 768),
    "layers": Key("num_hidden_layers", 12),
    "attention.heads": Key("num_attention_heads", 12),
    "hidden": Key("intermediate_size", 3072),
    "feed_forward.name": Key("hidden_act", "gelu", ACTIVATIONS),
    "normalisation.epsilon": Key("layer_norm_eps", 1e-12),
    "normalisation.name": "layer_norm",
    "positions.name": "learned",
    "attention.name": "multihead",
}
"""What the encoders of BERT and ViT have alike."""
KEYS = {
    **ENCODER,
    "types": Key("type_vocab_size", 2),
    "positions.length": Key("max_position_embeddings", 512),
    "attention.dropout": Key("attention_probs_dropout_prob", 0.1),
    "dropout": Key("hidden_dropout_prob", 0.1),
    "attention.bias": True,
}


def system(file: ForeignConfig) -> dict[str, Any]:
    """Returns the config node `system` of attnlab that a `ForeignConfig`, the parsed `config.json`
    of BERT, describes, with the head of its architecture; raises `UserError` for settings that
    attnlab does not compute.
    """
    file.only(is_decoder=False, add_cross_attention=False, position_embedding_type="absolute")
    file.only(problem_type="single_label_classification")
    file.only(classifier_dropout=file.content.get("hidden_dropout_prob", 0.1))
    head, node = HEADS[_architecture(file)], file.system(KEYS)
    if head.get("head") == "tied":
        file.only(tie_word_embeddings=True)
        head = {**head, "activation": node["feed_forward"]["name"]}
    return {**head, **node}


def run(file: ForeignConfig) -> dict[str, Any]:
    """Returns the nodes "task", "data", "batch" and, for a classifier or tagger, "checkpoint" of a
    run config for the BERT of a `ForeignConfig`, the parsed `config.json`, by its architecture. See
    `attnlab.weights.run_config`.
    """
    task = TASKS.get(_architecture(file), "masked_language_modelling")
    longest = min(128, file.count("max_position_embeddings", 512))
    longer = {"classification": "cut", "tagging": "refuse"}.get(task, "windows")
    batch: dict[str, Any] = {"size": 16, "max_length": longest, "longer": longer}
    if task in TASKS.values():
        batch["buckets"] = tuple(sorted({max(1, longest // 4), max(1, longest // 2), longest}))
        data = "table" if task == "classification" else "columns"
        return {"task": task, "data": data, "batch": batch, "checkpoint": {"by": "accuracy"}}
    return {"task": task, "data": "none", "batch": batch}


def config(system: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Returns the content of a `config.json` of BERT for a complete config node `system`, with the
    architecture of its head, by default that of `kind`; raises `UserError` without learned
    positions or token types. Settings that it cannot express are found by reading it back.
    """
    content = content_of(KEYS, system)
    if not system["types"]:
        raise UserError("it has types of tokens")
    architectures = (
        name
        for name, head in HEADS.items()
        if all(system.get(key) == value for key, value in head.items())
    )
    return {
        "architectures": [next(architectures, ARCHITECTURES[kind])],
        "model_type": "bert",
        **content,
    }


def _architecture(file: ForeignConfig) -> str:
    """Returns the architecture, one of `HEADS`, that a config names, by default that of the
    published models; raises `UserError` for any other.
    """
    architectures = file.content.get("architectures") or [ARCHITECTURES["bert"]]
    if architectures not in ([head] for head in HEADS):
        raise UserError(
            f"{file.where}: architectures={brief(architectures)}; known are: {', '.join(HEADS)}"
            " (others have no head, or another one; load them with one of these and save that)"
        )
    return str(architectures[0])
