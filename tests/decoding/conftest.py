"""Toy step functions whose every probability is known to NumPy."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.decoding.rules import FREE, Rules
from attnlab.decoding.sampling import Choose, best_token, group, sampler, start_run, unroll
from attnlab.decoding.steps import Hypotheses, StepFn, length_limits, repeat_rows

PAD, BOS, EOS = 0, 1, 2
ROOM = 8


class PrefixModel:
    """Logits and weights are a random function of sentence and whole prefix; the state is that
    prefix, and a shared counter.

    A state that does not belong to its hypothesis therefore gives other numbers. PAD and BOS have
    the largest logits of all, so that a search that allows them shows.
    """

    vocabulary, source = 6, 3

    def __init__(self, eos: float = 0.0) -> None:
        rng = np.random.default_rng(3)
        self.logits = rng.normal(size=(1009, self.vocabulary)).astype(np.float32) * 1.5
        self.logits[:, [PAD, BOS]] += 9
        self.logits[:, EOS] += eos
        raw = rng.normal(size=(1009, self.source))
        self.weights = (np.exp(2 * raw) / np.exp(2 * raw).sum(1, keepdims=True)).astype(np.float32)

    def begin(self, sentences: Sequence[int]) -> tuple[Any, Any]:
        state = {"prefix": np.zeros((len(sentences), ROOM + 1), np.int32), "t": np.int32(0)}
        return state, {"sentence": np.asarray(sentences, np.int32)}

    def step(self, state: Any, memory: Any, tokens: jax.Array) -> tuple[jax.Array, Any, jax.Array]:
        prefix = state["prefix"].at[:, state["t"]].set(tokens)
        powers = jnp.asarray([7**j % 1009 for j in range(ROOM + 1)])
        row = (jnp.sum(prefix * powers, axis=1) + 131 * memory["sentence"]) % 1009
        state = {"prefix": prefix, "t": state["t"] + 1}
        return jnp.asarray(self.logits)[row], state, jnp.asarray(self.weights)[row]

    def known(self, sentence: int, prefix: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Log-probabilities [V] and weights [S] after `prefix`, in NumPy; PAD and BOS are never
        chosen.
        """
        place = sum(int(token) * (7**j % 1009) for j, token in enumerate([BOS, *prefix]))
        row = (place + 131 * sentence) % 1009
        logits = self.logits[row].astype(np.float64)
        log_probs = logits - np.log(np.exp(logits).sum())
        log_probs[[PAD, BOS]] = -np.inf
        return log_probs, self.weights[row].astype(np.float64)

    def rescored(self, sentence: int, tokens: Sequence[int]) -> tuple[float, np.ndarray]:
        """log P of a token sequence by teacher forcing, and the weights [l,S] of its tokens."""
        steps = [self.known(sentence, tokens[:t]) for t in range(len(tokens))]
        log_probs, weights = zip(*steps, strict=True)
        return sum(row[y] for row, y in zip(log_probs, tokens, strict=True)), np.array(weights)

    def greedy(self, sentence: int, limit: int, least: int = 0) -> list[int]:
        """The greedy search of at most `most` tokens, with no EOS among the first `least`."""
        tokens: list[int] = []
        while len(tokens) < limit and EOS not in tokens:
            log_probs = self.known(sentence, tokens)[0]
            log_probs[EOS] = log_probs[EOS] if len(tokens) >= least else -np.inf
            tokens.append(int(np.argmax(log_probs)))
        return tokens


class MarkovModel:
    """The next token depends on the last one: `table` [V,V] of probabilities; no weights."""

    def __init__(self, table: np.ndarray) -> None:
        self.table = np.asarray(table, np.float32)

    def begin(self, sentences: Sequence[int]) -> tuple[Any, Any]:
        return (), {"table": np.tile(self.table, (len(sentences), 1, 1))}

    @staticmethod
    def step(state: Any, memory: Any, tokens: jax.Array) -> tuple[jax.Array, Any, None]:
        chances = memory["table"][jnp.arange(tokens.shape[0]), tokens]
        return jnp.log(jnp.maximum(chances, 1e-30)), state, None


def unrolled(
    step: StepFn,
    state: Any,
    memory: Any,
    *,
    rows: int,
    max_length: int,
    choose: Choose = best_token,
    n: int = 1,
    rules: Rules = FREE,
    limits: jax.Array | None = None,
    alignment: bool = False,
) -> Hypotheses:
    """The hypotheses [rows,n] of greedy search, or of another choice of tokens."""
    state, memory = repeat_rows((state, memory), rows, n)
    extra: dict[str, Any] = {"alignment": alignment, "special": rules.special}
    began = start_run(step, state, memory, rows=rows * n, max_length=max_length, **extra)
    limits = jnp.repeat(length_limits(limits, rows, max_length), n)
    ended = unroll(step, began, memory, choose, limits, rules=rules.repeat(n))
    return group(ended, rows, n, rules.special)


def sample(*model: Any, key: jax.Array, rows: int, n: int = 1, **extra: Any) -> Hypotheses:
    """`n` samples of every sentence; of one key, or of one for each sentence."""
    keys = jax.random.split(key, rows) if jnp.ndim(key) == 0 else key
    filters = {name: extra.pop(name) for name in ("temperature", "top_k", "top_p") if name in extra}
    return unrolled(*model, rows=rows, n=n, choose=sampler(keys, n, **filters), **extra)


@pytest.fixture
def run() -> Callable[..., Hypotheses]:
    """`run(method, model, sentences, **how)`: a decoding function compiled, run and brought to
    NumPy.
    """

    def compiled(method: Any, model: Any, sentences: Sequence[int], **extra: Any) -> Hypotheses:
        program = jax.jit(lambda *begun: method(model.step, *begun, rows=len(sentences), **extra))
        return jax.device_get(program(*model.begin(sentences)))

    return compiled


@pytest.fixture
def prefix_model() -> PrefixModel:
    return PrefixModel()


@pytest.fixture
def endless_model() -> PrefixModel:
    """A prefix model that (almost) never ends."""
    return PrefixModel(eos=-60.0)
