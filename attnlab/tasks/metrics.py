"""Scores of one's own (`training.metrics`): functions of the answers and the rows of a split, which give
a number for each row. The score is their mean, and is resampled as ours are.

    def brevity(answers, rows):
        return [len(answer) / len(target) for answer, (source, target) in zip(answers, rows)]

    brevity.better = "min"  # else "max"

`answers` are those of the file of answers, in order; `rows` what the data source gives for each
example: a pair of texts; (texts, label); the label or the caption of an image.
Importing this loads no jax.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attnlab.config.registry import Table
from attnlab.errors import UserError, reason, users_line
from attnlab.records.items import Items

if TYPE_CHECKING:
    import numpy as np

    from attnlab.tasks import AnyTask

Metric = Callable[..., Any]
FAILED = "failed_metrics"
"""The key of the scores under which metrics stand that gave no numbers, each with "why"."""
_TAKEN = {"step", "parameters", "measures", "split", "decoding_seconds", "changed_code", FAILED}
_NO_ANSWERS = ("", "tags.tsv", "overlaps.tsv")
"""Files of outputs (`Task.outputs`) that have no answer for each example."""
METRICS: Table[Metric] = Table("metric", {"module:function": ""}, given=("answers", "rows"))


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
    the user's are scored too; raises `UserError` for a function that is missing, has a name in use,
    or needs answers that the task lacks.

    Raises:
      UserError: no such function, one whose name is taken or whose `better` is unknown, or a task
        without an answer for each example.
    """
    metrics: dict[str, Metric] = {}
    used = {*_TAKEN, *task.measures, task.examples}
    for path in task.config.training.metrics:
        name, metric = path.rpartition(":")[2], METRICS.resolve(path)
        problem = ""
        if name in metrics or name in used or name.endswith("_signature"):
            problem = f"there is a score {name!r} already"
        elif (better := getattr(metric, "better", "max")) not in ("min", "max"):
            problem = f"better={better!r}; expected 'min' or 'max'"
        elif task.outputs in _NO_ANSWERS:
            problem = f"the task {task.config.task} has no answer for each of its {task.examples}"
        if problem:
            raise UserError(f"config.training.metrics: {path!r}: {problem}")
        metrics[name] = metric
    if metrics:
        kind: Any = type(task)
        task.__class__ = type(kind.__name__, (_WithMetrics, kind), {"own_metrics": metrics})


class _WithMetrics:
    """What `with_metrics` puts before the class of a task."""

    own_metrics: Mapping[str, Metric]

    @property
    def measures(self) -> Mapping[str, Any]:
        ways = {name: getattr(metric, "better", "max") for name, metric in self.own_metrics.items()}
        return {**super().measures, **ways}  # type: ignore[misc]

    def score(self, params: Any, split: str) -> tuple[dict[str, Any], list[str]]:
        """Returns the scores of the task with the mean of each metric and, under `FAILED`, why
        others gave none, and the answers as lines; raises `UserError` where a metric has the name
        of a score.
        """
        scores, outputs = super().score(params, split)  # type: ignore[misc]
        values, failed = self._values(split, outputs)
        if shared := sorted(scores.keys() & self.own_metrics.keys()):
            raise UserError(f"config.training.metrics: there is a score {shared[0]!r} already")
        means = {name: float(numbers.mean()) for name, numbers in values.items()}
        return {**scores, **means, **({FAILED: failed} if failed else {})}, outputs

    def items(self, params: Any, split: str, outputs: Sequence[str]) -> Items:
        """Returns the items of the task with a row (number, 1) for each example and metric, from
        which its mean is resampled.
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


def failures(scores: Mapping[str, Any]) -> str:
    """Returns in one line which metrics have failed among the scores of a split, and why; "" if none
    has.
    """
    return "; ".join(f"metric {name}: {why['why']}" for name, why in scores.get(FAILED, {}).items())
