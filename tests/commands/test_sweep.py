"""`sweep` refuses in one line what it cannot do, and says what it will do; what its flags mean. A real
sweep is in tests/experiments/run/test_swept.py.
"""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from attnlab.commands import Parser, sweep, sweep_flags
from attnlab.errors import UserError
from attnlab.experiments import Search, choice, grid, report
from attnlab.experiments import run as running
from attnlab.experiments.define.loading import Changes, load_experiment
from attnlab.experiments.plan import Plan
from attnlab.experiments.run import Part, WorkOptions, outlook, slots
from attnlab.experiments.run.selection import Choice, freeze, wanted
from tests.commands.tiny import completed, refused, run_command
from tests.experiments import plans, real, stub
from tests.refusals import check_refused

FLAGS = {
    "--retry-faild": "unknown flag --retry-faild; did you mean '--retry-failed'",
    "--executor=local --stack=maybe": "invalid choice: 'maybe'",
    "--accept-failed --no-final": "--accept-failed: nothing is chosen with --no-final",
    "--seeds=1,1": "seeds is (1, 1); different whole numbers",
    "--grid=system.encoder=4,8": "--grid is for an experiment without a file; write it into",
    "--config.seed=3": "'seed' is set like any other setting; name the seeds in",
    "--config.system.maxout=9": "this setting is solved for by the budget in the experiment",
    "--config.system.attention.score.name=dot": "this setting is compared in the experiment",
    "--config.trainig.steps=3": "no such key; did you mean 'training.steps'",
}
"""Flags of a sweep of an experiment into a new folder, and what its line says."""
COMPARE = 'compare=rows({"additive": {}, "general": {"system.attention.score": "general"}})'
UNMATCHED = ": not matched, for the experiment has no budget\n"


def test_what_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    file = real.experiment(
        tmp_path / "which.py", COMPARE, "budget=Budget(match='parameters', knob='system.maxout')"
    )
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").touch()
    (tmp_path / "file").touch()
    new = f"--dir={tmp_path / 'new'}"
    thesis, plain = (f"--dir={tmp_path / name}" for name in ("thesis", "file"))
    rnnsearch = "--config=configs/translation.py:rnnsearch"
    cases = [([file, new, *flags.split()], words) for flags, words in FLAGS.items()]
    cases += [
        ([file, thesis], "is not empty and holds no sweep (chapter.tex is there); name a new or"),
        ([file, plain], "is not a folder; name another"),
        ([str(tmp_path / "wich.py"), new], "did you mean"),
        ([new], "name an experiment, 'sweep experiments/quickstart.py', or a config: --config"),
        ([rnnsearch, new], "nothing is compared or tuned; add --grid"),
    ]
    for argv, words in cases:
        before = sorted(tmp_path.rglob("*"))
        assert words in refused("sweep", *argv), argv
        assert sorted(tmp_path.rglob("*")) == before


def test_a_sweep_without_a_file_keeps_one_and_goes_on_with_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file lies in the folder; words that are refused leave it, and the folder, as they
    were.
    """
    asked: list[tuple[str, str, Changes]] = []

    def ensure(file: str, directory: Path, changes: Changes, cores: object) -> Plan:
        asked.append((file, Path(file).read_text(), changes))
        if "general" in asked[-1][1]:
            raise UserError("of 4 trials that have begun, 2 would be left out")
        return stub.planned(directory)

    monkeypatch.setattr(running, "ensure", ensure)
    monkeypatch.setattr(sweep, "_run_and_report", lambda directory, options: 0)
    words = ["sweep", "--config=configs/translation.py:rnnsearch", f"--dir={tmp_path / 'mine'}"]
    words += ["--seeds=5", "--config.training.steps=60"]
    assert run_command([*words, "--grid=system.attention.score=additive,general"]).code == 2
    assert not (tmp_path / "mine").exists()
    for _ in range(2):
        ended = run_command([*words, "--grid", "system.attention.score=additive,dot"])
        assert ended.code == 0 and ended.out.endswith(UNMATCHED)
    files, texts, changes = zip(*asked[1:], strict=True)
    assert set(files) == {str(tmp_path / "mine" / "rnnsearch.py")} and len(set(texts)) == 1
    assert set(changes) == {Changes(("training.steps=60",), (0, 1, 2, 3, 4))}
    assert run_command([*words, "--grid=system.attention.score=additive,general"]).code == 2
    assert (tmp_path / "mine" / "rnnsearch.py").read_text() == texts[0]
    found = load_experiment(files[0], changes[0])
    assert [one.name for one in found.compare] == ["score=additive", "score=dot"]
    assert found.base == {"training.steps": 60, "schedule.warmup": 6}


def test_a_plan_fixes_the_cores_of_its_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the smallest slot here; a later launcher gives its slots as many, or is refused."""
    monkeypatch.setattr(slots, "usable_cores", lambda: [0, 1, 2, 3, 4])
    monkeypatch.setattr(slots, "usable_gpus", list)
    plan = stub.planned(tmp_path)
    parser = Parser()
    sweep.add_arguments(parser)

    def slotted(flags: str) -> list[tuple[int, ...]]:
        nonlocal plan
        asked = parser.parse_args(["which.py", flags])
        options = sweep._sweep_options(asked)
        plan = plan.with_cores(sweep.slots_and_cores(plan, options, asked)[1], tmp_path)
        slots = sweep.with_slots(plan, options, tmp_path, asked).slots
        return [slot.cores for slot in slots]

    assert slotted("--slots=2") == [(0, 1), (2, 3)]
    assert slotted("--slots=1") == [(0, 1)]
    refusals = {"--slots=4": "with 2 cores, and a slot", "--cores-per-trial=1": "=1: "}
    for flags, words in refusals.items():
        with pytest.raises(UserError, match=words):
            slotted(flags)


def test_a_bad_variant_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: str, directory: Path, changes: Changes, cores: object) -> None:
        raise UserError("variant 'general': config.system.widht: no such key")

    monkeypatch.setattr(running, "ensure", refuse)
    file = real.experiment(tmp_path / "which.py", COMPARE)
    assert "variant 'general'" in refused("sweep", file, f"--dir={tmp_path / 'new'}")
    assert not (tmp_path / "new").exists()


def test_all_tasks_are_planned_before_one_runs_and_a_mistake_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal ends the whole."""
    tasks = "tasks={'short': {'base': {'training.steps': 6}}, 'long': {}}"
    file, done = real.experiment(tmp_path / "which.py", COMPARE, tasks), list[str]()
    codes: dict[str, Any] = {"short": 1, "long": 0}

    def ensure(file: str, directory: Path, changes: Changes, cores: object) -> Plan:
        assert load_experiment(file, changes).question.endswith(f"({changes.task})")
        if codes[changes.task] is None:
            raise UserError("measure: unknown metric 'exakt'")
        done.append(f"plan {directory.name}")
        return stub.planned(directory)

    def run(directory: Path, options: object) -> int:
        done.append(f"run {directory.name}")
        return int(codes[directory.name])

    monkeypatch.setattr(running, "ensure", ensure)
    monkeypatch.setattr(sweep, "_run_and_report", run)
    monkeypatch.setattr(report, "write_over_tasks", lambda directory: done.append("report"))
    command = ["sweep", file, "--slots=1"]
    assert run_command([*command, f"--dir={tmp_path / 'over'}"]).code == 1
    runs = ["plan short", "run short", "plan long", "run long", "report"]
    assert done[-6:] == ["plan long", *runs]
    codes |= {"short": 130, "long": 0}
    assert run_command([*command, f"--dir={tmp_path / 'over'}"]).code == 130
    assert done[-1] == "run short"
    codes["long"] = None
    words = "task 'long': measure: unknown metric"
    assert words in refused(*command, f"--dir={tmp_path / 'new'}")
    assert not (tmp_path / "new").exists()


@pytest.mark.quick
def test_what_is_planned_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Candidates with their counts; before a search has any, what it will try."""
    sizes = {"parameters": 136_453, "flops": 2.682e9}
    made = tuple(dataclasses.replace(each, **sizes) for each in plans.plan().candidates)
    sweep.print_plan(dataclasses.replace(plans.plan(), candidates=made), tmp_path)
    shown = capsys.readouterr().out
    assert "additive" in shown and "general" in shown and UNMATCHED in shown
    assert "  136,453         2.682 G" in shown
    assert "4 trials: seeds 0, 1\n2 seeds of 2 variants find a difference to additive" in shown
    searched = plans.plan(
        search=Search({"schedule.peak": choice(1e-3, 2e-3, 4e-3)}, sampler="grid", trials=3),
        seeds=(5, 1, 2),
    )
    sweep.print_plan(dataclasses.replace(searched, candidates=()), tmp_path)
    text = (
        "3 settings of schedule.peak for each of 2 variants, with seed 5; the best of each with"
        " seeds 1, 2 too: at most 10 trials"
    )
    assert capsys.readouterr().out.startswith(
        f"{searched.question}\nadditive, general\n{text}\n3 seeds of 2 variants find"
    )
    assert outlook(dataclasses.replace(searched, seeds=(5,)), tmp_path).endswith(
        "with seed 5: at most 6 trials"
    )


def test_a_dry_run_counts_what_will_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a variant whose choice is frozen only the chosen candidate's; what has settled is told."""
    plan = stub.planned(tmp_path, tune=grid({"schedule.peak": (0.1, 0.2)}))
    for trial in plan.trials():
        stub.finish(trial, tmp_path)
    freeze(plan, tmp_path)
    grown = stub.planned(tmp_path, tune=grid({"schedule.peak": (0.1, 0.2)}), seeds=(0, 1, 2, 3))
    monkeypatch.setattr(running, "draft", lambda file, directory, changes: grown)
    file = real.experiment(tmp_path / "which.py", COMPARE)
    ended = completed(["sweep", file, f"--dir={tmp_path}", "--dry-run"])
    runs = len(wanted(grown, Choice.read(tmp_path)))
    assert (runs, len(grown.trials())) == (8, 16)
    assert ended.out.splitlines()[-2] == (
        "8 trials: seeds 0, 1, 2, 3; 4 of them have settled before; the choice is frozen"
        " (additive, general), so 8 trials of candidates that were not chosen are left out"
    )


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
