"""Language modelling small enough for a test: a plain recurrence on made-up words, and the same in
NumPy, token by token.
"""

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from attnlab import config as configs
from attnlab.layers.dense import Dense, Dropout
from attnlab.systems.protocol import LanguageModel
from attnlab.tasks.language_modelling import LanguageModelling
from tests.tasks.tiny import noisy

SIZES = {"train": 40, "valid": 7, "test": 5}
SHARED = [
    *("system=tests.tasks.tiny_language:Plain", "data=tests.tasks.tiny_language:Letters"),
    *("vocabulary.kind=char", "batch.size=8"),
]
JOINED = ["batch.texts=joined", "batch.max_length=5", "decoding.batch=1"]
APART = ["batch.texts=apart", "batch.max_length=9", "decoding.batch=4"]


class Plain(LanguageModel):
    """h' = tanh(x + h U), logits h' W_o + b; beside h it counts what it has read.

    Attributes:
      width: of x and h.
      dropout: rate on h before the output.
    """

    width: int = 6
    dropout: float = 0.0

    def setup(self) -> None:
        self.embed = nn.Embed(self.vocabulary, self.width)
        self.past = self.param("past", nn.initializers.normal(0.5), (self.width, self.width))
        self.out = Dense(self.vocabulary)
        self.drop = Dropout(self.dropout)

    def start(self, rows: int, room: int) -> Any:
        """See `LanguageModel.start`."""
        return {"h": jnp.zeros((rows, self.width)), "count": jnp.zeros(rows, jnp.int32)}

    def read(self, state: Any, tokens: jax.Array) -> tuple[jax.Array, Any]:
        """See `LanguageModel.read`."""
        valid = self.real(tokens)

        def step(h: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            x, real = inputs
            h = jnp.where(real[:, None], jnp.tanh(x + h @ self.past), h)
            return h, h

        h, outputs = jax.lax.scan(
            step, state["h"], (self.embed(tokens).swapaxes(0, 1), valid.swapaxes(0, 1))
        )
        return self.out(self.drop(outputs.swapaxes(0, 1))), {
            "h": h,
            "count": state["count"] + valid.sum(axis=1, dtype=jnp.int32),
        }


@dataclasses.dataclass(frozen=True)
class Letters:
    """Words of one to eight letters, each mostly the one after the letter before it; the first text
    of a split is blank.
    """

    def texts(self, split: str) -> list[str]:
        rng = np.random.default_rng(list(SIZES).index(split))
        return ["", *(self._text(rng) for _ in range(SIZES[split] - 1))]

    def _text(self, rng: Any) -> str:
        letters = [rng.integers(5)]
        for _ in range(rng.integers(8)):
            letters.append((letters[-1] + 1) % 5 if rng.random() < 0.8 else rng.integers(5))
        return "".join("abcde"[letter] for letter in letters)


def load(*overrides: str) -> LanguageModelling:
    """The task of `configs/language_modelling.py:lstm`, shrunk, with overrides "a.b=value" on
    top.
    """
    config = configs.load("configs/language_modelling.py:lstm", [*SHARED, *overrides])
    return LanguageModelling.load(config, None, tuple(SIZES))


def passed(params: Any, tokens: Any) -> tuple[np.ndarray, np.ndarray]:
    """log p [T,V] after each of the tokens of one text, and the last h, of `Plain` in float64."""
    weights = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), jax.device_get(params))
    h, actual = np.zeros(len(weights["past"])), []
    for token in tokens:
        h = np.tanh(weights["embed"]["embedding"][token] + h @ weights["past"])
        logits = h @ weights["out"]["kernel"] + weights["out"]["bias"]
        actual.append(logits - logits.max() - np.log(np.exp(logits - logits.max()).sum()))
    return np.array(actual), h


def drawn(task: LanguageModelling) -> Any:
    """Parameters far from uniform."""
    return noisy(task, 0.7)


@functools.cache
def joined() -> tuple[LanguageModelling, Any]:
    """A task that reads its texts as one stream, and parameters."""
    task = load(*JOINED)
    return task, drawn(task)


@functools.cache
def apart() -> tuple[LanguageModelling, Any]:
    """A task that reads its texts apart, and parameters."""
    task = load(*APART)
    return task, drawn(task)
