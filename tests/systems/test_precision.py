"""Systems where arrays may be float64: they start in it, and compute in the precision of their
parameters. By shapes alone.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.systems import SYSTEMS
from tests.systems import (
    captioners,
    checks,
    classifiers,
    image_classifiers,
    language_models,
    test_detectors,
    test_pixel_classifiers,
    token_classifiers,
    visual_answerers,
)
from tests.systems.recurrent import test_lstmn

KINDS = [
    (kind, kind.SPECS)
    for kind in (
        *(checks, classifiers, language_models, token_classifiers, image_classifiers),
        *(captioners, visual_answerers, test_pixel_classifiers, test_detectors),
    )
] + [(classifiers, test_lstmn.CASES)]
FIRST = {
    spec["name"]: (kind, spec)
    for kind, specs in reversed(KINDS)
    for spec in reversed(specs.values())
}


def dtypes(tree: Any) -> dict[str, str]:
    """The dtypes of floating-point arrays in a tree, by path."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        jax.tree_util.keystr(path): str(leaf.dtype)
        for path, leaf in leaves
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    }


@pytest.mark.parametrize("name", SYSTEMS.names())
def test_a_system_has_one_precision_where_float64_is_possible(name: str) -> None:
    kind, spec = FIRST[name]
    system: Any = kind.make(spec)  # type: ignore[attr-defined]
    ids = np.full((2, 4), 5, np.int32)
    texts: tuple[np.ndarray, ...] = (ids, ids) if kind is checks or name == "lstmn_pair" else (ids,)
    if kind in (image_classifiers, test_pixel_classifiers, test_detectors):
        texts = (image_classifiers.images_for(spec),)
    if kind is captioners:
        texts = (captioners.images(), captioners.words())
    if kind is visual_answerers:
        texts = (
            visual_answerers.batch()[0],
            np.pad(np.full((4, 4), 5, np.int32), ((0, 0), (0, 4))),
        )

    def slopes(params: Any) -> Any:
        def total(params: Any) -> tuple[jax.Array, jax.Array]:
            made = system.apply({"params": params}, *texts)
            logits = made[0] if isinstance(made, tuple) else made
            return logits.astype(jnp.float32).sum(), logits

        return jax.grad(total, has_aux=True)(params)

    with jax.enable_x64(True):
        params = jax.eval_shape(system.init, jax.random.key(0), *texts)["params"]
        assert {path: found for path, found in dtypes(params).items() if found != "float64"} == {}
        assert set(dtypes(jax.eval_shape(slopes, params)).values()) == {"float64"}
        narrow = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, np.float32), params)
        assert set(dtypes(jax.eval_shape(slopes, narrow)).values()) == {"float32"}
