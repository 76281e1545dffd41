"""What flags of `sweep` mean."""

import pytest

from attnlab.commands import Parser, sweep_flags
from attnlab.experiments.run import Part, WorkOptions
from tests.refusals import check_refused


@pytest.mark.parametrize(
    ("given", "meant"),
    [("2", (0, 1)), ("1", (0,)), ("0,1,2", (0, 1, 2)), ("7,", (7,)), ("3,1", (3, 1)), (None, ())],
)
def test_a_single_number_says_how_many_seeds(given: str | None, meant: tuple[int, ...]) -> None:
    assert sweep_flags.seeds(given) == meant


@pytest.mark.quick
def test_where_a_sweep_is_kept_unless_told() -> None:
    assert sweep_flags.default_directory("experiments/quickstart.py") == "runs/quickstart"
    words = "runs/bottleneck-my-own-folder"
    assert sweep_flags.default_directory("experiments/bottleneck.py:my/own folder") == words


@pytest.mark.parametrize("given", ["0", "1001", "many", "1,x"])
def test_seeds_that_are_none(given: str) -> None:
    check_refused(f"--seeds={given}: expected", sweep_flags.seeds, given)


def test_what_workers_are_told() -> None:
    parser = Parser()
    sweep_flags.add_running(parser)
    assert sweep_flags.work_options(parser.parse_args([])) == WorkOptions()
    flags = ["--trial-timeout=1.5", "--accept-cores", "--only=a,b*", "--grace=300"]
    wanted = WorkOptions(Part(("a", "b*")), limit=90.0, grace=300.0, accept_cores=True)
    assert sweep_flags.work_options(parser.parse_args(flags)) == wanted
