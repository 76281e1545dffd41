"""Planning in this process: what a plan holds, budgets met or labelled, plans that grow, mistakes
that leave nothing behind.
"""

import dataclasses
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from attnlab.experiments.define import Changes, loading
from attnlab.experiments.plan import Plan
from attnlab.experiments.plan import process as planning
from attnlab.experiments.plan.process import made
from attnlab.experiments.run.planning import grow
from attnlab.records import provenance
from attnlab.records.manifest import Manifest
from tests.experiments.plan.planning import SCORES, SEARCH, WIDER, WIDEST, planned, refused
from tests.experiments.plans import experiment_file
from tests.experiments.synthetic import met
from tests.refusals import check_refused


def test_a_plan_holds_every_candidate_resolved_and_counted(tmp_path: Path) -> None:
    plan = planned(tmp_path, SCORES, "tune=grid({'schedule.peak': (1e-3, 3e-3)})", "seeds=(4, 7)")
    assert [one.variant for one in plan.candidates] == [*["additive"] * 2, *["general"] * 2]
    tuned = [one.tuned["schedule.peak"] for one in plan.candidates[:2]]
    assert tuned == [1e-3, 3e-3] and {*plan.candidates[0].tuned} == {"schedule.peak"}
    last = plan.candidates[-1]
    assert last.config["seed"] == 4 and last.config["schedule"]["peak"] == 3e-3
    assert last.config["system"]["attention"]["score"]["name"] == "general"
    assert last.config["batch"]["buckets"] == [32]
    assert last.overrides["system.attention.score"] == "general" and last.budget is None
    assert last.parameters != plan.candidates[0].parameters > 1000
    assert plan.candidates[0].parameters == plan.candidates[1].parameters
    assert 1e5 < last.flops < 1e9 and last.counted.transcendentals is not None
    assert 1e3 < last.counted.transcendentals < last.flops
    assert (last.counted.loops, last.counted.idle, last.counted.examples) == (0, (), 16.0)
    assert Plan.read(tmp_path / "sweep") == plan


def test_an_experiment_is_planned_once(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(tmp_path, SCORES)
    monkeypatch.setattr(planning, "Builder", None)
    assert planned(tmp_path, SCORES) == plan


SCORED = {
    "select=('los', 'min')": "select: unknown metric 'los'; did you mean 'loss'?",
    "measure=('step_second', 'min')": "measure: unknown metric 'step_second'; did you mean 'step_seconds'",
    "measure=('step_seconds', 'max')": "of 'step_seconds', less is better; write ('step_seconds', 'min')",
    "measure=('steps_to(exact>=0.9)', 'min')": "measure: 'steps_to(exact>=0.9)' needs a score that is known while",
    "select=('step_seconds', 'min')": "select: unknown metric 'step_seconds'; choose from: ",
    "claim=Claim('It is.', (better('additive', 'general', on='seconds_to(loss>=1)'),))": "claim: 'seconds_to(loss>=1)'"
    " waits for loss to get worse; write 'seconds_to(loss<=1)'",
    "measure=('exact', 'min')": "measure=('exact', 'min'): of 'exact', max is better; write ('exact', 'max')",
    "budget=Budget('parameters', 'system.decodr')": "budget.knob 'system.decodr': no such setting; did you mean 'system.decoder'",
    "budget=Budget('parameters', 'system.dropout')": "budget.knob 'system.dropout' is 0.0; a whole number",
}
"""Mistakes beside two variants that differ in their score."""

VARIED = {
    "{'a': {}, 'b': {'system.attention.score': 'genral'}}": "variant 'b': config.system.attention.score: unknown score",
    "{'a': {}, 'b': {'system.attention.score': 'additive'}}": "two candidates have the same settings",
    "{'a': {'data': 'files', 'data.directory': 'nowhere'}}": "variant 'a': ",
    "{v: {'system.attention.score': 'genral', 'training.steps': 20 + i} for i, v in"
    " enumerate('abcdef')}": "variant 'a', variant 'b', variant 'c', variant 'd' and 2 more: config.system",
    "{v: {'system.attention.score': f'{v}y'} for v in 'abcdef'}": "; and 2 more mistakes",
}
"""Mistakes in the variants themselves."""

TUNED = (
    "compare=rows({'a': {}})",
    "tune=grid({'schedule.paek': (1,), 'batch.buckets': ((8, 16),)})",
)
DIVIDED = ("compare=rows({'a': {'batch.size': 15}})", "tune=grid({'training.accumulate': (2,)})")
SOLVED = (WIDER, "budget=Budget('parameters', 'system.encoder')")
STARRED = (WIDER.replace("encoder", "enc*r"), SOLVED[1])
MISTAKES = [
    *(((SCORES, line), words) for line, words in SCORED.items()),
    *(((f"compare=rows({rows})",), words) for rows, words in VARIED.items()),
    (
        TUNED,
        "variant 'a' with schedule.paek=1 with batch.buckets=(8, 16): config.schedule.paek: no",
    ),
    (DIVIDED, "config.batch.size=15 is not divisible by 2"),
    (SOLVED, "variant 'wide': 'system.encoder' is set, but the budget solves for it"),
    (STARRED, "variant 'wide': 'system.encoder' is set, but the budget solves for it"),
]


@pytest.mark.parametrize(("lines", "words"), MISTAKES)
def test_a_mistake_names_its_variant_and_leaves_nothing(
    lines: tuple[str, ...], words: str, tmp_path: Path, quick: None
) -> None:
    assert words in refused(tmp_path, *lines)
    assert not (tmp_path / "sweep").exists()


def test_parameters_are_matched(tmp_path: Path, quick: None) -> None:
    budget = "budget=Budget('parameters', 'system.decoder', within=0.03)"
    plan = planned(tmp_path, WIDER, "tune=grid({'system.embedding': (8, 16)})", budget)
    for narrow, wide in zip(plan.of("additive"), plan.of("wide"), strict=True):
        # candidates of equal tuning match each other
        assert narrow.tuned == wide.tuned and wide.budget["wanted"] == narrow.parameters
        near = pytest.approx(narrow.parameters, rel=0.03)
        assert wide.parameters == wide.budget["reached"] == near and wide.budget["matched"]
        value = wide.budget["value"]
        assert wide.config["system"]["decoder"] == wide.overrides["system.decoder"] == value
        assert narrow.config["system"]["decoder"] == narrow.budget["value"] == 8
        assert narrow.overrides["system.decoder"] == "8"


def test_flops_are_matched_to_the_variant_that_is_named(tmp_path: Path, quick: None) -> None:
    budget = "budget=Budget('flops', 'system.decoder', to='widest')"
    additive, widest = planned(tmp_path, WIDEST, budget).candidates
    assert widest.flops == 8000 + 2000 and widest.overrides["system.decoder"] == "8"
    assert additive.flops == 10_400 and additive.overrides["system.decoder"] == 10
    assert additive.budget == met(10_400, 10_000, knob="system.decoder", value=10)
    loose, _ = planned(tmp_path, WIDEST, budget.replace("to=", "within=0.05, to=")).candidates
    assert loose.budget["matched"]
    # 9,800 are wanted and 9,400 are nearest: too few is as far off as too many
    low = WIDEST.replace("40", "36")
    below, _ = planned(tmp_path, low, budget).candidates
    assert (below.budget["reached"], below.budget["matched"]) == (9400, False)
    near, _ = planned(tmp_path, low, budget.replace("to=", "within=0.05, to=")).candidates
    assert near.budget["matched"]


def test_a_variant_may_have_a_knob_of_its_own(tmp_path: Path, quick: None) -> None:
    knobs = "knobs={'wide': 'system.maxout'}"
    budget = f"budget=Budget('parameters', 'system.decoder', 0.05, {knobs})"
    additive, wide = planned(tmp_path, WIDER, budget).candidates
    assert [one.budget["knob"] for one in (additive, wide)] == ["system.decoder", "system.maxout"]
    assert wide.overrides["system.maxout"] == wide.budget["value"]
    decoder = additive.overrides["system.decoder"]
    assert wide.overrides.get("system.decoder", decoder) == decoder


def test_what_cannot_be_matched_is_labelled(tmp_path: Path, quick: None) -> None:
    """It has more without the knob, or the knob does nothing."""
    budget = "budget=Budget('parameters', 'system.decoder')"
    _, missed = planned(tmp_path, WIDEST, budget).candidates
    assert (missed.budget["matched"], missed.budget["value"]) == (False, 1)
    assert missed.budget["reached"] == missed.parameters > missed.budget["wanted"] * 1.05
    _, idle = planned(tmp_path, WIDEST, "budget=Budget('parameters', 'data.examples')").candidates
    assert (idle.budget["matched"], idle.budget["note"]) == (False, "it makes no difference")


def test_ids_know_nothing_of_what_the_budget_found(tmp_path: Path, quick: None) -> None:
    free = planned(tmp_path, WIDER)
    (tmp_path / "sweep" / "plan.json").unlink()
    matched = planned(tmp_path, WIDER, "budget=Budget('flops', 'system.decoder')")
    assert [one.id for one in matched.candidates] == [one.id for one in free.candidates]


def test_a_plan_grows(tmp_path: Path, quick: None) -> None:
    old = planned(tmp_path, SCORES, "seeds=(0,)")
    more = (
        "compare=rows({'dot': {'system.attention.score': 'location'}, 'additive': {}, 'general':"
        " {'system.attention.score': 'general'}})"
    )
    (tmp_path / "sweep" / "choice.json").write_text("{}")
    new = planned(tmp_path, more, "seeds=(0, 1)", "baseline='additive'")
    assert [one.variant for one in new.candidates] == ["dot", "additive", "general"]
    assert new.candidates[1:] == old.candidates and new.created == old.created
    assert new.hash != old.hash
    assert "its choice is made" in refused(tmp_path, SCORES, "seeds=(1,)")
    assert Plan.read(tmp_path / "sweep") == new


def test_trials_of_another_config_are_not_taken_over(tmp_path: Path, quick: None) -> None:
    """The budget changes what an id stands for; before anything was trained that is fine."""
    budget = "budget=Budget('parameters', 'system.decoder', within=0.4)"
    plan = planned(tmp_path, WIDER)
    made(experiment_file(tmp_path / "which.py", WIDER, budget), tmp_path / "sweep")
    trial = plan.trials()[1]
    workdir = trial.workdir(tmp_path / "sweep")
    workdir.mkdir(parents=True)
    elsewhere = {**trial.config, "seed": 9, "parallel": {"devices": 2}}  # no part of what it is
    Manifest.build(elsewhere, devices={}, data={}).write(workdir)
    words = f"variant 'wide': {workdir} was trained with another config: system.decoder: saved 8"
    told = refused(tmp_path, WIDER, budget)
    assert f"{words}, wanted" in told and "parallel" not in told
    assert planned(tmp_path, WIDER) == plan


def test_how_far_the_check_of_a_search_is(tmp_path: Path, quick: None) -> None:
    """Both of its parts count: each variant, and with a budget each with the other options."""
    space = "search=Search({'system.embedding': choice(8, 16, 24)}, trials=2)"
    budget = "budget=Budget('parameters', 'system.decoder', within=0.5)"
    file = experiment_file(tmp_path / "which.py", WIDER, space, budget, imports=SEARCH)
    counts: list[tuple[int, int]] = []
    made(file, tmp_path / "sweep", count=lambda *given: counts.append(given))
    assert counts == [(0, 2), (1, 2), *((done, 6) for done in range(2, 6))]


def test_a_search_plans_what_it_finds(tmp_path: Path, inside: None) -> None:
    search = (
        "search=Search({'schedule.peak': log_uniform(1e-3, 1e-2), 'system.readout':"
        " choice('current', 'previous')}, trials=2)"
    )
    plan = planned(tmp_path, SCORES, search, imports=SEARCH)
    assert plan.candidates == () and plan.search is not None

    general, additive = ((name, {"schedule.peak": 2e-3}) for name in ("general", "additive"))
    grow(tmp_path / "sweep", [general, additive, general])
    grown = Plan.of_sweep(tmp_path / "sweep")
    assert [one.variant for one in grown.candidates] == ["general", "additive"]
    words = "^variant 'general' with schedule.peak=x: config.schedule.peak='x': expected float"
    check_refused(words, grow, tmp_path / "sweep", [("general", {"schedule.peak": "x"})])
    again = planned(tmp_path, SCORES, search, "seeds=(0, 1)", imports=SEARCH)
    assert again.candidates == grown.candidates  # what was found stays when the experiment grows
    other = SCORES.replace("'general'}", "'general', 'system.dropout': 0.1}")
    (kept,) = planned(tmp_path, other, search, imports=SEARCH).candidates
    assert kept.variant == "additive"
    select = "select=('accuracy', 'max')"
    assert planned(tmp_path, other, search, select, imports=SEARCH).candidates == ()
    bad = search.replace("'previous'", "'last'")
    words = "variant 'additive' with system.readout=last: "
    assert words in refused(tmp_path, SCORES, bad, imports=SEARCH)


OWN = (
    "from attnlab.attention.mechanisms.single import Single\nfrom own_plan_aid import *\n\n\nclass"
    " Own(Single):\n    pass\n"
)
VARIANTS = "compare=rows({'additive': {}, 'own': {'system.attention': 'own_plan:Own'}})"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None) -> Iterator[Path]:
    """The file that a mechanism of the user's imports."""
    (tmp_path / "own_plan.py").write_text(OWN)
    (tmp_path / "own_plan_aid.py").write_text("ONE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "own_plan_aid.py"
    for name in ("own_plan", "own_plan_aid"):
        sys.modules.pop(name, None)


def begin_all(plan: Plan, directory: Path) -> None:
    """Every trial of a plan has a manifest and a record."""
    for trial in plan.trials():
        workdir = trial.workdir(directory)
        workdir.mkdir(parents=True, exist_ok=True)
        code = provenance.code(trial.config).record()
        Manifest.build(trial.config, devices={}, data={}, own_code=code).write(workdir)
        (workdir / "metrics.jsonl").write_text('{"step": 1, "split": "train"}\n')


def test_code_of_the_users_own_is_part_of_a_plan(own: Path, tmp_path: Path) -> None:
    """Of the candidates that name it, and of no others; other code is another candidate as long as
    nothing was trained.
    """
    file = experiment_file(tmp_path / "which.py", VARIANTS)
    plan = made(file, tmp_path / "sweep")
    additive, mine = plan.candidates
    assert additive.code == {} and mine.code is not None
    assert {*mine.code} == {"own_plan", "own_plan_aid"}
    assert plan.made_of(plan.want("own", {}).id) == mine != plan.want("own", {})
    assert mine.id != plan.want("own", {}).id
    named = [f"experiment-file/{name}.py" for name in ("own_plan", "own_plan_aid", "which")]
    assert [*plan.own_code["files"]][:1] == ["config-file/translation.py"]
    assert sorted(plan.own_code["files"])[1:] == named
    plan.write(tmp_path / "sweep")
    assert made(file, tmp_path / "sweep") == plan
    own.write_text("ONE = 2\n")
    again = made(file, tmp_path / "sweep")
    assert again.candidates[0] == additive and again.candidates[1].id != mine.id
    assert again.candidates[1].wanted == mine.wanted


def test_a_plan_goes_on_with_other_code_only_where_that_is_accepted(
    own: Path, tmp_path: Path
) -> None:
    """Then its candidates keep their names and results, and the plan says who mixed what."""
    plan = planned(tmp_path, VARIANTS, "seeds=(0,)")
    begin_all(plan, tmp_path / "sweep")
    own.write_text("ONE = 2\n")
    workdir = plan.trials()[1].workdir(tmp_path / "sweep")
    words = f"{workdir} was made with other code: {own} has changed"
    assert words in refused(tmp_path, VARIANTS)
    assert words in refused(tmp_path, VARIANTS, "seeds=(0, 1)")
    points = [("own", {"schedule.peak": 0.5})]
    check_refused(re.escape(words), planning.grown, tmp_path / "sweep", points)
    mixed = made(str(tmp_path / "which.py"), tmp_path / "sweep", Changes(accept=True))
    assert [one.id for one in mixed.candidates] == [one.id for one in plan.candidates]
    (word,) = mixed.own_code["accepted"]
    assert word["candidate"] == plan.candidates[1].id and {*word["changed"]} == {"own_plan_aid"}
    assert word["by"]
    assert mixed.candidates[1].code == provenance.code(plan.candidates[1].config).digests
    mixed.write(tmp_path / "sweep")
    assert made(str(tmp_path / "which.py"), tmp_path / "sweep") == mixed  # nobody is asked twice


def test_a_plan_that_kept_no_code_goes_on_as_it_is(own: Path, tmp_path: Path) -> None:
    plan = planned(tmp_path, VARIANTS)
    without = {"wanted": "", "code": None}
    old = [dataclasses.replace(one, id=one.wanted or one.id, **without) for one in plan.candidates]
    dataclasses.replace(plan, candidates=tuple(old), own_code=None).write(tmp_path / "sweep")
    own.write_text("ONE = 2\n")
    assert [one.id for one in planned(tmp_path, VARIANTS).candidates] == [one.id for one in old]
    grown = planned(tmp_path, VARIANTS, "seeds=(0, 1)")
    assert [(one.id, one.code) for one in grown.candidates] == [(old[0].id, {}), (old[1].id, None)]


TUNES = "tune=grid({'schedule.peak': (1e-3,)})"


@pytest.mark.parametrize(
    ("lines", "changes", "words"),
    [
        ((SCORES,), Changes(("training.steps=24",)), "4 .*: training.steps: 12, now 24. Give what"),
        ((SCORES,), Changes(seeds=(0,)), "2 .*: seed 1 is gone. Give"),
        ((WIDER,), Changes(), "2 .*: variant 'general' is gone"),
        ((SCORES, TUNES), Changes(), "4 .*: tune has changed"),
    ],
)
def test_trials_that_have_begun_are_left_out_only_on_demand(
    lines: tuple[str, ...], changes: Changes, words: str, tmp_path: Path, quick: None
) -> None:
    plan = planned(tmp_path, SCORES, "seeds=(0, 1)")
    file = experiment_file(tmp_path / "which.py", "seeds=(0, 1)", *lines)
    directory, words = tmp_path / "sweep", words.replace(".*", "would be left out")
    assert made(file, directory, changes) != plan  # nothing has begun, nothing is lost
    begin_all(plan, directory)
    words = f"{re.escape(f'{directory}: of 4 trials that have begun, {words}')}.*--change-plan"
    check_refused(words, made, file, directory, changes)
    assert made(file, directory, dataclasses.replace(changes, replace=True)) != plan
    wider = SCORES.replace("})", ", 'wide': {'system.encoder': 10}})")
    grown = experiment_file(tmp_path / "which.py", wider, "seeds=(0, 1, 2)")
    assert len(made(grown, directory, Changes()).trials()) == 9  # growing is free


def test_all_bad_variants_are_named(tmp_path: Path, quick: None) -> None:
    """Each once, whatever is tuned; whether a setting is wrong by itself or only in its system."""
    score = "system.attention.score"
    variants = {"a": {score: "x"}, "good": {}, "b": {"system.attention.score.heads": 3}}
    message = refused(tmp_path, f"compare=rows({variants})", "tune=grid({'schedule.peak': (1, 2)})")
    assert "\n" not in message
    counts = [message.count(f"variant '{name}'") for name in variants]
    assert counts == [1, 0, 1], message


def test_a_plan_with_texts_of_the_command_line_is_found_again(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions kept `=24` as "24": the same command finds plan and trials as they were. So
    does one that names what is there.
    """
    file, directory = tmp_path / "which.py", tmp_path / "sweep"
    experiment_file(file, SCORES, "seeds=(0, 1, 2)")
    file.write_text(file.read_text().replace("'training.steps': '12'", "'training.steps': 12"))
    changes = ("training.steps=24", "schedule.peak=2e-3")
    with monkeypatch.context() as earlier:
        earlier.setattr(loading, "typed", lambda settings, base, config: dict(settings))
        earlier.setattr(loading, "fitting_warmup", lambda *given: None)
        old = made(str(file), directory, Changes(changes))
    assert (old.base["training.steps"], old.base["schedule.peak"]) == ("24", "2e-3")
    old.write(directory)
    begin_all(old, directory)
    now = made(str(file), tmp_path / "new", Changes(changes))
    assert (now.base["training.steps"], now.base["schedule.peak"]) == (24, 2e-3)
    identities = [one.id for one in old.candidates]
    assert {*identities}.isdisjoint(one.id for one in now.candidates)
    assert made(str(file), directory, Changes(changes)) == old
    more = made(str(file), directory, Changes((*changes, "training.log_every=3"), (0, 1, 2, 3)))
    assert [one.id for one in more.candidates] == identities and more.seeds == (0, 1, 2, 3)
    found = [more.made_of(more.want(name, {}).id) for name in old.variants]
    assert [*more.candidates] == found
