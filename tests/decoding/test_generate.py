"""The driver over batches returns every sentence in its place, with few programs, within limits."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.decoding.generate import Decoder, Functions
from attnlab.decoding.settings import validate

EOS = 2
SENTENCES = [[5, 6, EOS], [7, EOS], [6, 5, 7, EOS], [EOS], [5, 5, EOS]]
VOCABULARY = 9


class Copier:
    """Copies the source with the probability its parameter gives, looking at the next source
    position at every step.
    """

    def __init__(self) -> None:
        self.traces = 0

    def __call__(self, params: dict[str, Any]) -> Functions:
        self.traces += 1

        def step(state: Any, memory: Any, tokens: jax.Array) -> tuple[jax.Array, Any, jax.Array]:
            place, width = state["place"], memory["source"].shape[1]
            at_place = jnp.minimum(place, width - 1)[:, None]
            expected = jnp.take_along_axis(memory["source"], at_place, axis=1)[:, 0]
            chosen = jax.nn.one_hot(jnp.where(expected == 0, EOS, expected), VOCABULARY)
            following = {"place": place + 1, "t": state["t"] + 1}
            return chosen * params["sharpness"], following, jax.nn.one_hot(place, width)

        def start(memory: Any, length: int) -> Any:
            return {"place": jnp.zeros(memory["source"].shape[0], jnp.int32), "t": jnp.int32(0)}

        return Functions(encode=lambda source: {"source": source}, start=start, step=step)


def batches(groups: list[list[int]], size: int, width: int) -> list[Any]:
    result = []
    for group in groups:
        source = np.zeros((size, width), np.int32)
        for row, index in enumerate(group):
            source[row, : len(SENTENCES[index])] = SENTENCES[index]
        result.append((group + [-1] * (size - len(group)), {"source": source}))
    return result


def decoded(node: dict[str, Any], *batching: Any, sharpness: float = 30.0, **options: Any) -> Any:
    """The hypotheses of every sentence, of batches as `batches` makes them."""
    params = {"sharpness": sharpness}
    return Decoder(Copier(), validate(node), **options)(params, batches(*batching))


def tokens(actual: Any) -> list[list[int]]:
    """The best hypothesis of every sentence."""
    return [hypotheses[0].tokens.tolist() for hypotheses in actual]


@pytest.mark.quick
@pytest.mark.parametrize("method", ["greedy", "beam", "sample"])
def test_every_sentence_in_its_place(method: str) -> None:
    actual = decoded({"method": method}, [[3, 0, 4], [2, 1]], 3, 4, alignment=True)
    assert tokens(actual) == SENTENCES
    for hypotheses, sentence in zip(actual, SENTENCES, strict=True):
        (only,) = hypotheses
        np.testing.assert_array_equal(only.alignment, np.eye(len(sentence)))
        assert only.score == pytest.approx(0.0, abs=1e-4)


def test_one_program_for_each_shape_and_parameters_are_arguments() -> None:
    """New parameters take effect without a new program; a new shape needs one."""
    bind = Copier()
    decoder = Decoder(bind, validate({"n_best": 2}))
    sharp = decoder({"sharpness": jnp.float32(30.0)}, batches([[0, 1, 2], [3, 4]], 3, 4))
    assert bind.traces == 1
    blunt = decoder({"sharpness": jnp.float32(3.0)}, batches([[0, 1, 2], [3, 4]], 3, 4))
    assert bind.traces == 1
    assert tokens(sharp) == tokens(blunt) == SENTENCES
    assert all(b[0].log_prob < s[0].log_prob - 0.1 for b, s in zip(blunt, sharp, strict=True))
    assert all(len(two) == 2 and two[0].score >= two[1].score for two in blunt)
    decoder({"sharpness": jnp.float32(3.0)}, batches([[0, 1], [2, 3], [4]], 2, 6))
    assert bind.traces == 2


NODES = [
    pytest.param({"method": "beam", "coverage": 0.2, "n_best": 3}, marks=pytest.mark.full),
    {"method": "sample", "n_best": 3, "seed": 4},
]


@pytest.mark.parametrize("node", NODES)
def test_batching_changes_nothing(node: dict[str, Any]) -> None:
    """Another split of the sentences over batches, other neighbours: the same hypotheses,
    samples too.
    """
    single = decoded(node, [[0, 1, 2, 3, 4]], 5, 4, sharpness=2.0)
    two = decoded(node, [[4, 2], [1, 3], [0]], 2, 4, sharpness=2.0)
    for first, second in zip(single, two, strict=True):
        assert [h.tokens.tolist() for h in first] == [h.tokens.tolist() for h in second]
        np.testing.assert_allclose([h.score for h in first], [h.score for h in second], rtol=1e-5)


def test_equal_texts_have_samples_of_their_own() -> None:
    settings = validate({"method": "sample"})
    many = np.tile(np.array([[5, 5, 5, 5, EOS]], np.int32), (8, 1))
    batch = [(np.arange(8), {"source": many})]
    actual = Decoder(Copier(), settings)({"sharpness": 1.0}, batch)
    assert len({tuple(best[0].tokens.tolist()) for best in actual}) > 1


def test_each_sentence_has_its_own_limit() -> None:
    node = {"method": "greedy", "max_ratio": 0.5, "max_extra": 1}
    actual = tokens(decoded(node, [[0, 1, 2, 3, 4]], 5, 4))
    assert actual == [[5, 6, EOS], [7, EOS], [6, 5, 7], [EOS], [5, 5, EOS]]


def test_missing_or_doubled_sentences_are_refused() -> None:
    for groups in ([[0, 2]], [[0, 1], [1]]):
        with pytest.raises(ValueError, match="do not number the sentences"):
            decoded({"method": "greedy"}, groups, 2, 4)
