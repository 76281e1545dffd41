"""The total cost of variants: steps, FLOPs, examples, tokens and time, for the reported trials and
for all that were tuned.
"""

import dataclasses
import statistics
from collections.abc import Iterator, Sequence

from attnlab.experiments.report.collect import Record, Records
from attnlab.pages.tables import Table, scaled
from attnlab.progress import clock
from attnlab.training.programs import COUNTED

_OPTIONAL = ("transcendentals", "examples", "tokens")
COLUMNS = ("variant", "trials", "steps", "training FLOPs", *_OPTIONAL, "time")


@dataclasses.dataclass(frozen=True)
class Taken:
    """A sum over trials; None if one of them has no record of it.

    Attributes:
      trials: that have begun.
      steps: updates, also those that were done again after a kill.
      flops, transcendentals: of these steps; validation and decoding are not in them.
      examples: steps x mean examples of a step.
      tokens: steps x mean tokens of the logged steps.
      seconds: of the processes; trials that trained as one program share its time.
    """

    trials: int
    steps: int
    flops: float
    transcendentals: float | None
    examples: float | None
    tokens: float | None
    seconds: float


def taken(records: Sequence[Record]) -> Taken:
    """Returns a `Taken` of the trials that have begun: their number and the sums of steps, FLOPs,
    transcendentals, examples, tokens (these three None if a trial with steps has no record of it)
    and seconds, of which trials in one program have equal shares.
    """
    begun = [run for run in records if run.effort.began is not None]
    steps = [run.effort.steps for run in begun]
    return Taken(
        trials=len(begun),
        steps=sum(steps),
        flops=sum(run.candidate.flops * number for run, number in zip(begun, steps, strict=True)),
        transcendentals=_sum([run.candidate.counted.transcendentals for run in begun], steps),
        examples=_sum([run.candidate.counted.examples for run in begun], steps),
        tokens=_sum([_tokens(run) for run in begun], steps),
        seconds=sum(run.effort.seconds / run.cost.together for run in begun),
    )


def _sum(each: Sequence[float | None], steps: Sequence[int]) -> float | None:
    """Returns the sum over trials of steps times the number of `each`, or None if a trial that has
    done steps has no number.
    """
    if any(value is None and number for value, number in zip(each, steps, strict=True)):
        return None
    return sum((value or 0.0) * number for value, number in zip(each, steps, strict=True))


def _tokens(record: Record) -> float | None:
    """Returns the mean tokens of a training step over the logged steps of a trial, or None if it
    logged none.
    """
    train = [line for line in record.logged.curve if line["split"] == "train"]
    logged = [line["tokens"] for line in train if isinstance(line.get("tokens"), int | float)]
    return statistics.fmean(logged) if logged else None


def table(records: Records) -> Table:
    """Returns a table of total costs, with a row for the reported trials of each variant, and one
    for all its trials if these are more or none is reported yet; optional columns without a number
    are left out.
    """
    rows: list[tuple[str, ...]] = []
    for variant in records.plan.variants:
        standing = records.representative(variant)
        every = taken([record for record in records.trials if record.candidate.variant == variant])
        reported = taken(records.of(standing)) if standing else None
        if reported is not None:
            rows.append(_row(variant, f"{reported.trials} reported", reported))
        if reported is None or every.trials > reported.trials:
            rows.append(_row(variant if reported is None else "", f"all {every.trials}", every))
    note = (
        "Steps: of all attempts, also those done again after a kill. FLOPs: steps x FLOPs per"
        " step, without validation and decoding. Examples: steps x the mean of an epoch."
        " Tokens: steps x the mean of the logged steps. Time: of the trials' processes, added"
        " up; trials that trained as one program share its time."
    )
    numbers = frozenset(range(2, len(COLUMNS)))
    notes = (note, *_programs(records))
    totals = Table("What it took", COLUMNS, tuple(rows), numbers, notes=notes)
    filled = {name for row in rows for name, cell in zip(COLUMNS, row, strict=True) if cell}
    return totals.only([name for name in COLUMNS if name in filled or name not in _OPTIONAL])


def _programs(records: Records) -> Iterator[str]:
    """Yields a note on how many programs were compiled and loaded in all trials, and the seconds
    that took, if that is on record.
    """
    made = [record.cost.programs for record in records.trials]
    compiled, took, loaded, loading = (sum(each.get(name, 0) for each in made) for name in COUNTED)
    if compiled + loaded:
        yield (
            f"Compiled programs: {compiled:,} in {took:,.1f} s; another {loaded:,} were kept by"
            f" earlier runs and took {loading:,.1f} s to load."
        )


def _row(name: str, trials: str, of: Taken) -> tuple[str, ...]:
    """Returns the cells of a row of total costs as texts, in the order of `COLUMNS`; "" for what
    has no record.
    """
    transcendentals = "" if of.transcendentals is None else scaled(of.transcendentals)
    read = ("" if value is None else f"{value:,.0f}" for value in (of.examples, of.tokens))
    work = (f"{of.steps:,}", scaled(of.flops), transcendentals)
    return (name, trials, *work, *read, clock(of.seconds))
