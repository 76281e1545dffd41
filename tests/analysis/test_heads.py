"""Statistics of heads against loops over their definitions, and heads built by hand; the induction
score of a circuit built by hand, of a shuffled one, and the sequences.
"""

import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlab.analysis.heads import (
    HeadStatistics,
    induction_score,
    is_delimiter,
    mass_within,
    ordinary_ids,
    repeated_sequences,
    save_records,
    summary,
)
from attnlab.data.vocabulary import Vocabulary
from attnlab.errors import UserError
from tests.data.test_tokenizer import adopted, byte_level

TOKENS = ["<s>", "▁the", "▁cat", ",", "▁the", "▁the", "▁sat", ".", "▁the", "[SEP]"]
MARKS, PATTERNS = {0, 3, 7, 9}, "sink previous next duplicate induction delimiter rare"
SEEN = {"▁the": 9, "▁cat": 3, ",": 1, "▁sat": 3}
T, ALL, LOWER, SHORT = 10, np.full((10, 10), True), np.tri(10) > 0, np.arange(10) < 7
CASES = {"all": ALL, "causal": LOWER, "other text": ALL[:4]}
GIVEN = {"padded": SHORT & SHORT[:, None], "window": np.tri(T, k=-3) < LOWER}
RANDOM = np.random.default_rng(0).dirichlet(np.full(T, 0.5), size=T)


def by_loops(maps: Any, readers: list[str], allowed: Any, itself: bool) -> dict[str, float]:
    """The mean of every statistic of one head, query by query."""
    rows, tops = defaultdict(list), Counter[int]()
    for i, reader in enumerate(readers):
        if not (p := {j: maps[i, j] / sum(maps[i]) for j in range(T) if allowed[i, j]}):
            continue
        top, at = max(p, key=lambda j: p[j]), {i} if itself else set()
        rows["confidence"].append(p[top])
        rows["distance"].append(sum(p[j] * abs(i - j) for j in p) if itself else math.nan)
        if len(p) > 1:
            rows["entropy"].append(-sum(x * math.log(x) for x in p.values() if x))
            rows["normalised_entropy"].append(rows["entropy"][-1] / math.log(len(p)))
            tops[top - i] += 1
        equal = {j for j in range(i if itself else 0) if TOKENS[j] == TOKENS[i]}
        words = {j: SEEN.get(TOKENS[j], 0) for j in p.keys() - MARKS}
        rare = {j for j in words if words[j] == min(words.values())}
        fits = {0} - at, {j - 1 for j in at}, {j + 1 for j in at}, equal, {j + 1 for j in equal}
        marks = set() if is_delimiter(reader) else MARKS
        for name, targets in zip(PATTERNS.split(), (*fits, marks, rare), strict=True):
            if keys := p.keys() & targets:
                rows[f"{name}_mass"].append(sum(p[j] for j in keys))
                rows[f"{name}_argmax"].append(top in keys)
                rows[f"{name}_chance"].append(len(keys) / len(p))
    best = max(tops, key=lambda offset: tops[offset])
    offsets = {"best_offset": best, "best_offset_share": tops[best] / tops.total()}
    return {name: float(np.mean(x)) for name, x in rows.items()} | (offsets if itself else {})


@pytest.mark.quick
@pytest.mark.parametrize("case", [*CASES, *GIVEN])
def test_every_column_is_what_a_loop_over_its_definition_gives(case: str) -> None:
    queries = ["a", ".", "▁cat", "[SEP]"] if case == "other text" else None
    allowed, readers = {**CASES, **GIVEN}[case], queries or TOKENS
    maps = RANDOM[::-1][: len(readers)] * allowed
    expected = by_loops(maps, readers, allowed, queries is None)
    statistics = HeadStatistics(frequencies=SEEN)
    statistics.add("0", np.stack([maps, -2 * maps]), TOKENS, queries, GIVEN.get(case), "k")
    plain, signed = statistics.records()
    assert [plain.pop(name) for name in ("map", "kind", "head")] == ["0", "k", 0]
    assert plain.pop("queries") == allowed.any(-1).sum() and len(expected) >= 13
    for name, value in plain.items():
        assert value == pytest.approx(expected.get(name, math.nan), nan_ok=True), name
        size = math.nan if name.endswith("entropy") or name == "confidence" else value
        assert signed[name] == pytest.approx(size, nan_ok=True), name


def test_heads_built_by_hand() -> None:
    statistics = HeadStatistics(frequencies=SEEN)
    statistics.add("previous", np.eye(T)[None, [0, *range(T - 1)]], TOKENS)
    statistics.add("uniform", np.full((1, T, T), 1 / T), TOKENS)
    head, uniform = statistics.records()
    assert head["previous_mass"] == head["previous_argmax"] == head["best_offset_share"] == 1
    assert (head["best_offset"], head["entropy"], head["confidence"]) == (-1, 0, 1)
    assert (uniform["normalised_entropy"], uniform["rare_chance"]) == pytest.approx((1, 2 / T))
    for name in PATTERNS.split():
        assert uniform[f"{name}_mass"] == pytest.approx(uniform[f"{name}_chance"])


def test_texts_are_pooled_by_their_queries_and_written(tmp_path: Path) -> None:
    statistics = HeadStatistics()
    for name, length in (("long", 10), ("short", 7), ("both", 10), ("both", 7)):
        statistics.add(name, RANDOM[None, :length, :length], TOKENS[:length])
    long, short, both = records = statistics.records()
    assert both["queries"] == statistics.offsets["both"][0].total() == 17
    total = 10 * long["distance"] + 7 * short["distance"]
    assert both["distance"] == pytest.approx(total / 17) and math.isnan(both["rare_mass"])
    assert summary(records, "queries") == {"queries_mean": 34 / 3, "queries_max": 17}
    save_records(tmp_path / "heads.csv", records)
    rows = [both, *(record.values() for record in records)]
    text = "".join(",".join(map(str, row)) + "\n" for row in rows)
    assert (tmp_path / "heads.csv").read_text() == text
    with pytest.raises(ValueError, match="9 keys"):
        statistics.add("0", RANDOM[None], TOKENS[:9])


def test_the_share_of_an_image_within_a_box_or_a_mask() -> None:
    maps = np.stack([np.full((2, 4), 1 / 8), np.zeros((2, 4)), -np.eye(2, 4)])
    # half a cell and a whole one of the second row
    np.testing.assert_allclose(mass_within(maps, (0.125, 0.5, 0.5, 1)), [1.5 / 8, math.nan, 0.5])
    np.testing.assert_allclose(mass_within(maps[2], np.eye(2, 4)), 1)


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
