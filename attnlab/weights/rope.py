"""Rotary positions in a `config.json`: `rope_theta` and `rope_scaling` as files before version 5 of
`transformers` have them, which it still reads, and `rope_parameters` as it writes them now.
"""

from collections.abc import Mapping
from typing import Any

from attnlab.errors import UserError, nearest
from attnlab.weights.foreign import ForeignConfig

THETA = 10000.0
FIELDS = {  # of a scaling: ours, and the key of theirs
    "linear": {"factor": "factor"},
    "yarn": {
        "factor": "factor",
        "length": "original_max_position_embeddings",
        "fast": "beta_fast",
        "slow": "beta_slow",
    },
    "llama3": {
        "factor": "factor",
        "length": "original_max_position_embeddings",
        "low": "low_freq_factor",
        "high": "high_freq_factor",
    },
}


def read(file: ForeignConfig, kind: str) -> dict[str, Any]:
    """Returns the config node of rotary positions that a `ForeignConfig`, the parsed `config.json`,
    describes for its layers of `kind`, "full_attention" or "sliding_attention"; raises `UserError`
    for a scheme that attnlab does not compute.
    """
    parameters = file.below("rope_parameters")
    if kind in parameters.content:  # one for each kind
        return _scheme(parameters.below(kind), file)
    if parameters.content:
        return _scheme(parameters, file)
    local = kind == "sliding_attention" and file.content.get("rope_local_base_freq")
    if local or (kind == "sliding_attention" and file.text("model_type") == "gemma3_text"):
        return _scheme(ForeignConfig({"rope_theta": local or THETA}, file.where), file)
    theta = file.number("rope_theta", 1e6 if file.text("model_type") == "gemma3_text" else THETA)
    scaling = file.below("rope_scaling")
    return _scheme(ForeignConfig({"rope_theta": theta, **scaling.content}, scaling.where), file)


def _scheme(keys: ForeignConfig, file: ForeignConfig) -> dict[str, Any]:
    """Returns the config node of rotary positions, with base and scaling, that `keys`, a part of
    the config `file`, describes; raises `UserError` for a scheme that attnlab does not compute.
    """
    name = keys.text("rope_type", keys.text("type", "default"))
    keys.only(partial_rotary_factor=1.0, truncate=True, mscale=None, mscale_all_dim=None)
    file.only(partial_rotary_factor=1.0)
    scheme = {"name": "rope", "layout": "half", "base": float(keys.number("rope_theta", THETA))}
    if name == "default":
        return {**scheme, "scaling": {"name": "none"}}
    if name not in FIELDS:
        raise UserError(f"{keys.where}: rope_type={name!r}; {nearest(name, ['default', *FIELDS])}")
    keys.only(attention_factor=None)
    scaling: dict[str, Any] = {"name": name, "factor": float(keys.number("factor"))}
    for ours, key in FIELDS[name].items():
        if ours == "length":
            trained = file.count("max_position_embeddings", 2048)
            scaling[ours] = keys.count(key, trained)
        elif ours != "factor":
            default = {"beta_fast": 32.0, "beta_slow": 1.0}.get(key)
            scaling[ours] = float(keys.number(key, default))
    return {**scheme, "scaling": scaling}


def keys_of(positions: Mapping[str, Any], local: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Returns the keys "rope_theta" and "rope_scaling" of a `config.json` for a config node of
    rotary positions, and, for the model type "gemma3_text" (`kind`), the base of the positions node
    `local` of local layers.
    """
    scaling = positions["scaling"]
    fields = FIELDS.get(scaling["name"], {})
    scheme = {"rope_type": scaling["name"], **{key: scaling[ours] for ours, key in fields.items()}}
    keys: dict[str, Any] = {
        "rope_theta": positions["base"],
        "rope_scaling": None if scaling["name"] == "none" else scheme,
    }
    if kind == "gemma3_text":
        keys["rope_local_base_freq"] = local["base"]
    return keys
