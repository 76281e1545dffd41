"""The suite itself: the sample that a default run draws has every value of every part, and can be
drawn again; a test that hangs ends, with its name, by the settings of pyproject.toml, whose limits
are shortened here.
"""

import collections
import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests import sampling
from tests.refusals import check_refused
from tests.rounding import assert_close

PARTS = {"mechanism": range(12), "score": range(7), "test": range(5)}
CASES = [frozenset(zip(PARTS, one, strict=True)) for one in itertools.product(*PARTS.values())]


def drawn(monkeypatch: pytest.MonkeyPatch, cases: str = "", seed: str = "") -> list[int]:
    """The numbers of the cases that are drawn of `CASES`."""
    monkeypatch.setenv("ATTNLAB_CASES", cases)
    monkeypatch.setenv("ATTNLAB_SEED", seed)
    return sampling.choose({"product": CASES})["product"]


@pytest.mark.quick
def test_every_value_occurs_and_pairs_fill_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for cases, most in (("", 12), ("3", 12), ("35", 35), ("1000", len(CASES))):
        numbers = drawn(monkeypatch, cases)
        assert len(numbers) == len(set(numbers)) == most
        assert {part for number in numbers for part in CASES[number]} == set().union(*CASES)
    chosen = [sorted(CASES[number]) for number in drawn(monkeypatch, "84")]
    pairs = {pair for parts in chosen for pair in itertools.combinations(parts, 2)}
    assert len(pairs) > 0.9 * (12 * 7 + 12 * 5 + 7 * 5)


def test_a_seed_draws_the_same_again_and_another_others(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, seed="0") == drawn(monkeypatch)
    assert drawn(monkeypatch, seed="4") == drawn(monkeypatch, seed="4") != drawn(monkeypatch)
    both = sampling.choose({"product": CASES, "other": CASES})
    assert both["product"] == drawn(monkeypatch) != both["other"]  # whatever else is drawn


def test_what_is_not_a_number_of_cases_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for cases, seed in (("some", ""), ("-1", ""), ("", "x")):
        check_refused(r"ATTNLAB_(CASES|SEED)='\S+' is not", drawn, monkeypatch, cases, seed)


pytest_plugins = ["pytester"]
FILE = """
import pytest

CONFIGS = [
    {"name": "a", "score": {"name": "dot"}},
    {"name": "a", "score": {"name": "additive"}, "heads": 2},
    {"name": "b", "score": {"name": "dot"}},
    {"name": "a", "score": {"name": "dot"}, "heads": 3},
]

@pytest.mark.parametrize("size", range(3))
@pytest.mark.parametrize("config", CONFIGS)
def test_alone(config, size):
    pass

@pytest.mark.product("promises")
@pytest.mark.parametrize("config", CONFIGS)
class TestTogether:
    def test_together(self, config):
        pass

    def test_together_too(self, config):
        pass

@pytest.mark.full
def test_long():
    pass

def test_plain():
    pass
"""


@pytest.mark.parametrize(
    ("cases", "counts"),
    [
        ("", {"alone": 3, "together": 2, "plain": 1}),
        ("6", {"alone": 6, "together": 6, "plain": 1}),
        ("all", {"alone": 12, "together": 8, "plain": 1, "long": 1}),
    ],
)
def test_a_run_draws_from_what_it_collects(
    cases: str, counts: dict[str, int], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNLAB_CASES", cases)
    monkeypatch.setenv("ATTNLAB_SEED", "0")
    pytester.makeini("[pytest]")  # else names have a folder whose number differs, and so the draw
    items = pytester.getitems(FILE)
    kept, left_out = sampling.sample(items)
    assert sorted(kept + left_out, key=items.index) == items
    assert collections.Counter(item.originalname.split("_")[1] for item in kept) == counts
    assert {item.name.partition("[")[0] for item in items} - {"test_long"} <= {
        item.name.partition("[")[0] for item in kept
    }
    named = [item for item in items if item.name == "test_alone[config3-2]"]
    assert sampling.sample(named) == (named, [])  # what was named runs


def test_closeness_is_relative_to_the_largest_number() -> None:
    values = np.array([1e-6, 20.0], np.float32)
    assert_close(values + np.float32(4e-6), values, eps=2)
    with pytest.raises(AssertionError):
        assert_close(values + np.float32(8e-6), values, eps=2)
    with pytest.raises(AssertionError):
        assert_close(values.astype(np.float64) + 1e-9, values.astype(np.float64), eps=16)
    with pytest.raises(AssertionError):
        assert_close(np.arange(3), np.arange(3) + 1, eps=1e9)
    with pytest.raises(AssertionError):
        assert_close(values, values[:1], eps=16)


SETTINGS = Path(__file__).parents[1] / "pyproject.toml"
WAITS = (
    "import signal, time\n\n\ndef test_waits():\n    time.sleep(60)\n\n\ndef test_after():\n   "
    " pass\n"
)
DEAF = WAITS.replace(
    "    time.sleep",
    "    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})\n    time.sleep",
)


def ended(folder: Path, text: str, *options: str) -> tuple[int, str]:
    """How pytest ends on a file of tests, and what it prints."""
    (folder / "test_hanging.py").write_text(text)
    limits = ["-o", "timeout=0.3", "-o", "faulthandler_timeout=1"]
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(SETTINGS), f"--rootdir={folder}"]
    command += ["-p", "no:cacheprovider", *limits, *options, str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)
    return done.returncode, done.stdout + done.stderr


def test_a_test_that_waits_fails_with_its_name_and_the_others_go_on(tmp_path: Path) -> None:
    code, said = ended(tmp_path, WAITS, "-p", "no:xdist")
    assert code == 1 and "1 failed, 1 passed" in said
    assert "FAILED test_hanging.py::test_waits - Failed: Timeout (>0.3s)" in said


@pytest.mark.full
def test_one_that_hears_no_signal_ends_its_worker_which_is_named(tmp_path: Path) -> None:
    code, said = ended(tmp_path, DEAF, "-n1")
    assert code == 1 and "1 failed, 1 passed" in said
    assert "in test_waits" in said  # the stack
    assert "crashed while running 'test_hanging.py::test_waits'" in said


@pytest.mark.quick
def test_the_limits_of_this_suite(pytestconfig: pytest.Config) -> None:
    """Those of the suite itself; what has no limit would hang for ever."""
    limit = float(pytestconfig.getini("timeout"))
    last = float(pytestconfig.getini("faulthandler_timeout"))
    assert 60 <= limit < last
    assert pytestconfig.getini("timeout_method") == "signal"
    assert pytestconfig.getini("faulthandler_exit_on_timeout")
