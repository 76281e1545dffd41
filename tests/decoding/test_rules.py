"""Rules on what may be written next equal plain loops over lists, in every method."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.data.vocabulary import OURS, Special
from attnlab.decoding.beam import beam_search
from attnlab.decoding.rules import Rules
from tests.decoding.conftest import sample
from tests.decoding.conftest import unrolled as greedy

PAD, BOS, EOS = 0, 1, 2
LENGTH = 12


def ruled(
    logits: np.ndarray, past: Sequence[int], penalty: float = 1.0, n: int = 0, least: int = 0
) -> np.ndarray:
    """Logits [V] after the tokens `past`, by the words of the module's docstring."""
    actual = logits.astype(np.float64).copy()
    written = len(past)
    if written < least:
        actual[EOS] = -np.inf
    for token in set(past):
        actual[token] = actual[token] / penalty if actual[token] > 0 else actual[token] * penalty
    grams = {tuple(past[i : i + n]) for i in range(len(past) - n + 1)} if n else set()
    for token in range(len(logits)):
        if token != EOS and n and (*past[len(past) - n + 1 :], token) in grams:
            actual[token] = -np.inf
    return actual


@pytest.mark.quick
@pytest.mark.parametrize("n", [0, 1, 2, 3])
@pytest.mark.parametrize("penalty", [1.0, 1.7])
def test_equal_a_plain_loop(n: int, penalty: float) -> None:
    """Rows with beginnings of 0 to 5 tokens, at every step; few different tokens, so that all
    repeat.
    """
    rng = np.random.default_rng(1)
    lengths, vocabulary = [0, 1, 3, 5], 6
    prompts = [rng.integers(3, vocabulary, size) for size in lengths]
    prompt = np.array([[*ids, *[PAD] * (5 - len(ids))] for ids in prompts], np.int32)
    tokens = rng.integers(3, vocabulary, (len(lengths), LENGTH)).astype(np.int32)
    logits = rng.normal(size=(len(lengths), vocabulary)).astype(np.float32)
    rules = Rules(repetition_penalty=penalty, no_repeat_ngram=n, prompt=jnp.asarray(prompt))
    apply = jax.jit(lambda *now: rules(*now))
    for t in range(LENGTH):
        later = np.where(np.arange(LENGTH) < t, tokens, PAD)
        actual = np.asarray(apply(jnp.asarray(logits), jnp.asarray(later), jnp.int32(t)))
        for row, ids in enumerate(prompts):
            past = [*ids.tolist(), *tokens[row, :t].tolist()]
            expected = ruled(logits[row], past, penalty, n)
            np.testing.assert_allclose(actual[row], expected, rtol=1e-6, err_msg=f"{t} {row}")


def test_the_end_is_what_is_left() -> None:
    """Every token has occurred, and the end is held: it is written all the same."""
    rules = Rules(min_length=9, no_repeat_ngram=1)
    tokens = jnp.array([[3, 4, PAD]])
    logits = jnp.array([[-jnp.inf, -jnp.inf, 0.5, 1.0, 2.0]])
    best = jax.jit(lambda t: rules(logits, tokens, t).argmax())
    assert (best(2), best(1)) == (EOS, 4)


@pytest.mark.parametrize(
    ("prompt", "special", "forbidden"),
    [([EOS, 3], OURS, 3), ([1, 4], Special(pad=4, bos=3, eos=0, unk=None), 1)],
)
def test_ends_and_padding_are_no_tokens_that_have_occurred(
    prompt: list[int], special: Special, forbidden: int
) -> None:
    """A stream begins with the end of the text before, which may be written all the same; a
    vocabulary has its padding at the end.
    """
    rules = Rules(no_repeat_ngram=1, prompt=jnp.array([prompt]), special=special)
    written = jnp.full((1, 3), special.pad)
    actual = np.asarray(jax.jit(lambda t: rules(jnp.zeros((1, 5)), written, t))(0))
    assert np.flatnonzero(~np.isfinite(actual[0])).tolist() == [forbidden]


@pytest.mark.parametrize("method", ["greedy", "beam", "sample"])
def test_no_method_repeats(run: Any, endless_model: Any, method: str) -> None:
    """No bigram twice in what any method writes, while without the rule some are; probabilities
    stay the model's.
    """
    sentences = [0, 1, 2, 3]
    options: dict[str, Any] = {"max_length": 8}
    search: Any = {"greedy": greedy, "beam": beam_search, "sample": sample}[method]
    options |= {"beam": {"beam": 3}, "sample": {"key": jax.random.key(0), "n": 2}}.get(method, {})

    def repeats(tokens: np.ndarray) -> int:
        pairs = [tuple(tokens[i : i + 2]) for i in range(len(tokens) - 1)]
        return len(pairs) - len(set(pairs))

    held = run(search, endless_model, sentences, rules=Rules(no_repeat_ngram=2), **options)
    if method == "greedy":
        free = run(search, endless_model, sentences, **options)
        assert sum(repeats(tokens) for tokens in np.asarray(free.tokens[:, 0])) > 0
    for row, sentence in enumerate(sentences):
        tokens = np.asarray(held.tokens[row, 0])[: held.lengths[row, 0]]
        assert repeats(tokens) == 0
        log_prob = endless_model.rescored(sentence, tokens.tolist())[0]
        assert held.log_probs[row, 0] == pytest.approx(log_prob, abs=1e-3)
