"""A system of ours as a model of `transformers`: its config, found by saying it and reading it back.

Each model type is asked for the config that says a system best. What is read from that config must be the
system again, setting by setting; else the type cannot say it, and the error names the settings.
"""

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from attnlab.config.registry import Table, import_object
from attnlab.config.schema import TABLES
from attnlab.config.tree import ConfigNode, complete, flat, from_dict, to_dict
from attnlab.errors import UserError, few, nearest
from attnlab.weights import MODELS, family, systems_of
from attnlab.weights.foreign import ForeignConfig, layer_nodes

FREE = ("dropout", "kernel", "stddev", "embedding_dropout", "hidden_dropout", "scan", "remat")
"""Last parts of settings that change neither parameters nor what is computed with them."""
_QKVO = {"query", "key", "value", "out"}


def config_of(system: Mapping[str, Any], kind: str | None = None) -> dict[str, Any]:
    """Returns the content of a `config.json` of `transformers` for a config node `system`, without
    its vocabulary, of the first model type (or `kind` alone) whose config, read back, is this
    system; raises `UserError` if none is.

    Args:
      system: a config node, complete.
      kind: the only model type to try; None for all.

    Raises:
      UserError: none can, with what the nearest one cannot say.
    """
    if kind is not None and kind not in MODELS:
        raise UserError(f"model type {kind!r}; {nearest(kind, MODELS)}")
    kinds = [model for model in MODELS if system["name"] in systems_of(model)]
    if not kinds or (kind is not None and kind not in kinds):
        have = dict.fromkeys(name for model in MODELS for name in systems_of(model))
        raise UserError(
            f"system={system['name']} has no counterpart among the models of transformers that are"
            f" known here: {', '.join(MODELS if kind is None else [kind])}; {', '.join(have)} have"
        )
    settings = canonical(system)
    problems: dict[str, list[str]] = {}
    for model in kinds if kind is None else [kind]:
        try:
            node = to_dict(with_defaults(system))
            for rate in ("embedding_dropout", "hidden_dropout"):  # None is the rate of the others
                if node.get(rate, 0.0) is None:
                    node[rate] = node["dropout"]
            content = family(model).config(node, model)
            reread = canonical(family(model).system(ForeignConfig(content, "config.json")))
        except UserError as error:
            problems.setdefault(model, [str(error)] * len(settings))
            continue
        differing = [key for key in {**settings, **reread} if settings.get(key) != reread.get(key)]
        if not differing:
            named = getattr(family(model), "ARCHITECTURES", {})
            return {**({"architectures": [named[model]]} if named else {}), **content}
        problems[model] = [
            f"system.{key}={settings.get(key)!r}, it has {reread.get(key)!r}" for key in differing
        ]
    closest = min(problems, key=lambda model: len(problems[model]))
    reasons = list(dict.fromkeys(problems[closest]))
    raise UserError(
        f"no model of transformers that is known here is this system; nearest is {closest!r}:"
        f" {few(reasons, between='; ')}"
    )


def with_defaults(system: Mapping[str, Any]) -> ConfigDict:
    """Returns the node of a system with the defaults that it leaves out."""
    node = from_dict(system)
    complete(ConfigNode(node, "system", import_object(TABLES["system"], Table).find(node.name)))
    return node


def canonical(system: Mapping[str, Any]) -> dict[str, Any]:
    """Returns, by dotted name and with defaults, the settings of a system that decide its
    parameters' shapes and what it computes from them without dropout, equal for nodes that mean the
    same; dropout, initialisation, kernel, scan and remat are left out.
    """
    node = to_dict(with_defaults(system))
    node.pop("initial", None)
    depth = node.get("decoder_layers") or node.get("layers")
    if depth == node.get("layers"):
        node.pop("decoder_layers", None)
    for slot in [name for name in node if name.endswith(("attention", "visibility"))]:
        if isinstance(node[slot], dict):
            of_encoder = slot.startswith(("encoder", "attention", "visibility"))
            nodes = layer_nodes(node if of_encoder else {**node, "layers": depth}, slot)
            if slot.endswith("attention"):
                nodes = [_attention(layer, node["width"]) for layer in nodes]
            alike = all(layer == nodes[0] for layer in nodes)
            node[slot] = nodes[0] if alike else {str(i): layer for i, layer in enumerate(nodes)}
    return {key: value for key, value in flat(node).items() if key.rpartition(".")[2] not in FREE}


def _attention(node: Mapping[str, Any], width: object) -> dict[str, Any]:
    """Returns a copy of a config node of attention in a system of this width: key heads and head
    width of the usual size become 0, and biases of all or no projections True or False.
    """
    usual, heads = dict(node), node.get("heads", 1)
    if usual.get("key_heads") == heads:
        usual["key_heads"] = 0
    if usual.get("head_width", 0) * heads == width:
        usual["head_width"] = 0
    if isinstance(usual.get("bias"), tuple):
        biased = set(usual["bias"])
        usual["bias"] = biased == _QKVO or (tuple(sorted(biased)) if biased else False)
    return usual
