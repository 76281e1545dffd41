"""Scores of one's own (`training.metrics`): functions of the answers and the rows of a split, which give
a number for each row. The score is their mean, and is resampled as ours are.

    def brevity(answers, rows):
        return [len(answer) / len(target) for answer, (source, target) in zip(answers, rows)]

    brevity.better = "min"  # else "max"

`answers` are those of the file of answers, in order; `rows` what the data source gives for each
example: a pair of texts; (texts, label); the label or the caption of an image.
Importing this loads no jax.
"""

from __future__ import annotations

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
METRICS: Table[Metric] = Table("metric", {"module:function": ""}, given=("answers", "rows"))


def path_of(metric: Metric) -> str:
    """Returns "module:function" of a function; raises `UserError` unless it stands there, so that
    what it has scored can be scored again.
    """
    module, name = getattr(metric, "__module__", ""), getattr(metric, "__name__", "")
    if getattr(sys.modules.get(module), name, None) is not metric:
        raise UserError(
            f"metrics: {metric!r} is no function with a name of its own in a module or notebook;"
            " define it there with 'def'"
        )
    return f"{module}:{name}"


def with_metrics(task: AnyTask) -> None:
    """Gives a task the scores of `training.metrics` beside its own.

    Raises:
      UserError: no such function, or a score of its name is there already.
    """
    metrics: dict[str, Metric] = {}
    for path in task.config.training.metrics:
        name, metric = path.rpartition(":")[2], METRICS.resolve(path)
        if name in metrics or name in task.measures:
            raise UserError(f"config.training.metrics: {path!r}: there is a score {name!r} already")
        metrics[name] = metric
    if metrics:
        kind: Any = type(task)
        task.__class__ = type(kind.__name__, (_WithMetrics, kind), {"own_metrics": metrics})


class _WithMetrics:
    """What `with_metrics` puts before the class of a task."""

    own_metrics: Mapping[str, Metric]

    @property
    def measures(self) -> Mapping[str, Any]:
        ways = {name: getattr(of, "better", "max") for name, of in self.own_metrics.items()}
        return {**super().measures, **ways}  # type: ignore[misc]

    def score(self, params: Any, split: str) -> tuple[dict[str, Any], list[str]]:
        """Those of the task, and the means of its metrics."""
        scores, outputs = super().score(params, split)  # type: ignore[misc]
        means = {
            name: float(values.mean()) for name, values in self._values(split, outputs).items()
        }
        return {**scores, **means}, outputs

    def items(self, params: Any, split: str, outputs: Sequence[str]) -> Items:
        """Those of the task, and the numbers of its metrics."""
        import numpy as np

        items = super().items(params, split, outputs) or Items({}, {})  # type: ignore[misc]
        rows = {
            name: np.stack([values, np.ones_like(values)], axis=1)
            for name, values in self._values(split, outputs).items()
        }
        return Items({**items.rules, **dict.fromkeys(rows, "ratio")}, {**items.rows, **rows})

    def _values(self, split: str, outputs: Sequence[str]) -> dict[str, np.ndarray]:
        """Computes the numbers of each metric, [N].

        Raises:
          UserError: the task has no answer for each example, or a metric raises or gives others
            than N numbers.
        """
        import numpy as np

        task: Any = self
        size, last, values = task.size(split), task.outputs.endswith(".tsv"), {}
        answers = [line.rpartition("\t")[2] if last else line for line in outputs]
        for name, metric in self.own_metrics.items():
            try:
                if len(answers) != size:
                    raise ValueError(f"{len(answers)} answers to {size} {task.examples}")
                numbers = np.asarray(metric(list(answers), list(task.data.rows[split])), np.float64)
                if numbers.shape != (size,) or not np.isfinite(numbers).all():
                    raise ValueError(f"{numbers.ravel()[:3]}... are not {size} finite numbers")
            except (Exception, SystemExit) as error:
                what = f"{users_line(error)} {reason(error)}".strip()
                raise UserError(f"metric {name}: {what}; nothing else is lost") from error
            values[name] = numbers
        return values
