"""The display of a running sweep: a table that stays in place on a terminal, plain lines elsewhere;
for `status` the validation scores while it runs; and before it begins, how many trials it has.
"""

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from attnlab.errors import visible
from attnlab.experiments.plan import Plan, Trial
from attnlab.experiments.run.jobs import Job
from attnlab.experiments.run.selection import Choice, validation_score, wanted
from attnlab.experiments.run.slots import Slot
from attnlab.experiments.run.state import Seen, counts, look, look_at_all, recorded, validations
from attnlab.progress import clock, live_console
from attnlab.records.locks import holder
from attnlab.records.measures import is_finite

if TYPE_CHECKING:
    import rich.console
    import rich.live

_REFRESH = 1.0  # seconds between two reads of the folders of running trials
_SEEDS = 6  # more trials than this are counted, not listed

Rows = tuple[list[str], list[list[str | float | None]]]


class Board:
    """The display of the trials of a sweep, for the launcher; a context manager.

    Args:
      plan: of the sweep.
      directory: its folder.
      slots: how many trials run at a time; 0 for as many as are running.
      stream: where to write; stderr unless given.
    """

    def __init__(
        self, plan: Plan, directory: Path, slots: int = 0, stream: TextIO | None = None
    ) -> None:
        """Stores the plan, the sweep's folder, the number of slots and the stream to print to
        (stderr by default), reads the states of the plan's trials from the folder, and prints
        nothing yet.
        """
        self._directory, self._slots = directory, slots
        self._stream = sys.stderr if stream is None else stream
        self._seen: dict[str, Seen] = {}
        self._live: rich.live.Live | None = None
        self._looked = 0.0
        self.plan = plan

    @property
    def plan(self) -> Plan:
        """The plan that is shown; set it again when it has grown."""
        return self._plan

    @plan.setter
    def plan(self, plan: Plan) -> None:
        self._plan = plan
        self._seen = {seen.trial.name: seen for seen in shown(plan, self._directory)}
        self._looked = time.monotonic()

    def __enter__(self) -> "Board":
        """Begins the live table if the stream is a terminal, and returns the board."""
        self._live = _live(self._stream)
        if self._live is not None:
            self._live.start()
            self._show()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self.plan = self._plan
            self._show()
            self._live.stop()

    def started(self, job: Job, slot: Slot) -> None:
        """Prints that a process has begun to work on a job, if no live table shows it."""
        if self._live is None:
            self.note(f"slot {slot.number}: {job.name} starts")

    def ended(self, job: Job) -> None:
        """Reads the states of an ended job's trials again and redraws the table, or, without one,
        prints a line on the job.
        """
        self._look(job.trials)
        if self._live is not None:
            self._show()
        elif job.kind == "final":
            self.note(f"{job.name}: evaluated")
        else:
            rest = summary(self._seen.values(), self._slots)
            self.note(f"{_end_line(self._seen[job.trials[0].name])} ({rest})")

    def note(self, text: str) -> None:
        """Prints one line: above the live table on a terminal, else on the stream."""
        text = visible(text)
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=self._stream, flush=True)

    def tick(self) -> None:
        """Reads the states of the unsettled trials again and redraws the live table, at most once a
        second; does nothing without such a table.
        """
        if self._live is not None and time.monotonic() - self._looked >= _REFRESH:
            self._look(seen.trial for seen in list(self._seen.values()) if not seen.settled)
            self._show()

    @property
    def settled(self) -> bool:
        """Whether no trial is left to run, as last seen."""
        return all(seen.settled for seen in self._seen.values())

    def _look(self, trials: Iterable[Trial]) -> None:
        self._seen |= {trial.name: look(trial, self._directory) for trial in trials}
        self._looked = time.monotonic()

    def _show(self) -> None:
        """Redraws the live table, if there is one."""
        if self._live is not None:
            table = pretty(self._plan, list(self._seen.values()), self._slots)
            self._live.update(table, refresh=True)


def shown(plan: Plan, directory: Path) -> list[Seen]:
    """Returns the states (`Seen`) of a plan's trials without those that a frozen choice excludes
    and that are neither settled nor running.
    """
    due = {trial.name for trial in wanted(plan, Choice.read(directory))}
    return [
        seen
        for seen in look_at_all(plan, directory)
        if seen.trial.name in due or seen.settled or seen.state == "running"
    ]


def overview(plan: Plan, seen: Sequence[Seen]) -> tuple[list[str], list[list[str]]]:
    """Returns a pair for the table of candidates: column names, and a row for each candidate with
    its id and one cell per seed (its state or, while it runs, its step), or with more than `_SEEDS`
    seeds one cell per state with its count.
    """
    of = {
        candidate.id: [status for status in seen if status.trial.candidate.id == candidate.id]
        for candidate in plan.candidates
    }
    if len(plan.seeds) > _SEEDS:
        states = list(counts(seen))
        return ["trial", *states], [
            [identity, *(str(counts(statuses).get(state, "")) for state in states)]
            for identity, statuses in of.items()
        ]
    rows = []
    for identity, statuses in of.items():
        cells = {status.trial.seed: _cell(status) for status in statuses}
        rows.append([identity, *(cells.get(seed, "") for seed in plan.seeds)])
    return ["trial", *(f"seed {seed}" for seed in plan.seeds)], rows


def troubles(seen: Iterable[Seen]) -> list[str]:
    """Returns a line for each trial that failed, diverged, was interrupted or stopped by request
    and has a message on why, and one for each that runs but may hang; none for trials that wait for
    their search or were pruned.
    """
    lines = []
    for status in seen:
        if status.word in ("waiting", "pruned"):
            continue  # as a search has it
        if status.message and status.state != "done":
            lines.append(
                f"{status.trial.name} {status.word} at step {status.step}: {status.message}"
            )
        elif status.stalled(now := time.time()):
            silent = clock(status.age(now) or 0)
            advice = "'stop' or --trial-timeout ends it"
            lines.append(f"{status.trial.name} stalled: no word for {silent}; {advice}")
    return lines


def failures(plan: Plan, directory: Path) -> list[str]:
    """Returns a line with the reason for each trial that failed or diverged."""
    states = look_at_all(plan, directory)
    return troubles(seen for seen in states if seen.state in ("failed", "diverged"))


def summary(seen: Iterable[Seen], slots: int = 0) -> str:
    """Returns a text such as "7 done, 2 running, 3 pending of 12; 0:01:20 left", without the time
    if nothing is known of it.
    """
    seen = list(seen)
    numbers = ", ".join(f"{number} {state}" for state, number in counts(seen).items())
    left = remaining(seen, slots)
    return f"{numbers} of {len(seen)}" + (f"; {clock(left)} left" if left else "")


def outlook(plan: Plan, directory: Path) -> str:
    """Returns a text on how many trials a plan has (of a search: at most), how many have settled in
    the folder, and how many a frozen choice excludes.
    """
    choice = Choice.read(directory)
    trials = wanted(plan, choice)
    settled = sum(recorded(trial, directory).settled for trial in trials)
    frozen = [variant for variant in plan.variants if choice and choice.candidate(variant)]
    if plan.search is None or len(frozen) == len(plan.variants):
        text = f"{len(trials)} trials: seeds {', '.join(map(str, plan.seeds))}"
    else:
        more = sum(trial.candidate.variant in frozen for trial in trials)
        text = _searched(plan, len(plan.variants) - len(frozen), more)
    if settled:
        text += f"; {settled} of them have settled before"
    if left := len(plan.trials()) - len(trials):
        text += f"; the choice is frozen ({', '.join(frozen)}), so {left} trials of candidates that"
        text += " were not chosen are left out"
    return text


def _searched(plan: Plan, variants: int, more: int) -> str:
    """Returns a text on the trials of a search over so many `variants`: its settings, its seeds,
    and the most trials, including `more` trials of variants whose choice is frozen.
    """
    assert plan.search is not None
    (first, *others), number = plan.seeds, plan.search["trials"]
    space = ", ".join(plan.search["space"])
    searched = f"{number} settings of {space} for each of {variants} variants, with seed {first}"
    chosen = f"; the best of each with seeds {', '.join(map(str, others))} too" if others else ""
    frozen = f"; {more} of variants whose choice is frozen" if more else ""
    most = variants * (number + len(others)) + more
    return f"{searched}{chosen}{frozen}: at most {most} trials"


def remaining(seen: Sequence[Seen], slots: int) -> float | None:
    """Estimates the remaining seconds of a sweep that runs `slots` trials at a time (0: as many as
    now) from the durations of its trials so far; returns None if none is known, or if `slots` is
    0 and nothing runs.

    Args:
      seen: all trials.
      slots: how many run at a time; 0 for as many as are running.
    """
    running = [status for status in seen if status.state == "running"]
    whole = [status.seconds for status in seen if status.state == "done" and status.seconds]
    whole = whole or [status.pace * status.total for status in running if status.pace]
    if not whole or not (slots or running):
        return None
    mean = sum(whole) / len(whole)
    waiting = sum(not status.settled and status.state != "running" for status in seen)
    begun = sum(mean * (1 - min(1.0, status.step / status.total)) for status in running)
    return (waiting * mean + begun) / (slots or len(running))


def running(plan: Plan, directory: Path, seen: Sequence[Seen], now: float) -> Rows:
    """Returns column names and rows of the running trials: name, step, latest selection metric on
    validation and its step, time since the last record, and the process that runs it.
    """
    metric = plan.select["metric"]
    rows: list[list[str | float | None]] = []
    for status in seen:
        if status.state == "running":
            trial = status.trial
            measured = _measured(trial, directory, metric)
            step, value = measured[-1] if measured else (None, None)
            age = status.age(now)
            stalled = ", stalled" * status.stalled(now)
            heard = "-" if age is None else f"{clock(age)} ago{stalled}"
            steps = f"{status.step}/{status.total}"
            who = holder(trial.workdir(directory)).partition(" since ")[0]
            rows.append([trial.name, steps, value, step, heard, who])
    return ["trial", "step", f"{metric}, validation", "at step", "last heard of", "by"], rows


def best(plan: Plan, directory: Path, seen: Sequence[Seen]) -> Rows:
    """Returns column names and rows, one per variant, of its best single trial so far (validation
    score, name, and how many of the variant's trials are done), or no rows while nothing has been
    measured.

    No rows while nothing has been measured. Of a trial that is done it is the score that the choice
    goes by, of another one the best that it has measured.
    """
    metric, sign = plan.select["metric"], 1 if plan.select["mode"] == "min" else -1
    rows: list[list[str | float | None]] = []
    for variant in plan.variants:
        statuses = [status for status in seen if status.trial.candidate.variant == variant]
        scores = [
            (sign * score, status.trial.name)
            for status in statuses
            for score in _scores(status, directory, metric)
        ]
        value, name = min(scores, default=(None, "-"))
        done = f"{sum(status.state == 'done' for status in statuses)}/{len(statuses)}"
        rows.append([variant, None if value is None else sign * value, name, done])
    measured = any(row[1] is not None for row in rows)
    return ["variant", f"{metric}, validation", "trial", "done"], rows if measured else []


def _scores(seen: Seen, directory: Path, metric: str) -> list[float]:
    """Returns the list of validation scores of a trial (`seen`: its state): the final one if it is
    done, else all measured so far.
    """
    if seen.state == "done":
        score = validation_score(seen.trial, directory, metric)
        return [] if score is None else [score]
    return [value for _, value in _measured(seen.trial, directory, metric)] if seen.attempts else []


def _measured(trial: Trial, directory: Path, metric: str) -> list[tuple[int, float]]:
    """Returns the (step, value) pairs of a metric at a trial's evaluations on validation, without
    values that are not finite numbers.
    """
    records = validations(trial, directory)
    values: dict[int, Any] = {record["step"]: record.get(metric) for record in records}
    return [(step, float(value)) for step, value in values.items() if is_finite(value)]


def pretty(plan: Plan, seen: Sequence[Seen], slots: int) -> "rich.console.Group":
    """Returns a `Group` of rich to be printed on a terminal: the table of candidates in colours,
    with the lines of `troubles` and the summary below it.
    """
    import rich.box
    import rich.console
    import rich.table
    import rich.text

    columns, rows = overview(plan, seen)
    made = rich.table.Table(
        title=rich.text.Text(visible(plan.name)), box=rich.box.SIMPLE_HEAD, title_justify="left"
    )
    for name in columns:
        made.add_column(rich.text.Text(name), overflow="fold")
    for row in rows:
        styles = (_STYLES.get(cell.partition(" ")[0], "") for cell in row)
        made.add_row(*map(rich.text.Text, map(visible, row), styles))
    below = visible("\n".join([*troubles(seen), summary(seen, slots)]))
    return rich.console.Group(made, rich.text.Text(below))


_STYLES: Mapping[str, str] = {
    "done": "green",
    "failed": "red",
    "diverged": "red",
    "interrupted": "yellow",
    "stopped": "yellow",
    "pending": "dim",
}


def _cell(seen: Seen) -> str:
    if seen.state == "running":
        return f"{seen.step}/{seen.total}" + (" stalled" if seen.stalled(time.time()) else "")
    return seen.word if seen.state in ("done", "pending") else f"{seen.word} {seen.step}"


def _end_line(seen: Seen) -> str:
    """Returns one line on a trial that has ended: its name, state, step, time and message."""
    where = f"at step {seen.step} after {clock(seen.seconds)}"
    # "pruned after 2 evaluations", "waiting for the others"
    if seen.state == "interrupted" and seen.message.startswith(seen.word):
        return f"{seen.trial.name}: {seen.message} ({where})"
    return f"{seen.trial.name}: {seen.word} {where}{f': {seen.message}' if seen.message else ''}"


def _live(stream: Any) -> "rich.live.Live | None":
    """Returns a live display of rich, not started, that redraws in place if the stream is a
    terminal that can move its cursor, else None.
    """
    if (console := live_console(stream)) is None:
        return None
    import rich.live

    return rich.live.Live(console=console, auto_refresh=False, redirect_stdout=sys.stdout.isatty())
