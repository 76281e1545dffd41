"""Reads and checks an experiment file, and gives the plain values that define the experiment;
imports no jax.
"""

import dataclasses
import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from attnlab.config import call_file, find_file, flat, read_config_file
from attnlab.config.files import fitting_warmup
from attnlab.config.patterns import covers
from attnlab.errors import UserError, nearest
from attnlab.experiments.define.axes import Axis, Point, check_count, flattened, layered
from attnlab.experiments.define.command_line import typed
from attnlab.experiments.define.derived import forms, is_derived
from attnlab.experiments.define.experiment import Budget, Claim, Contrast, Experiment, Mode, on_task
from attnlab.experiments.define.search import Search
from attnlab.training.pruning import Keep

WITHIN: Mapping[str, float] = {"parameters": 0.01, "flops": 0.02}
"""What a budget may match, and the share by which a variant may differ from it where the experiment
names none.
"""

MOST_LOOKS = 20


@dataclasses.dataclass(frozen=True)
class Changes:
    """What a command line changes of an experiment.

    Attributes:
      base: settings "a.b=value" for all variants, on top of the file's.
      seeds: instead of the file's, () to keep those.
      accept: whether to continue if the user's code has changed since trials were trained.
      replace: whether a plan may be replaced by one that leaves out trials that have begun.
      unmatched: whether variants may miss the budget.
      keep: what stays of finished trials' states; None for what the plan says.
      task: the one of the experiment's tasks that is meant; "" for all, or where it has none.
    """

    base: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    accept: bool = False
    replace: bool = False
    unmatched: bool = False
    keep: Keep | None = None
    task: str = ""

    def applied(self, experiment: Experiment) -> Experiment:
        """Returns a copy of the experiment with the command line's settings added to its base, a
        shorter warm-up if fewer steps need it, and its seeds replaced if given; raises `UserError`
        for a setting that the experiment varies.

        Raises:
          UserError: a setting that the experiment varies, so that the change would have no effect.
        """
        base = dict(change.split("=", 1) for change in self.base)
        for key in (name.removesuffix(".name") for name in base):
            for what, keys in _varied(experiment).items():
                names = [name.removesuffix(".name") for name in keys]
                if any(covers(key, name) or covers(name, key) for name in names):
                    raise UserError(
                        f"--config.{key}: this setting is {what} in the experiment; change it in"
                        " the file"
                    )
        settings = flattened(experiment.base, "base")
        given = typed(base, settings, experiment.config)
        file = {**flat(read_config_file(experiment.config)), **settings} if given else {}
        if (warmup := fitting_warmup(file, {**file, **given}, given)) is not None:
            given["schedule.warmup"] = warmup
        base = layered(settings, given)
        return dataclasses.replace(experiment, base=base, seeds=self.seeds or experiment.seeds)


AS_IT_IS = Changes()


def _varied(experiment: Experiment) -> dict[str, set[str]]:
    """Returns the settings that differ between candidates as {reason: set of dotted names}; the
    reasons are compared, tuned, searched, and solved for by the budget.
    """
    budget, search = experiment.budget, experiment.search
    return {
        "compared": {key for point in experiment.compare for key in point.overrides},
        "tuned": {key for point in experiment.tune for key in point.overrides},
        "searched": set(search.space) if search is not None else set(),
        "solved for by the budget": {budget.knob, *budget.knobs.values()} if budget else set(),
    }


def load_experiment(path_and_argument: str, changes: Changes = AS_IT_IS) -> Experiment:
    """Runs `get_experiment` of the file in "FILE.py" or "FILE.py:ARGUMENT", applies the changes of
    a command line, checks the experiment and returns it; one with several tasks, of which the
    changes choose none, is checked on each and returned unchanged.

    Raises:
      UserError: no such file, no `get_experiment`, an error inside it (with its line), or something
        wrong with what it states.
    """
    path = where = path_and_argument.partition(":")[0]
    find_file(path, "experiment file")
    try:
        experiment = call_file(path_and_argument, "get_experiment", "experiment file")
        if not isinstance(experiment, Experiment):
            raise UserError(
                f"get_experiment returned {type(experiment).__name__}, expected"
                " attnlab.experiments.Experiment"
            )
        names = [changes.task] if changes.task else [*experiment.tasks] or [""]
        for name in names:
            where = f"{path}: task {name!r}" if name else path
            of_task = changes.applied(on_task(experiment, name))
            check(of_task)
    except UserError as error:
        words = str(error)
        raise UserError(words if words.startswith(path) else f"{where}: {words}") from error
    return of_task if len(names) == 1 else experiment


def check(experiment: Experiment) -> None:
    """Checks all parts of an experiment that need no model (such as names, axes, seeds, metrics,
    budget and claim), and that its config file exists; raises `UserError` at the first mistake.

    Raises:
      UserError: the first mistake, with its name, the value and what would be valid.
    """
    for name in ("question", "config"):
        value = getattr(experiment, name)
        if not isinstance(value, str) or not value.strip():
            raise UserError(f"{name} is {value!r}; a text is needed")
    find_file(experiment.config.partition(":")[0], "config file")
    names = _check_axis("compare", experiment.compare)
    if not names:
        raise UserError("compare is empty; name at least one variant, rows({'base': {}})")
    _check_axis("tune", experiment.tune)
    _check_keys(experiment)
    check_count([experiment.compare, experiment.tune or (None,)], "compare by tune")
    _check_seeds(experiment.seeds)
    if type(experiment.looks) is not int or not 1 <= experiment.looks <= MOST_LOOKS:
        raise UserError(
            f"looks is {experiment.looks!r}; a whole number from 1 to {MOST_LOOKS} is needed, of"
            " looks at the test split"
        )
    _check_word("baseline", experiment.baseline or names[0], names)
    for name in ("select", "measure"):
        _check_metric(name, getattr(experiment, name))
    if experiment.budget is not None:
        _check_budget(experiment.budget, experiment.compare)
    if experiment.claim is not None:
        _check_claim(experiment.claim, names)


def _check_word(where: str, word: Any, choices: Iterable[str]) -> None:
    choices = list(choices)
    if word not in choices:
        raise UserError(f"{where} is {word!r}; {nearest(str(word), choices)}")


def _check_axis(name: str, axis: Any) -> list[str]:
    """Returns the names of the points of an axis; raises `UserError` if it is no axis, or two
    points have the same name or the same settings.
    """
    if not isinstance(axis, tuple) or not all(isinstance(point, Point) for point in axis):
        raise UserError(f"{name} is {axis!r}; make it with grid, zipped, rows or cross")
    for point, other in itertools.combinations(axis, 2):
        if point.name == other.name:
            raise UserError(f"{name} has two points called {point.name!r}; name them with rows")
        if point.overrides == other.overrides:
            raise UserError(f"{name}: {point.name!r} and {other.name!r} are the same settings")
    return [point.name for point in axis]


def _check_keys(experiment: Experiment) -> None:
    """Raises `UserError` if a setting is both compared and tuned, the seed is among the settings,
    both `search` and `tune` are given, or `search` is no `Search`.
    """
    if experiment.search is not None:
        if experiment.tune:
            raise UserError("tune and search are both given; take one of them")
        if not isinstance(experiment.search, Search):
            raise UserError(
                f"search is {experiment.search!r}; make it with"
                " attnlab.experiments.define.search.Search"
            )
    varied = _varied(dataclasses.replace(experiment, budget=None))
    compared, tuned = varied["compared"], varied["tuned"] | varied["searched"]
    for key, other in itertools.product(sorted(compared), sorted(tuned)):
        if covers(key, other) or covers(other, key):
            names = " as ".join(map(repr, dict.fromkeys((key, other))))
            raise UserError(f"{names} is both compared and tuned; take one of them")
    if "seed" in {*compared, *tuned, *flattened(experiment.base, "base")}:
        raise UserError("'seed' is set like any other setting; name the seeds in seeds=(0, 1, 2)")


def _check_seeds(seeds: Any) -> None:
    """Raises `UserError` unless seeds are a non-empty sequence of different whole numbers from 0 to
    2**32 - 1.
    """
    whole = (
        isinstance(seeds, Sequence)
        and not isinstance(seeds, str)
        and all(type(seed) is int and 0 <= seed < 2**32 for seed in seeds)
    )
    if not whole or not seeds or len(set(seeds)) < len(seeds):
        raise UserError(
            f"seeds is {seeds!r}; different whole numbers of at least 0 are needed, all below"
            " 2**32, such as (0, 1, 2)"
        )


def _check_metric(name: str, value: Any) -> None:
    """Raises `UserError` unless a value is a pair of a metric's name and a mode, "min" or "max"."""
    are_texts = isinstance(value, tuple) and all(isinstance(part, str) for part in value)
    if not are_texts or len(value) != 2:
        raise UserError(
            f"{name} is {value!r}; a metric and a mode are needed, such as ('loss', 'min')"
        )
    _check_word(f"the mode of {name}", value[1], get_args(Mode))


def _check_budget(budget: Any, compare: Axis) -> None:
    """Raises `UserError` at the first mistake in a budget: what it matches, its knobs, the
    tolerated share, or a variant that is not compared.
    """
    if not isinstance(budget, Budget):
        raise UserError(
            f"budget is {budget!r}; make it with Budget(match='parameters', knob='system.decoder')"
        )
    _check_word("budget.match", budget.match, WITHIN)
    if not isinstance(budget.knobs, Mapping):
        raise UserError(
            f"budget.knobs is {budget.knobs!r}; variants and their knobs are needed, such as"
            " {'wide': 'system.hidden'}"
        )
    of_variants = {f"knobs[{variant!r}]": knob for variant, knob in budget.knobs.items()}
    for name, knob in {"knob": budget.knob, **of_variants}.items():
        if not isinstance(knob, str) or not knob:
            raise UserError(
                f"budget.{name} is {knob!r}; the full name of a whole number is needed, such as"
                " 'system.decoder'"
            )
    variants = [point.name for point in compare]
    for variant in budget.knobs:
        _check_word("budget.knobs: the variant", variant, variants)
    if budget.within is not None and not (_is_number(budget.within) and 0 <= budget.within < 1):
        raise UserError(
            f"budget.within is {budget.within!r}; a share of at least 0 and below 1 is needed, such"
            " as 0.01"
        )
    _check_word("budget.to", budget.to or variants[0], variants)


def _check_claim(claim: Any, variants: Iterable[str]) -> None:
    """Raises `UserError` at the first mistake in a claim, such as a variant that is not compared,
    weights that do not add up to 0 or are all 0, a number that is not finite, or an unknown derived
    measure.
    """
    if not isinstance(claim, Claim) or not isinstance(claim.statement, str) or not claim.contrasts:
        raise UserError(
            f"claim is {claim!r}; make it with Claim('one sentence', (better('a', 'b', by=0.05),))"
        )
    for contrast in claim.contrasts:
        if not isinstance(contrast, Contrast):
            raise UserError(
                f"claim: {contrast!r} is no contrast; make it with better(one, other, by=0.05) or"
                " Contrast(weights)"
            )
        for variant in contrast.weights:
            _check_word("claim: the variant of a contrast", variant, variants)
        if not all(map(_is_number, contrast.weights.values())) or not _is_number(contrast.at_least):
            raise UserError(f"claim: {contrast!r} has something in it that is no finite number")
        if contrast.on and not (isinstance(contrast.on, str) and is_derived(contrast.on)):
            raise UserError(
                f"claim: a contrast is on {contrast.on!r}; {nearest(str(contrast.on), forms())}"
            )
        total = math.fsum(contrast.weights.values())
        if abs(total) > 1e-9 or not any(contrast.weights.values()):
            raise UserError(
                f"claim: the weights {dict(contrast.weights)} add up to {total:g}; they must add up"
                " to 0, and not all be 0"
            )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def definition(experiment: Experiment, file: str) -> dict[str, Any]:
    """Returns everything that defines an experiment as a dict of plain JSON values, named as the
    fields of `Plan` and with defaults filled in; its name comes from `file`, the path and argument
    of the experiment file.

    Args:
      experiment: checked.
      file: the experiment file as it was given, with its argument.
    """
    path, colon, argument = file.partition(":")
    first, budget, claim = experiment.compare[0].name, experiment.budget, experiment.claim
    fields = {
        "name": Path(path).stem + colon + argument,
        "question": experiment.question,
        "config": experiment.config,
        "base": flattened(experiment.base, "base"),
        "variants": {point.name: point.overrides for point in experiment.compare},
        "tune": [dataclasses.asdict(point) for point in experiment.tune],
        "seeds": experiment.seeds,
        "baseline": experiment.baseline or first,
        "select": dict(zip(("metric", "mode"), experiment.select, strict=True)),
        "measure": dict(zip(("metric", "mode"), experiment.measure, strict=True)),
        "budget": None,
        "claim": claim and _claimed(claim, experiment.measure[1]),
        "search": experiment.search and experiment.search.to_dict(),
        "looks": experiment.looks,
    }
    if budget is not None:
        within = WITHIN[budget.match] if budget.within is None else budget.within
        to = budget.to or fields["baseline"]
        fields["budget"] = dataclasses.asdict(dataclasses.replace(budget, within=within, to=to))
    return json.loads(json.dumps(fields))


def _claimed(claim: Claim, mode: Mode) -> dict[str, Any]:
    """Returns a claim as a dict for `Plan`: its statement, and contrasts whose weights apply to the
    measure itself, whichever `mode` is better; `on` only if it is set.
    """
    literal = (contrast.literal(mode) for contrast in claim.contrasts)
    contrasts = [
        {"weights": dict(each.weights), "at_least": each.at_least}
        | ({"on": each.on} if each.on else {})
        for each in literal
    ]
    return {"statement": claim.statement, "contrasts": contrasts}


def definition_hash(defined: Mapping[str, Any]) -> str:
    """Returns 12 hex digits of the SHA-256 of a `definition` and of the text of its config file,
    since an edit of that file may change settings.
    """
    text = find_file(defined["config"].partition(":")[0], "config file").read_bytes()
    # older experiments, without looks, keep their hash
    hashed = {name: value for name, value in defined.items() if (name, value) != ("looks", 1)}
    canonical = json.dumps(hashed, separators=(",", ":"))  # the order of the variants counts too
    return hashlib.sha256(canonical.encode() + text).hexdigest()[:12]


def default_directory(file: str) -> str:
    """Returns the default folder of a sweep: `runs/<name of the file>`, with its argument if there
    is one.
    """
    path, _, argument = file.partition(":")
    slug = re.sub(r"[^A-Za-z0-9._]+", "-", argument).strip("-.")
    return f"runs/{Path(path).stem}{'-' if slug else ''}{slug}"
