"""The induction score of a circuit built by hand, of a shuffled one, and the sequences."""

from pathlib import Path

import numpy as np
import pytest

from attnlab.analysis.induction import induction_score, ordinary_ids, repeated_sequences
from attnlab.data.vocabulary import Vocabulary
from attnlab.errors import UserError
from tests.data.test_tokenizer import adopted, byte_level

LETTERS = "abcdefghijklmnopqrstuvwxyz"
OURS = Vocabulary.train([LETTERS], "char", 60, 1, reserved=2)


def causal_softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max(-1, keepdims=True)) * np.tri(scores.shape[-1])
    return weights / weights.sum(-1, keepdims=True)


@pytest.mark.quick
def test_a_circuit_scores_1_and_a_shuffled_one_chance() -> None:
    """A head attends to the previous token; one above it matches its token with what the first has
    written beside each key.
    """
    sequences, place = repeated_sequences(OURS, 12, 200, seed=0), np.arange(25)
    tokens = np.eye(OURS.size)[sequences]
    below = causal_softmax(20.0 * (place == place[:, None] - 1))
    above = causal_softmax(20.0 * tokens @ (below @ tokens).swapaxes(1, 2))
    assert induction_score(above).shape == (200,) and induction_score(above).min() > 0.99
    assert induction_score(below) < 0.01
    shuffled = np.random.default_rng(0).permuted(above, axis=-1)
    assert induction_score(shuffled).mean() == pytest.approx(1 / 25, abs=0.02)
    with pytest.raises(ValueError, match="two copies"):
        induction_score(above[:, :24, :24])


def test_sequences_are_bos_and_two_copies_of_different_ordinary_ids(tmp_path: Path) -> None:
    first, again = (repeated_sequences(OURS, 26, 3, seed=5) for _ in range(2))
    ids = [first[1, 0], *np.sort(first[1, 1:27])]
    assert "".join(OURS.tokens(ids)) == f"<s>{LETTERS}" and (first == again).all()
    assert (first[:, 1:27] == first[:, 27:]).all() and (first[0] != first[1]).any()
    with pytest.raises(UserError, match=r"length=27; this vocabulary allows 2 to 26"):
        repeated_sequences(OURS, 27, 3, seed=5)
    foreign = adopted(byte_level(tmp_path, vocab_size=300))  # fewer pieces; the first is special
    assert ordinary_ids(foreign).tolist() == [*range(1, foreign.tokens(range(300)).index(""))]
