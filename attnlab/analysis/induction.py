"""The induction score: does a head look for what came after the last time that it saw this token?

A sequence BOS r_1 ... r_n r_1 ... r_n of random tokens has no statistics but its repetition. From
the token r_k in the second copy, at position n + k, an induction head looks to what followed r_k in
the first, at position k + 1. Axis letters: N sequences, T = 2n + 1 tokens of one.

Source: C. Olsson et al., "In-context Learning and Induction Heads", 2022.
"""

import dataclasses

import numpy as np

from attnlab.data.vocabulary import Vocabulary
from attnlab.errors import UserError


def ordinary_ids(vocabulary: Vocabulary) -> np.ndarray:
    """Returns an int32 array of the ids of a vocabulary that have a piece that is not special."""
    special = [ids for ids in dataclasses.astuple(vocabulary.special) if ids is not None]
    content = vocabulary.to_json()
    added = content.get("content", content).get("added_tokens") or ()
    others = {*np.hstack(special), *(token["id"] for token in added if token.get("special"))}
    pieces = vocabulary.tokens(range(vocabulary.size))
    return np.array([n for n, piece in enumerate(pieces) if piece and n not in others], np.int32)


def repeated_sequences(vocabulary: Vocabulary, length: int, count: int, seed: int) -> np.ndarray:
    """Draws `count` sequences of ids BOS r_1 ... r_n r_1 ... r_n, int32 [N,2n+1], each of n =
    `length` different ordinary ids of the vocabulary; raises `UserError` if n is below 2 or there
    are too few ids.

    Args:
      vocabulary: of the model.
      length: n.
      count: N.
      seed: of the draws; equal seeds give equal sequences.

    Raises:
      UserError: the vocabulary has fewer than n ordinary ids, or n < 2.
    """
    ids, rng = ordinary_ids(vocabulary), np.random.default_rng(seed)
    if not 2 <= length <= len(ids):
        raise UserError(f"induction: length={length}; this vocabulary allows 2 to {len(ids)}")
    drawn = np.stack([rng.choice(ids, length, replace=False) for _ in range(count)])
    begin = vocabulary.special.bos
    return np.pad(np.tile(drawn, 2), ((0, 0), (1, 0)), constant_values=begin)


def induction_score(weights: np.ndarray) -> np.ndarray:
    """Returns for maps [...,T,T] over BOS and two copies of n tokens the mean weight [...] that a
    token of the second copy gives to the token after its first occurrence, A[q, q - n + 1]; raises
    `ValueError` for another shape.

    The weights are taken as they are, also those below 0. Above 0.4 a head is clearly an induction
    head; one that looks anywhere has about 1/T.
    """
    weights = np.asarray(weights, np.float64)
    length, odd = divmod(weights.shape[-1], 2)
    if not odd or weights.shape[-2:] != (2 * length + 1,) * 2:
        raise ValueError(f"maps {weights.shape} are not over BOS and two copies")
    query = np.arange(length + 1, 2 * length + 1)
    return weights[..., query, query - length + 1].mean(-1)
