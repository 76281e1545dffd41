"""Rotary positions in a `config.json`: `rope_theta` and `rope_scaling` as files before version 5 of
`transformers` have them, which it still reads, and `rope_parameters` as it writes them now.
"""

from __future__ import annotations

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
    """Reads from a config the node of rotary positions of the layers of a kind, "full_attention" or
    "sliding_attention".
    """
    given = file.below("rope_parameters")
    if kind in given.content:  # one for each kind
        return _scheme(given.below(kind), file)
    if given.content:
        return _scheme(given, file)
    local = kind == "sliding_attention" and file.content.get("rope_local_base_freq")
    if local or (kind == "sliding_attention" and file.text("model_type") == "gemma3_text"):
        return _scheme(ForeignConfig({"rope_theta": local or THETA}, file.where), file)
    theta = file.number("rope_theta", 1e6 if file.text("model_type") == "gemma3_text" else THETA)
    scaling = file.below("rope_scaling")
    return _scheme(ForeignConfig({"rope_theta": theta, **scaling.content}, scaling.where), file)


def _scheme(given: ForeignConfig, file: ForeignConfig) -> dict[str, Any]:
    """Returns the node of rotary positions, with base and scaling, that these keys describe; raises
    `UserError` for a scheme that is not computed here.
    """
    name = given.text("rope_type", given.text("type", "default"))
    given.only(partial_rotary_factor=1.0, truncate=True, mscale=None, mscale_all_dim=None)
    file.only(partial_rotary_factor=1.0)
    scheme = {"name": "rope", "layout": "half", "base": float(given.number("rope_theta", THETA))}
    if name == "default":
        return {**scheme, "scaling": {"name": "none"}}
    if name not in FIELDS:
        raise UserError(f"{given.where}: rope_type={name!r}; {nearest(name, ['default', *FIELDS])}")
    given.only(attention_factor=None)
    scaling: dict[str, Any] = {"name": name, "factor": float(given.number("factor"))}
    for ours, theirs in FIELDS[name].items():
        if ours == "length":
            trained = file.count("max_position_embeddings", 2048)
            scaling[ours] = given.count(theirs, trained)
        elif ours != "factor":
            given_by_default = {"beta_fast": 32.0, "beta_slow": 1.0}.get(theirs)
            scaling[ours] = float(given.number(theirs, given_by_default))
    return {**scheme, "scaling": scaling}


def written(positions: Mapping[str, Any], local: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Returns the keys of a config for rotary positions (`rope_theta`, `rope_scaling`), in Gemma 3
    also the base of local layers.
    """
    scaling = positions["scaling"]
    fields = FIELDS.get(scaling["name"], {})
    keys: dict[str, Any] = {
        "rope_theta": positions["base"],
        "rope_scaling": None
        if scaling["name"] == "none"
        else {
            "rope_type": scaling["name"],
            **{theirs: scaling[ours] for ours, theirs in fields.items()},
        },
    }
    if kind == "gemma3_text":
        keys["rope_local_base_freq"] = local["base"]
    return keys
