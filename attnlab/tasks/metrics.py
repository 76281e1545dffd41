"""Scores that a config asks for beside those of its task (`training.metrics`).

A *statistic of heads*, named without a colon ("previous_argmax", see `attnlab.analysis.heads`), gives
two scores, its mean over all heads and the largest, over the first examples of a split. It is logged
at each validation and stands in the records of a finished run.

A *function of one's own*, "module:function", of the answers and the rows of a split gives a number
for each row. The score is their mean, and is resampled as ours are.

    def brevity(answers, rows):
        return [len(answer) / len(target) for answer, (source, target) in zip(answers, rows)]

    brevity.better = "min"  # else "max"

`answers` are those of the file of answers, in order; `rows` what the data source gives for each
example: a pair of texts; (texts, label); the label or the caption of an image.
Importing this loads no jax.
"""

import functools
import itertools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attnlab.config.registry import Table
from attnlab.errors import UserError, reason, users_line
from attnlab.records.items import Items

if TYPE_CHECKING:
    import numpy as np

    from attnlab.tasks import AnyTask
    from attnlab.tasks.maps import MapProgram

Metric = Callable[..., Any]
FAILED = "failed_metrics"
"""The key of the scores under which metrics stand that gave no numbers, each with "why"."""
_TAKEN = {"step", "parameters", "measures", "split", "decoding_seconds", "changed_code", FAILED}
_NO_ANSWERS = ("", "tags.tsv", "overlaps.tsv")
"""Files of outputs (`Task.outputs`) that have no answer for each example."""
_PATTERNS = ("sink", "previous", "next", "duplicate", "induction", "delimiter", "rare")
HEAD_STATISTICS = (
    *("entropy", "normalised_entropy", "confidence", "distance"),
    *map("_".join, itertools.product(_PATTERNS, ("mass", "argmax", "chance"))),
)
_NAMED = dict.fromkeys(HEAD_STATISTICS, "attnlab.analysis.inside:head_scores")
METRICS: Table[Metric] = Table(
    "metric", {**_NAMED, "module:function": ""}, given=("answers", "rows")
)


def path_of(metric: Metric) -> str:
    """Returns the path "module:function" of a metric; raises `UserError` unless its module has the
    function by its name, so that it can be imported again.
    """
    module, name = getattr(metric, "__module__", ""), getattr(metric, "__name__", "")
    if getattr(sys.modules.get(module), name, None) is not metric:
        raise UserError(
            f"metrics: {metric!r} is no function with a name of its own in a module or notebook;"
            " define it there with 'def'"
        )
    return f"{module}:{name}"


def with_metrics(task: "AnyTask") -> None:
    """Changes the class of a task whose config has `training.metrics` so that these functions of
    the user's and statistics of heads are scored too; raises `UserError` for one that is missing,
    has a name in use, or needs answers or attention that the task lacks.

    Raises:
      UserError: no such function or statistic, one whose name is taken or whose `better` is
        unknown, a task without an answer for each example, or a system without attention.
    """
    metrics: dict[str, Metric] = {}
    statistics: list[str] = []
    used = {*_TAKEN, *task.measures, task.examples}
    for path in task.config.training.metrics:
        name, metric = path.rpartition(":")[2], METRICS.resolve(path)
        names = {name} if ":" in path else {*_scores_of(name)}
        problem = ""
        if shared := sorted(x for x in names if x in used or x.endswith("_signature")):
            problem = f"there is a score {shared[0]!r} already"
        elif ":" not in path:
            statistics.append(name)
        elif (better := getattr(metric, "better", "max")) not in ("min", "max"):
            problem = f"better={better!r}; expected 'min' or 'max'"
        elif task.outputs in _NO_ANSWERS:
            problem = f"the task {task.config.task} has no answer for each of its {task.examples}"
        if problem:
            raise UserError(f"config.training.metrics: {path!r}: {problem}")
        used |= names
        if ":" in path:
            metrics[name] = metric
    if statistics:
        from attnlab.tasks.maps import CHEAP_MAPS, map_shapes

        if not map_shapes(task, CHEAP_MAPS):
            name = task.config.system.name
            raise UserError(f"config.training.metrics: {statistics[0]!r}: {name} has no attention")
    if metrics or statistics:
        kind: Any = type(task)
        added = {"own_metrics": metrics, "statistics": statistics}
        task.__class__ = type(kind.__name__, (_WithMetrics, kind), added)


def _scores_of(statistic: str) -> tuple[str, str]:
    """Returns the names of the two scores of a statistic of heads."""
    return f"{statistic}_mean", f"{statistic}_max"


class _WithMetrics:
    """What `with_metrics` puts before the class of a task."""

    own_metrics: Mapping[str, Metric]
    statistics: Sequence[str]

    @property
    def measures(self) -> Mapping[str, Any]:
        """The measures of the task and its metrics; of a statistic the larger counts as better."""
        ways = {name: getattr(metric, "better", "max") for name, metric in self.own_metrics.items()}
        of_heads = itertools.chain(*map(_scores_of, self.statistics))
        return {**super().measures, **ways, **dict.fromkeys(of_heads, "max")}  # type: ignore[misc]

    def evaluate(self, params: Any, split: str, rows: int = 0) -> dict[str, float]:
        """Returns the scores of the task with those of its statistics of heads that are numbers."""
        scores = super().evaluate(params, split, rows)  # type: ignore[misc]
        return {**scores, **self._of_heads(params, split)}

    def evaluate_stacked(self, params: Any, split: str, rows: int = 0) -> list[dict[str, float]]:
        """Returns a list with a dict of scores, see `evaluate`, statistics of heads included, for
        each model of `params`, whose arrays have the models on a first axis.
        """
        import jax

        every = super().evaluate_stacked(params, split, rows)  # type: ignore[misc]
        models = (jax.tree.map(lambda x, n=n: x[n], params) for n in range(len(every)))
        return [
            {**scores, **self._of_heads(model, split)}
            for scores, model in zip(every, models, strict=True)
        ]

    def score(self, params: Any, split: str) -> tuple[dict[str, Any], list[str]]:
        """Returns two things: a dict of the scores of the task with the mean of each metric and,
        under `FAILED` if some gave none, a table of why, and the task's list of output lines;
        raises `UserError` where a metric has the name of a score.
        """
        scores, outputs = super().score(params, split)  # type: ignore[misc]
        values, failed = self._values(split, outputs)
        means = {name: float(numbers.mean()) for name, numbers in values.items()}
        if shared := sorted(scores.keys() & self.own_metrics.keys()):
            raise UserError(f"config.training.metrics: there is a score {shared[0]!r} already")
        return {**scores, **means, **({FAILED: failed} if failed else {})}, outputs

    def _of_heads(self, params: Any, split: str) -> dict[str, float]:
        """Returns by name the scores of the statistics of heads, without those that are nan."""
        if not self.statistics:
            return {}
        scores = METRICS.resolve(self.statistics[0])(
            self, params, split, self.statistics, self._maps_for
        )
        return {name: value for name, value in scores.items() if not math.isnan(value)}

    @functools.cached_property
    def _maps_for(self) -> "MapProgram":
        """The program of maps, compiled once for all evaluations."""
        from attnlab.tasks.maps import CHEAP_MAPS, map_program

        return map_program(self.system, CHEAP_MAPS)  # type: ignore[attr-defined]

    def items(self, params: Any, split: str, outputs: Sequence[str]) -> Items:
        """Returns the `Items` of the task, and added to them for each metric that gave numbers a
        row (number, 1) per example, from which its mean is resampled.
        """
        import numpy as np

        items = super().items(params, split, outputs) or Items({}, {})  # type: ignore[misc]
        rows = {
            name: np.stack([values, np.ones_like(values)], axis=1)
            for name, values in self._values(split, outputs)[0].items()
        }
        return Items({**items.rules, **dict.fromkeys(rows, "ratio")}, {**items.rows, **rows})

    def _values(
        self, split: str, outputs: Sequence[str]
    ) -> "tuple[dict[str, np.ndarray], dict[str, dict[str, str]]]":
        """Returns by metric its numbers [N] for the N answers in `outputs`, and by metric that
        failed {"why": message}, if it raises, gives others than N finite numbers, or there are not
        N answers.
        """
        import numpy as np

        task: Any = self
        size, last, values, failed = task.size(split), task.outputs.endswith(".tsv"), {}, {}
        answers = [line.rpartition("\t")[2] if last else line for line in outputs]
        for name, metric in self.own_metrics.items():
            try:
                if len(answers) != size:
                    raise ValueError(f"{len(answers)} answers to {size} {task.examples}")
                numbers = np.asarray(metric(list(answers), list(task.data.rows[split])), np.float64)
                if numbers.shape != (size,) or not np.isfinite(numbers).all():
                    raise ValueError(f"{numbers.ravel()[:3]}... are not {size} finite numbers")
            except (Exception, SystemExit) as error:
                failed[name] = {"why": f"{users_line(error)} {reason(error)}".strip()}
            else:
                values[name] = numbers
        return values, failed


def add_missing_statistics(task: "AnyTask", split: str, scores: dict[str, Any]) -> None:
    """Adds to the scores of a split, under `FAILED`, why statistics of heads of the task that have
    no score among them gave none.
    """
    why = f"no head has a number on the {split} split; leave it out of training.metrics"
    for name in getattr(task, "statistics", ()):
        if _scores_of(name)[0] not in scores:
            scores.setdefault(FAILED, {})[name] = {"why": why}


def failures(scores: Mapping[str, Any]) -> str:
    """Returns in one line which metrics have failed among the scores of a split, and why; "" if none
    has.
    """
    return "; ".join(f"metric {name}: {why['why']}" for name, why in scores.get(FAILED, {}).items())
