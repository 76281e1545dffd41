"""The first training state is a function of the seed, and a checkpoint holds all of it but the seed."""

import jax
import numpy as np

from attnlab.training.updates import Updates
from tests.training.toy import Line, settings


def test_the_first_state_is_a_function_of_the_seed() -> None:
    states = Updates.of(settings()).first_states(Line())
    first, repeated, other = states(3), states(3), states(4)
    assert np.array_equal(first.params["w"], repeated.params["w"]) and int(first.seed) == 3
    assert not np.array_equal(first.params["w"], other.params["w"]) and int(first.step) == 0
    np.testing.assert_array_equal(first.params["w"], Line().init(jax.random.key(3))["w"])
