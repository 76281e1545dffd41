"""What a state and a compiled program take."""

import jax
import jax.numpy as jnp

from attnlab.training.sizes import count, megabytes, program_sizes, state_sizes
from attnlab.training.step import TrainState


def test_what_a_state_takes() -> None:
    state = TrainState(
        step=jnp.zeros((), jnp.int32),
        params={"a": jnp.zeros((500, 1000))},
        opt_state=(jnp.zeros((1000, 1000), jnp.bfloat16),),
    )
    assert count(state.params) == 500_000
    assert state_sizes(state) == {"parameters": "2.0 MB", "optimizer": "2.0 MB"}
    assert megabytes(1.5e9) == "1,500.0 MB"


def test_what_a_program_takes() -> None:
    square = jax.jit(lambda x: x @ x)
    compiled = square.lower(jnp.zeros((1000, 1000))).compile()
    assert float(program_sizes(compiled)["peak"].split()[0]) >= 8.0
    assert program_sizes(square) == {}
