"""Systems where arrays may be float64: they start in it, and compute in the precision of their
parameters. By shapes alone.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.systems import SYSTEMS
from tests.systems.own import FIRST, read
from tests.systems.tiny import make, seldom

DEFAULT = ("gnmt", "bert", "top_down")


def dtypes(tree: Any) -> dict[str, str]:
    """The dtypes of floating-point arrays in a tree, by path."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        jax.tree_util.keystr(path): str(leaf.dtype)
        for path, leaf in leaves
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    }


@pytest.mark.parametrize("name", seldom(SYSTEMS.names(), *DEFAULT))
def test_a_system_has_one_precision_where_float64_is_possible(name: str) -> None:
    room, spec = FIRST[name]
    system, given = make(spec), read(room, spec)

    def slopes(params: Any) -> Any:
        def total(params: Any) -> tuple[jax.Array, jax.Array]:
            made = system.apply({"params": params}, *given)
            logits = made[0] if isinstance(made, tuple) else made
            return logits.astype(jnp.float32).sum(), logits

        return jax.grad(total, has_aux=True)(params)

    with jax.enable_x64(True):
        params = jax.eval_shape(system.init, jax.random.key(0), *given)["params"]
        assert {path: dtype for path, dtype in dtypes(params).items() if dtype != "float64"} == {}
        assert set(dtypes(jax.eval_shape(slopes, params)).values()) == {"float64"}
        narrow = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, np.float32), params)
        assert set(dtypes(jax.eval_shape(slopes, narrow)).values()) == {"float32"}
