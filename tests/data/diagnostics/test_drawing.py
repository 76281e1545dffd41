"""Small things that all generators share; what keeps splits apart is in `test_generated.py`."""

from attnlab.data.diagnostics.drawing import power_of_two


def test_powers() -> None:
    assert [power_of_two(number) for number in (1, 2, 3, 4, 5, 64, 65)] == [1, 2, 4, 4, 8, 64, 128]
