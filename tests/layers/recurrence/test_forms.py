"""Every form of the recurrences against a loop over tokens in NumPy, whose gradients are written by
hand.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.layers.recurrence import recur, recur_dplr
from tests.layers.recurrence import oracle

B, H, T, D, E = 2, 2, 13, 4, 5
CHUNKS = (1, 3, 5, 8, 13, 16)
GATES = {"none": None, "head": (B, H, T), "channel": (B, H, T, D)}


def drawn(names: str, gates: str, seed: int = 0) -> dict[str, Any]:
    """Arrays of these names by shape, and a state; keys as long as 1, so that nothing grows."""
    rng = np.random.default_rng(seed)
    given = {name: rng.normal(size=(B, H, T, E if name in "uv" else D)) for name in names}
    for name in set(names) & set("wkrab"):
        given[name] /= np.linalg.norm(given[name], axis=-1, keepdims=True)
    if (shape := GATES[gates]) is not None:
        given["g"] = -rng.exponential(size=shape)
    return given | {"state": rng.normal(size=(B, H, D, E))}


@dataclasses.dataclass(frozen=True)
class Case:
    """A function under test, its oracle, and the arrays it takes."""

    run: Any
    oracle: Any
    slopes: Any
    names: str
    gates: str

    def __str__(self) -> str:
        return f"{self.names}-{self.gates}"


CASES = [
    Case(recur, oracle.delta, oracle.delta_slopes, n, g) for n in ("qwu", "qwur") for g in GATES
]
CASES += [Case(recur_dplr, oracle.dplr, oracle.dplr_slopes, "qkvab", g) for g in GATES]
every = pytest.mark.parametrize("case", CASES, ids=str)


def called(case: Case, given: Any, **how: Any) -> Any:
    """The function of a case, of arrays by name."""
    fill = {"g": None} if case.run is recur_dplr else {}
    return case.run(**{**fill, **given}, **how)


def differences(case: Case, given: Any, chunk: int) -> tuple[Any, Any]:
    """Outputs and gradients less the oracle's, each relative to the largest number there."""
    rng = np.random.default_rng(1)
    of_o, of_last = rng.normal(size=(B, H, T, E)), rng.normal(size=(B, H, D, E))

    @jax.jit
    def both(given: Any, slopes: Any) -> Any:
        found, back = jax.vjp(lambda given: called(case, given, chunk=chunk), given)
        return found, back(slopes)[0]

    kind = given["q"].dtype
    found, slopes = both(given, (of_o.astype(kind), of_last.astype(kind)))
    wide = {name: np.asarray(x, np.float64) for name, x in given.items()}
    expected, expected_slopes = case.oracle(wide), case.slopes(wide, of_o, of_last)
    pairs = [*zip(found, expected, strict=True)]
    pairs += [(slopes[name], expected_slopes[name]) for name in given]
    return max(np.abs(a - b).max() / max(1.0, np.abs(b).max()) for a, b in pairs), found


@every
@pytest.mark.parametrize("chunk", CHUNKS)
def test_values_states_and_gradients_equal_the_loop(case: Case, chunk: int, float64: None) -> None:
    given = drawn(case.names, case.gates)
    assert differences(case, given, chunk)[0] < 1e-12


@every
@pytest.mark.parametrize("chunk", (1, 5))
def test_in_float32(case: Case, chunk: int) -> None:
    given = {name: x.astype(np.float32) for name, x in drawn(case.names, case.gates).items()}
    difference, found = differences(case, given, chunk)
    assert difference < 1e-5 and found[0].dtype == found[1].dtype == jnp.float32
