"""Tables of names by themselves."""

import numpy as np

from attnlab.weights.names import Name, Names


def test_layers_are_numbers() -> None:
    """The tenth comes after the ninth, as in the files of others."""
    table = Names((Name("h.{i}.w", "layer_{i}/kernel", transposed=True),), prefix="")
    parameters = {f"layer_{i}/kernel": np.full((2, 3), i) for i in (10, 2, 0, 11)}
    written = table.write(parameters, np.float32)
    assert list(written) == ["h.0.w", "h.2.w", "h.10.w", "h.11.w"]
    assert all(x.shape == (3, 2) and x[0, 0] == int(name[2:-2]) for name, x in written.items())


def test_a_tensor_of_several_parameters_is_cut_and_joined() -> None:
    line = Name("qkv", ("q", "k"))
    tensor = np.arange(10.0).reshape(2, 5)
    parts = line.split(tensor, [(2, 3), (2, 2)])
    assert [part.shape for part in parts] == [(2, 3), (2, 2)]
    assert np.array_equal(line.join(parts), tensor) and line.shape([(2, 3), (2, 2)]) == (2, 5)
