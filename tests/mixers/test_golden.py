"""Approximate attention has the values and gradients of other people's implementations, the numbers of
`golden.npz`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import unflatten_dict

from attnlab.attention.mechanisms.linformer import Linformer
from attnlab.attention.view import CAUSAL, EVERYTHING, View
from attnlab.mixers.longformer import Longformer
from attnlab.mixers.nystrom import Nystrom
from attnlab.mixers.performer import Performer
from attnlab.mixers.reformer import Reformer
from tests.attention.cases import TOLERANCE, committed
from tests.mixers import golden


class DrawnPerformer(Performer):
    """With the features of the case."""

    def draw_directions(self) -> Any:
        """See `Performer.draw_directions`."""
        return committed(golden.FILE)["performer-causal" if self.seed else "performer"][
            "params/turns"
        ]


class DrawnReformer(Reformer):
    """With the hashes of the case."""

    def turns(self) -> Any:
        """See `Reformer.turns`."""
        return committed(golden.FILE)["reformer"]["params/turns"]


MODULES: dict[str, Any] = {
    "performer": DrawnPerformer(golden.D, heads=golden.H, features=5),
    "performer-causal": DrawnPerformer(golden.D, heads=golden.H, features=5, seed=1),
    "linformer": Linformer(golden.D, heads=golden.H, rank=5, length=golden.T + 3),
    "nystrom": Nystrom(golden.D, heads=golden.H, landmarks=4, taps=5),
    "longformer": Longformer(golden.D, heads=golden.H, window=4, tokens=(0,)),
    "reformer": DrawnReformer(golden.D, heads=1, buckets=4, chunk=4, rounds=2),
}


DEFAULT = ("longformer", "performer-causal")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in DEFAULT else pytest.mark.full) for name in MODULES],
)
def test_values_and_gradients_are_those_of_others(name: str, float64: None) -> None:
    case = committed(golden.FILE)[name]
    params = unflatten_dict(case, sep="/")["params"]
    params = {part: leaf for part, leaf in params.items() if part not in ("turns", "valid")}
    view = CAUSAL if name.endswith("causal") else EVERYTHING
    if "params/valid" in case:
        view = View(valid=jnp.asarray(case["params/valid"]))

    def found(x: Any) -> Any:
        y = MODULES[name].apply({"params": params}, x, view, method="mix")[0]
        return (y * case["direction"]).sum(), y

    grad, y = jax.jit(jax.grad(found, has_aux=True))(case["x"])
    np.testing.assert_allclose(y, case["y"], rtol=0, atol=TOLERANCE["float64"])
    np.testing.assert_allclose(grad, case["grad"], rtol=0, atol=TOLERANCE["float64"])
