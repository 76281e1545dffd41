"""Fingerprints of arrays, their paths, and what tensorstore only writes as text; what is stored with
them: test_checkpoints.py.
"""

import errno

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.training import orbax_steps
from attnlab.training.trained import leaves_by_path


def test_fingerprint_is_of_values_in_c_order() -> None:
    """The memory layout does not count; a value, the shape, the dtype and the sign of zero do."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    equal = [np.asfortranarray(array), array[:, :].copy(), np.repeat(array, 2, axis=1)[:, ::2]]
    assert all(orbax_steps.fingerprint(copy) == orbax_steps.fingerprint(array) for copy in equal)
    other = [
        array + np.eye(2, 3, dtype=np.float32) * 1e-6,
        array.reshape(3, 2),
        array.astype(np.float64),
        array.view(np.int32),
        -array,
    ]
    digests = [
        str(orbax_steps.fingerprint(other_array))
        for other_array in [array, *other, np.where(array == 0, -0.0, array).astype(np.float32)]
    ]
    assert len(set(digests)) == len(digests)


def test_fingerprint_takes_scalars_and_bfloat16() -> None:
    """0-d arrays and dtypes without a buffer interface."""
    assert orbax_steps.fingerprint(np.asarray(3))["shape"] == []
    assert orbax_steps.fingerprint(np.asarray(jnp.ones(2, jnp.bfloat16)))["dtype"] == "bfloat16"


def test_paths_do_not_depend_on_the_kind_of_leaf() -> None:
    """A tree of shapes has the paths of the tree of arrays, in the same order."""
    tree = {"b": [jnp.zeros(2), {"x": jnp.zeros(3)}], "a": (jnp.zeros(()),)}
    paths = list(leaves_by_path(tree))
    assert paths == ["a/0", "b/0", "b/1/x"]
    assert list(leaves_by_path(jax.eval_shape(lambda: tree))) == paths


def raised_from(cause: Exception) -> Exception:
    error = ValueError("the array layer_0/kernel\n could not be written" + 200 * "!")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("cause", "full", "number"),
    [
        (OSError(errno.ENOSPC, "no room"), True, errno.ENOSPC),
        (ValueError("RESOURCE_EXHAUSTED: Error writing [os_error_code='28']"), True, 28),
        (ValueError("PERMISSION_DENIED: [os_error_code='13']"), False, 13),
        (ValueError("a checksum differs"), False, None),
    ],
)
def test_the_cause_is_found_behind_other_errors(
    cause: Exception, full: bool, number: int | None
) -> None:
    error = raised_from(cause)
    assert orbax_steps.disk_full(error) == full
    refused = orbax_steps.first_os_error(error)
    assert (refused and refused.errno) == number


def test_a_reason_is_one_short_line_of_what_it_was_raised_from() -> None:
    assert orbax_steps.short_reason(raised_from(KeyError("a\nb"))) == r"KeyError: 'a\nb'"
    long = orbax_steps.short_reason(ValueError("x" * 500))
    assert long == "ValueError: " + "x" * 160 + "..."
