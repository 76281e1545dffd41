"""Rollout, flow and relevance against loops, all cuts of a small graph, and the identity."""

import numpy as np
import pytest

from attnlab.analysis.rollout import LONGEST, flow, gradient_relevance, mixing, rollout
from attnlab.errors import UserError

RNG = np.random.default_rng(0)
MAPS = [RNG.dirichlet(np.ones(3), size=(heads, 3)) for heads in (2, 4)]


@pytest.mark.quick
def test_rollout_multiplies_layers_with_their_residuals() -> None:
    first, second = (0.5 * layer.mean(0) + 0.5 * np.eye(3) for layer in MAPS)
    np.testing.assert_allclose(rollout(MAPS), [first, second @ first], rtol=1e-14)
    np.testing.assert_allclose(rollout(MAPS).sum(-1), 1, rtol=1e-14)
    identity = [np.tile(np.eye(5, dtype=np.float32), (2, 1, 1))] * 3
    assert (rollout(identity) == np.eye(5)).all() and (flow(identity, 2) == np.eye(5)[2]).all()
    assert (rollout([np.zeros((1, 4, 4))])[0] == np.eye(4)).all()  # padding stays itself


def test_flow_through_two_layers_is_the_sum_over_what_lies_between() -> None:
    """From the query to each middle token leads one edge, and from that one to the key; a layer of
    identity between changes nothing.
    """
    below, above = mixing(MAPS)
    expected = np.minimum(above[:, :, None], below).sum(1)
    for maps in (MAPS, [MAPS[0], np.eye(3)[None], MAPS[1]]):
        np.testing.assert_allclose([flow(maps, query) for query in range(3)], expected, rtol=1e-7)


def test_what_they_are_not_for_is_refused() -> None:
    with pytest.raises(UserError, match="129 tokens; it is computed for at most 128"):
        flow([np.ones((1, LONGEST + 1, LONGEST + 1))], 0)
    with pytest.raises(UserError, match="weights below 0"):
        rollout([MAPS[0], MAPS[1] - 0.5])


def test_relevance_adds_what_the_gradient_asks_for() -> None:
    gradients = [RNG.normal(size=layer.shape) for layer in MAPS]
    below, above = (np.clip(a * g, 0, None).mean(0) for a, g in zip(MAPS, gradients, strict=True))
    expected = np.eye(3) + below + above + above @ below
    np.testing.assert_allclose(gradient_relevance(MAPS, gradients), expected, rtol=1e-13)
