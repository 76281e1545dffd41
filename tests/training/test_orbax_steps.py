"""Single steps: fingerprints, the comparison with a wanted tree, and a checksum that sees what
orbax does not.
"""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.errors import UserError
from attnlab.training.orbax_steps import OrbaxSteps, compare, fingerprint, leaves_by_path


def test_fingerprint_is_of_values_in_c_order() -> None:
    """The memory layout does not count; a value, the shape, the dtype and the sign of zero do."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    same = [np.asfortranarray(array), array[:, :].copy(), np.repeat(array, 2, axis=1)[:, ::2]]
    assert all(fingerprint(one) == fingerprint(array) for one in same)
    other = [
        array + np.eye(2, 3, dtype=np.float32) * 1e-6,
        array.reshape(3, 2),
        array.astype(np.float64),
        array.view(np.int32),
        -array,
    ]
    digests = [
        str(fingerprint(one))
        for one in [array, *other, np.where(array == 0, -0.0, array).astype(np.float32)]
    ]
    assert len(set(digests)) == len(digests)


def test_fingerprint_takes_scalars_and_bfloat16() -> None:
    """0-d arrays and dtypes without a buffer interface."""
    assert fingerprint(np.asarray(3))["shape"] == []
    assert fingerprint(np.asarray(jnp.ones(2, jnp.bfloat16)))["dtype"] == "bfloat16"


def test_paths_do_not_depend_on_the_kind_of_leaf() -> None:
    """A tree of shapes has the paths of the tree of arrays, in the same order."""
    tree = {"b": [jnp.zeros(2), {"x": jnp.zeros(3)}], "a": (jnp.zeros(()),)}
    paths = list(leaves_by_path(tree))
    assert paths == ["a/0", "b/0", "b/1/x"]
    assert list(leaves_by_path(jax.eval_shape(lambda: tree))) == paths


def test_compare_counts_what_differs() -> None:
    """Equal passes; of several differences the first is spelt out."""
    tree = {"a": np.zeros((2, 3), np.float32), "b": np.zeros(4, np.int32), "c": np.float64(1)}
    saved = {path: fingerprint(np.asarray(leaf)) for path, leaf in leaves_by_path(tree).items()}
    compare(Path("run/7"), saved, tree)
    with pytest.raises(UserError) as raised:
        compare(
            Path("run/7"),
            saved,
            {"a": np.zeros((2, 3), np.float32), "b": np.zeros(4, np.int64), "d": np.zeros(1)},
        )
    words = "checkpoint run/7 does not fit: b: saved int32[4], wanted int64[4] (and 2 more)"
    assert str(raised.value) == words


def test_record_and_arrays_come_back_verified(tmp_path: Path) -> None:
    """A record that does not belong to the step or arrays with other checksums are refused."""
    steps = OrbaxSteps(tmp_path)
    hook = sys.unraisablehook
    arrays = {"x/y": np.arange(5.0), "x/z": np.asarray(3)}
    steps.write(4, arrays, {"note": (1, {2: "a"})})
    steps.wait()
    record = steps.read_record(4)
    assert record["note"] == [1, {"2": "a"}] and record["step"] == 4
    back = steps.read_arrays(4, record["arrays"])
    assert all((back[path] == array).all() for path, array in arrays.items())
    record["arrays"]["x/y"]["sha256"] = "0" * 64
    with pytest.raises(ValueError, match="checksum of x/y differs"):
        steps.read_arrays(4, record["arrays"])
    (tmp_path / "4").rename(tmp_path / "6")
    steps.reload()
    with pytest.raises(ValueError, match="checksum of meta differs"):
        steps.read_record(6)
    assert sys.unraisablehook is hook
    steps.close()
