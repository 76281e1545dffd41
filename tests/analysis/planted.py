"""A language model whose first head is a previous-token head, by hand, and a small one drawn at random."""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from attnlab import config as configs
from attnlab.analysis.passes import Passes, filled
from attnlab.attention.mechanisms.multihead import MultiHead
from attnlab.attention.view import CAUSAL
from attnlab.systems.protocol import LanguageModel
from attnlab.tasks.language_modelling import LanguageModelling
from tests.tasks.tiny import noisy
from tests.tasks.tiny_language import APART, SHARED, SIZES

D = 12  # of a head: at least the vocabulary, and the tokens of a text


class Copier(LanguageModel):
    """One layer of two heads on a one-hot token beside a one-hot position; logits are the token's part."""

    def setup(self) -> None:
        self.embed = nn.Embed(self.vocabulary, D)
        self.attention = MultiHead(width=2 * D, heads=2)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        at = jnp.broadcast_to(jnp.eye(tokens.shape[1], D), (*tokens.shape, D))
        x = jnp.concatenate([self.embed(tokens), at], axis=-1)
        return self.attention.mix(x, CAUSAL)[0][..., : self.vocabulary]


class Repeater(LanguageModel):
    """One layer of attention that a pass goes through twice, with residual sums."""

    def setup(self) -> None:
        self.embed = nn.Embed(self.vocabulary, self.vocabulary)
        self.attention = MultiHead(width=self.vocabulary, heads=1)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = self.embed(tokens)
        for _ in range(2):
            x = x + self.attention.mix(x, CAUSAL)[0]
        return x


def loaded(name: str, *more: str) -> LanguageModelling:
    config = configs.load(f"configs/language_modelling.py:{name}", [*SHARED[1:], *APART, *more])
    return LanguageModelling.load(config, None, tuple(SIZES))


@functools.cache
def copier() -> Passes:
    """Head 0 reads the token before, head 1 the token itself; both hand it on, head 0 alone to the logits."""
    task = loaded("lstm", "system=tests.analysis.planted:Copier", "training.output_bias=zeros")
    params: Any = jax.tree.map(lambda x: np.zeros(x.shape, np.float32), task.shapes)
    size, eye = task.system.vocabulary, np.eye(D, dtype=np.float32)
    params["embed"]["embedding"] = eye[:size]
    names = ("w_query", "w_key", "w_value", "out")
    kernels = {name: params["attention"][name]["kernel"] for name in names}
    for head, back in enumerate((1, 0)):
        part = slice(head * D, (head + 1) * D)
        kernels["w_query"][D:, part] = 99 * np.eye(D, k=-back)
        kernels["w_key"][D:, part] = kernels["w_value"][:D, part] = eye
    kernels["out"][:D, :D] = 5 * eye
    return Passes(task, params)


@functools.cache
def decoder() -> Passes:
    """Two layers of two heads; the second head of the first layer is handed on to nobody."""
    settings = ("width=8", "layers=2", "hidden=12", "dropout=0.0", "attention.heads=2")
    task = loaded("decoder", *(f"system.{setting}" for setting in settings))
    params = jax.device_get(noisy(task, 0.7))
    params["layer_0"]["attention"]["out"]["kernel"][4:] = 0
    return Passes(task, params)


def batches(model: Passes) -> list[Any]:
    """The test split in batches of one width."""
    return list(model.task.split_batches("test"))[-1:]


def batch(model: Passes) -> Any:
    """Its rows."""
    return filled(batches(model))[0][1]
