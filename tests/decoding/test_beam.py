"""Beam search finds what a plain loop without early stopping and the search of all sequences find,
whatever the batch. Length and coverage penalties have the published values.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnlab.decoding.beam as module
from attnlab.data.vocabulary import OURS, Special
from attnlab.decoding.beam import beam_search, coverage_penalty, length_penalty
from attnlab.decoding.rules import Rules
from attnlab.decoding.steps import Hypotheses
from attnlab.errors import UserError
from tests.decoding.conftest import MarkovModel

EOS = 2
SENTENCES = list(range(12))
MASK = np.array([[True, True, row % 3 > 0] for row in SENTENCES])
Found = list[tuple[float, float, tuple[int, ...]]]


def search(model: Any, sentences: Sequence[int], **how: Any) -> Hypotheses:
    """Beam search of `model` for a list of sentences, compiled and brought to NumPy."""
    mask = MASK[np.array(sentences)]
    program = jax.jit(
        lambda *begun: beam_search(
            model.step, *begun, rows=len(sentences), source_mask=jnp.asarray(mask), **how
        )
    )
    beams: Hypotheses = jax.device_get(program(*model.begin(sentences)))
    return beams


@dataclasses.dataclass
class Terms:
    """What a search is judged by, as `beam_search` has it."""

    alpha: float = 0.0
    beta: float = 0.0
    offset: int = 5
    least: int = 0
    special: Special = OURS

    def score(self, log_prob: float, tokens: Sequence[int], covered: np.ndarray) -> float:
        """log P / lp + cp, of the attention that each real place has received."""
        lengths = (self.offset + len(tokens)) / (self.offset + 1)
        coverage = np.log(np.clip(covered, 1e-6, 1)).sum()
        return float(log_prob / lengths**self.alpha + self.beta * coverage)


def plain_beam(model: Any, sentence: int, beam: int, most: int, terms: Terms) -> Found:
    """(score, log P, tokens) of everything that finishes, best first: every step to the end,
    nothing clever.
    """
    special = terms.special
    live: list[tuple[float, tuple[int, ...], np.ndarray]] = [(0.0, (), np.zeros(model.source))]
    finished: list[tuple[float, tuple[int, ...], np.ndarray]] = []
    for t in range(most):
        candidates = []
        for log_prob, tokens, cover in live:
            gains, weights = model.known(sentence, tokens)
            ids = [
                v for v in range(2, model.vocabulary) if v not in special.ending or t >= terms.least
            ]
            ids = [special.forced] if special.forced and t == 0 else ids
            candidates += [(log_prob + gains[v], (*tokens, v), cover + weights) for v in ids]
        candidates.sort(key=lambda candidate: -candidate[0])
        ended = [candidate[1][-1] in special.ending for candidate in candidates]
        finished += list(itertools.compress(candidates[:beam], ended))
        live = [one for one, ends in zip(candidates, ended, strict=True) if not ends][:beam]
    ranked = [(terms.score(lp, y, c[MASK[sentence]]), lp, y) for lp, y, c in finished or live]
    return sorted(ranked, key=lambda item: -item[0])


def listed(beams: Hypotheses, row: int) -> list[tuple[int, ...]]:
    lengths = beams.lengths[row].tolist()
    behind = [beams.tokens[row, k, length:] for k, length in enumerate(lengths)]
    assert not any(map(np.any, behind)), "only PAD may follow"
    return [tuple(beams.tokens[row, k, :n].tolist()) for k, n in enumerate(lengths) if n]


def check(beams: Hypotheses, row: int, oracle: Found) -> None:
    """The same hypotheses in the same order, with the same numbers; free slots have score -inf."""
    n_best = beams.scores.shape[1]
    assert listed(beams, row) == [tokens for _, _, tokens in oracle[:n_best]]
    used = min(n_best, len(oracle))
    for at, one in enumerate((beams.scores, beams.log_probs)):
        np.testing.assert_allclose(one[row, :used], [each[at] for each in oracle[:used]], atol=1e-4)
    assert np.isneginf(np.asarray(beams.scores[row, used:])).all()


SETTINGS = [
    (1, 1, 0.0, 0.0, 0),
    (3, 3, 0.0, 0.0, 0),
    (3, 1, 1.0, 0.0, 0),
    (4, 2, 0.6, 0.4, 0),
    (2, 2, 1.0, 0.2, 3),
    (5, 1, 0.2, 0.2, 1),
]


@pytest.mark.parametrize(("beam", "n_best", "alpha", "beta", "least"), SETTINGS)
def test_equals_a_plain_loop(
    prefix_model: Any, beam: int, n_best: int, alpha: float, beta: float, least: int
) -> None:
    """Early stopping, the small pool and the batch change nothing; each sentence has a length limit
    of its own.
    """
    limits = np.array([3 + row % 4 for row in SENTENCES])
    how = {"beam": beam, "n_best": n_best, "length_penalty": alpha, "coverage": beta}
    rules = Rules(min_length=least)
    beams = search(prefix_model, SENTENCES, max_length=6, rules=rules, limits=limits, **how)
    for row, sentence in enumerate(SENTENCES):
        terms = Terms(alpha, beta, least=least)
        check(beams, row, plain_beam(prefix_model, sentence, beam, limits[row], terms))


@pytest.mark.parametrize("beam", [1, 3])
def test_several_ends_a_forced_beginning_and_another_offset(prefix_model: Any, beam: int) -> None:
    """Two of four tokens end a text, so that half of all candidates have ended."""
    special = Special(ends=(5,), forced=4)
    how = {"length_penalty": 1.0, "length_offset": 0, "rules": Rules(special=special)}
    beams = search(prefix_model, SENTENCES, beam=beam, n_best=1, max_length=6, **how)
    for row in SENTENCES:
        terms = Terms(1.0, offset=0, special=special)
        check(beams, row, plain_beam(prefix_model, row, beam, 6, terms))
    last = {int(beams.tokens[row, 0, beams.lengths[row, 0] - 1]) for row in SENTENCES}
    assert last >= {EOS, 5} and set(beams.tokens[:, 0, 0].tolist()) == {4}


@pytest.mark.parametrize("alpha", [pytest.param(0.0, marks=pytest.mark.full), 1.0])
def test_wide_beam_is_exhaustive(prefix_model: Any, alpha: float) -> None:
    """Four tokens that can be emitted, up to four of them: a beam that holds all prefixes finds the
    best of all sequences.
    """
    beams = search(prefix_model, range(4), beam=108, n_best=40, max_length=4, length_penalty=alpha)
    bodies = [body for length in range(4) for body in itertools.product((3, 4, 5), repeat=length)]
    for row in range(4):
        every = []
        for body in bodies:
            tokens = (*body, EOS)
            log_p = prefix_model.rescored(row, tokens)[0]
            every.append((Terms(alpha).score(log_p, tokens, np.ones(3)), log_p, tokens))
        assert len(every) == 40
        check(beams, row, sorted(every, key=lambda item: -item[0]))


def test_scores_and_alignment_equal_teacher_forcing(prefix_model: Any) -> None:
    """Every hypothesis re-scored token by token has its log-probability and its weights; sorted,
    ended once, no duplicates.
    """
    how = {"beam": 4, "n_best": 4, "max_length": 6, "length_penalty": 0.6, "alignment": True}
    beams = search(prefix_model, SENTENCES, **how)
    assert beams.alignment is not None and beams.alignment.shape == (12, 4, 6, 3)
    for row in SENTENCES:
        hypotheses = listed(beams, row)
        assert len(set(hypotheses)) == len(hypotheses) > 0
        assert (np.diff(np.asarray(beams.scores[row, : len(hypotheses)])) <= 0).all()
        for k, tokens in enumerate(hypotheses):
            assert tokens.index(EOS) == len(tokens) - 1
            log_prob, weights = prefix_model.rescored(row, tokens)
            assert beams.log_probs[row, k] == pytest.approx(log_prob, abs=1e-4)
            np.testing.assert_allclose(beams.alignment[row, k, : len(tokens)], weights, atol=1e-6)
            assert not beams.alignment[row, k, len(tokens) :].any()


def test_a_batch_cut_to_those_at_work_returns_the_same(
    prefix_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """48 sentences are searched in 48, 12 and 3 rows: the same as without cutting, maps and counts
    included.
    """
    company = [row % 12 for row in range(48)]
    limits = jnp.asarray([1 + (5 * row) % 7 for row in range(48)])
    how: dict[str, Any] = {"beam": 3, "n_best": 2, "max_length": 7, "alignment": True}
    how |= {"length_penalty": 0.6, "coverage": 0.2}
    whole = search(prefix_model, company, limits=limits, **how)
    sizes = []
    advance = module._advance

    def counted(step: Any, memory: Any, rules: Any, state: Any) -> Any:
        sizes.append(len(rules.limits))
        return advance(step, memory, rules, state)

    monkeypatch.setattr(module, "_advance", counted)
    monkeypatch.setattr(module, "LEAST_ROWS", 3)
    cut = search(prefix_model, company, limits=limits, **how)
    assert set(sizes) == {48, 12, 3}
    for name in ("tokens", "lengths"):
        np.testing.assert_array_equal(getattr(cut, name), getattr(whole, name))
    for name in ("scores", "log_probs", "alignment"):
        np.testing.assert_allclose(getattr(cut, name), getattr(whole, name), rtol=1e-6)


def test_unfinished_hypotheses_only_where_nothing_finished(endless_model: Any) -> None:
    """A model that does not end is cut at the limits, and its best living hypotheses are returned
    without EOS.
    """
    limits = np.array([2 + row % 3 for row in SENTENCES])
    how = {"beam": 3, "n_best": 3, "max_length": 4, "length_penalty": 0.6}
    beams = search(endless_model, SENTENCES, limits=limits, **how)
    assert not (beams.tokens == EOS).any()
    np.testing.assert_array_equal(beams.lengths, np.repeat(limits[:, None], 3, axis=1))
    for row, sentence in enumerate(SENTENCES):
        check(beams, row, plain_beam(endless_model, sentence, 3, limits[row], Terms(0.6)))


def test_fewer_hypotheses_than_beams() -> None:
    """One token and EOS to choose from: four sequences end within four steps, the other slots stay
    free. Where EOS is held back to the end, what is cut is returned, not a hypothesis of probability 0.
    """
    table = np.zeros((4, 4))
    table[:, [EOS, 3]] = 0.5
    beams = search(MarkovModel(table), [0, 1], beam=7, n_best=7, max_length=4)
    assert listed(beams, 1) == [(3,) * n + (EOS,) for n in range(4)]
    expected = [*0.5 ** np.arange(1, 5), 0, 0, 0]
    np.testing.assert_allclose(np.exp(beams.scores[1]), expected, atol=1e-6)
    beams = search(
        MarkovModel(table), [0, 1], beam=4, n_best=2, max_length=3, rules=Rules(min_length=3)
    )
    assert listed(beams, 0) == listed(beams, 1) == [(3, 3, 3)]
    np.testing.assert_allclose(np.exp(beams.scores[0]), [0.125, 0.0], atol=1e-6)


@pytest.mark.parametrize(("alpha", "steps"), [(0.0, 2), (1.0, 6)])
def test_stops_when_nothing_can_win(alpha: float, steps: int) -> None:
    """`3 EOS` (.6) is found in step 2, when the other hypothesis has .4; that one halves with every
    step.

    With alpha 0 it has lost at once. With alpha 1 and room for 40 it may still win above .6^(lp(40)
    / lp(2)) = .0375, which it falls below in step 6 (.4 / 2^4 = .025).
    """
    table = np.zeros((5, 5))
    table[1, 3] = 1.0
    table[3, [EOS, 4]] = 0.6, 0.4
    table[4, [EOS, 4]] = 0.5, 0.5
    calls: list[int] = []
    model = MarkovModel(table)

    def counted(state: Any, memory: Any, tokens: jax.Array) -> Any:
        jax.debug.callback(lambda: calls.append(1))
        return MarkovModel.step(state, memory, tokens)

    model.step = counted
    beams = search(model, [0], beam=2, max_length=40, length_penalty=alpha)
    jax.effects_barrier()  # type: ignore[no-untyped-call]
    assert beams.tokens[0, 0, :3].tolist() == [3, EOS, 0]
    assert len(calls) == steps


def test_coverage_needs_weights() -> None:
    model, mask = MarkovModel(np.full((4, 4), 0.25)), jnp.ones((1, 3), bool)

    def searched(**how: Any) -> Hypotheses:
        return beam_search(model.step, *model.begin([0]), rows=1, beam=2, max_length=4, **how)

    with pytest.raises(UserError, match="coverage needs attention weights"):
        searched(coverage=0.2, source_mask=mask)
    for how, message in (({"coverage": 0.2}, "source_mask"), ({"n_best": 3}, "n_best=3")):
        with pytest.raises(ValueError, match=message):
            searched(**how)
    assert jax.eval_shape(lambda: searched(alignment=True)).alignment is None


@pytest.mark.parametrize(
    ("length", "alpha", "value"),
    [(10, 0.6, 1.7329), (10, 0.2, 1.2011), (20, 0.6, 2.3544), (1, 0.6, 1.0), (17, 0.0, 1.0)],
)
def test_length_penalty(length: int, alpha: float, value: float) -> None:
    assert float(length_penalty(length, alpha)) == pytest.approx(value, abs=1e-4)


@pytest.mark.parametrize(
    ("coverage", "value"),
    [((1.0, 1.1, 0.9), -0.0211), ((1.8, 0.2, 0.0), -3.085), ((1.0, 2.0, 1.0), 0.0)],
)
def test_coverage_penalty(coverage: tuple[float, ...], value: float) -> None:
    penalty = jax.jit(coverage_penalty)(np.array(coverage, np.float32), np.ones(3, bool), 0.2)
    assert float(penalty) == pytest.approx(value, abs=1e-3)
