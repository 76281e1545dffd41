"""Programs of a trained model over the rows of a batch: where its parameters are divided over a mesh of
devices, so are the rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

ROWS = PartitionSpec(("data", "fsdp"))


class OnRows:
    """`jax.jit(function)` of (parameters, arrays with a row for each of a batch, ...).

    Where the parameters are divided, each device gathers them and computes its rows; rows that the
    devices do not divide are computed by all of them. Batches of evaluation are filled up with rows
    of no weight, so that all have as many. Results are whole in each of several processes.

    Args:
      function: pure.
      how: as for `jax.jit`.
    """

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        self._function, self._options = function, options
        self._program = functools.cache(self._compiled)

    def __call__(self, params: Any, *given: Any) -> Any:
        """What the function gives."""
        mesh = mesh_of(params)
        result = self._program(mesh)(params, *given)
        # on a processor, programs of several devices that run at once may wait for each other for ever
        return result if mesh is None else jax.block_until_ready(result)

    def _compiled(self, mesh: Mesh | None) -> Callable[..., Any]:
        if mesh is None:
            return jax.jit(self._function, **self._options)
        whole, rows = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, ROWS)

        def computed(params: Any, *given: Any) -> Any:
            count = next(len(x) for x in jax.tree.leaves(given) if x.ndim)
            params = jax.lax.with_sharding_constraint(params, whole)
            if count % mesh.size == 0:
                deal = functools.partial(jax.lax.with_sharding_constraint, shardings=rows)
                given = jax.tree.map(lambda x: deal(x) if x.shape[:1] == (count,) else x, given)
            return self._function(params, *given)

        options = {**self._options, "out_shardings": whole if jax.process_count() > 1 else None}
        return jax.jit(computed, **options)


def mesh_of(params: Any) -> Mesh | None:
    """The mesh that parameters are divided over; None if they are whole."""
    shardings = (getattr(leaf, "sharding", None) for leaf in jax.tree.leaves(params))
    meshes = [sharding.mesh for sharding in shardings if isinstance(sharding, NamedSharding)]
    divided = meshes and meshes[0].shape.get("fsdp", 1) > 1
    return meshes[0] if divided else None  # type: ignore[return-value]
