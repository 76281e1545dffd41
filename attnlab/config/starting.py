"""The nodes of a config that say what weights training begins with, and which of them it changes."""

from __future__ import annotations

import dataclasses
from typing import Literal

from attnlab.config.schema import ABOVE_ZERO, RATE, Node, setting, whole


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pretrained(Node):
    """Weights of a model from elsewhere to begin with."""

    folder: str = setting(
        "a folder of transformers, with config.json and safetensors, or of a trained run; '':"
        " weights are drawn",
        "",
    )
    take: Literal["all", "matching"] = setting(
        "every weight must fit, or those are taken that fit by name and shape (heads of keys and"
        " values are averaged to fewer) and the others drawn; what happened to each is told",
        "all",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lora(Node):
    """Low-rank adaptation: matrices are trained by a product of two narrow ones that is added."""

    rank: int = setting(
        "of the products; 0: none, all parameters are trained", 0, within=whole(0, 2**16)
    )
    alpha: float = setting("the product counts alpha / rank", 16.0, within=ABOVE_ZERO)
    dropout: float = setting(
        "of the input of products, one mask for all tokens of a microbatch", 0.0, within=RATE
    )
    on: tuple[str, ...] = setting(
        "matrices whose path has one of these regular expressions get a product",
        ("w_query/kernel", "w_value/kernel"),
    )
    also: tuple[str, ...] = setting(
        "parameters whose path has one of these are trained beside the products", ()
    )
