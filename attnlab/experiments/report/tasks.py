"""The report of an experiment over several tasks: the score of each variant on each, its mean rank,
and which variants it beats; beside it the tasks' own reports.

On a task the rank of a variant is certain as far as Tukey's test of all pairs tells it from others:
at least 1 + how many are better, at most as many as are not worse (Al Mohamad, Goeman and van Zwet
2022). With the level divided by the number of tasks, all ranks on all tasks, and so all mean ranks,
are within these bounds together with probability 1 - alpha, for few seeds and few tasks too. Bounds
from ranks of resampled or simulated scores miss more often where variants are close. Friedman's and
Nemenyi's tests (Demsar 2006) would take tasks for a random sample of more than ten, and let a third
variant decide whether two differ (Benavoli, Corani and Mangili 2016).
"""

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from attnlab import progress
from attnlab.experiments.plan import read_tasks
from attnlab.experiments.report.comparison import Basis
from attnlab.experiments.report.contents import Contents
from attnlab.experiments.report.export import as_json
from attnlab.experiments.report.report import write
from attnlab.experiments.report.statistics.family import Family
from attnlab.experiments.report.statistics.scale import Interval
from attnlab.experiments.report.tables import direction
from attnlab.pages.html import literal as escaped
from attnlab.pages.html import table, whole
from attnlab.pages.tables import NONE, Table, interval, literal, markdown, mean
from attnlab.records.files import write_atomic

_NOTE = (
    "Scores: means over seeds, each with its 95 % interval by itself. Rank 1 is best. Intervals of"
    " ranks, and who is better on which task, hold together at 95 %, for these tasks and no others."
)


@dataclasses.dataclass(frozen=True)
class Ranked:
    """A variant over all tasks.

    Attributes:
      name: of the variant.
      mean_rank: by its means, 1 for the best; None if a variant has no score on a task.
      interval: of the mean rank.
      better: variant to the tasks on which this one is better for certain.
    """

    name: str
    mean_rank: float | None
    interval: Interval
    better: Mapping[str, list[str]]


def ranked(
    tasks: Mapping[str, Family], variants: Sequence[str], partial: Mapping[str, Collection[str]]
) -> list[Ranked]:
    """Returns a `Ranked` for each of `variants`: its mean rank over `tasks` (task to its `Family`),
    or None if a task lacks a variant, the rank's interval, and on which tasks it is better than
    which variant for certain (never for the task's `partial` variants).

    Args:
      tasks: the values of each.
      variants: those that are ranked; one that a family lacks is told from none there.
      partial: of each task, variants without a value for every seed: told from none, since what is
        left may be a selection.
    """
    ranks, wins = [family.ranks() for family in tasks.values()], list[tuple[str, str, str]]()
    for task, family in tasks.items():
        certain = dataclasses.replace(family, alpha=family.alpha / len(tasks)).better()
        wins += [(task, *pair) for pair in certain if not {*pair} & {*partial[task]}]
    made = []
    for name in variants:
        complete = [here[name] for here in ranks if {*variants} <= {*here}]
        rank = sum(complete) / len(tasks) if len(complete) == len(tasks) else None
        won, lost = (sum(win[place] == name for win in wins) / len(tasks) for place in (1, 2))
        beaten = {o: [t for t, *pair in wins if pair == [name, o]] for o in variants}
        better = {other: on for other, on in beaten.items() if on}
        made.append(Ranked(name, rank, (1 + lost, len(variants) - won), better))
    return made


def scores(made: Mapping[str, Contents]) -> tuple[list[Ranked], Table]:
    """Returns two things: a list with a `Ranked` for each variant over the tasks in `made` (task to
    the contents of its report), and the table of scores and ranks; if a task is not scored on the
    test split, or lacks a score of any variant, no variant has a mean rank.

    A task that is not scored on the test split tells none better; no task tells a variant better of
    which it lacks a seed.
    """
    tasks = {task: of.comparison for task, of in made.items()}
    scored = {task: of.basis.split == "test" for task, of in tasks.items()}
    ranks = ranked(
        {task: of.family if scored[task] else Family({}) for task, of in tasks.items()},
        list(dict.fromkeys(name for of in made.values() for name in of.records.plan.variants)),
        {task: [row.name for row in of.rows if row.missing] for task, of in tasks.items()},
    )
    bases = {task: Basis("test", **of.records.plan.measure) for task, of in made.items()}
    heads = [f"{task}: {basis.metric}, {direction(basis)}" for task, basis in bases.items()]
    rows = []
    for variant in ranks:
        shown = (of.row(variant.name) if scored[task] else None for task, of in tasks.items())
        cells = (mean(row.summary.mean, row.summary.interval) if row else NONE for row in shown)
        rank = NONE if variant.mean_rank is None else f"{variant.mean_rank:.2f}"
        better = "; ".join(f"{other} ({', '.join(on)})" for other, on in variant.better.items())
        rows.append((variant.name, *cells, rank, interval(variant.interval), better or NONE))
    columns = ("variant", *heads, "mean rank", "its 95 % interval", "better than (on)")
    lines = [f"{name}: warning: {each.text}" for name, of in made.items() for each in of.warnings]
    lines += [f"{name}: {of.extent}; {of.outcome}" for name, of in made.items()]
    numbers = frozenset(range(1, len(heads) + 3))
    return ranks, Table("Variants over tasks", columns, tuple(rows), numbers, notes=(_NOTE, *lines))


def write_over_tasks(directory: Path, method: str = "model", **options: Any) -> None:
    """Writes the report of each task's sweep in a folder (see `report.write`) and, beside them,
    report.html, report.md and report.json on all tasks, and prints the question, the table of ranks
    over tasks and its notes.

    Raises:
      UserError: a task without a sweep, a damaged record.
    """
    stated, silent = read_tasks(directory), StringIO()
    assert stated is not None
    names, question = stated["tasks"], stated["question"]
    made = {name: write(directory / name, method, **options, stream=silent) for name in names}
    ranks, shown = scores(made)
    links = (f'<li><a href="{name}/report.html">{name}</a></li>' for name in map(escaped, made))
    of_each = {name: json.loads(as_json(of))["trials"] for name, of in made.items()}
    trials = [{"task": name, **trial} for name, each in of_each.items() for trial in each]
    rows = [*map(dataclasses.asdict, ranks)]
    everything = {"question": question, "rows": rows, "verdict": None, "trials": trials}
    written = {
        "html": whole(
            question, [f"<h1>{escaped(question)}</h1><ul>{''.join(links)}</ul>", table(shown)]
        ),
        "md": f"# {literal(question)}\n\n{markdown(shown)}",
        "json": json.dumps(everything, indent=1, ensure_ascii=False) + "\n",
    }
    for ending, text in written.items():
        write_atomic(directory / f"report.{ending}", text)
    print(f"\n{question}")
    progress.table(shown.title, shown.columns, shown.rows, numbers=shown.numbers)
    print(*shown.notes, f"report: {directory / 'report.html'}, .md, .json", sep="\n")
