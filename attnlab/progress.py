"""The progress of long work, as a live bar on a terminal and plain lines elsewhere; and tables of
results.
"""

import contextlib
import re
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Sized
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from attnlab.errors import visible

if TYPE_CHECKING:
    import rich.console
    import rich.progress

Batch = TypeVar("Batch")
PATIENCE, BETWEEN = 2.0, 10.0  # seconds before the first word on long work, and between two
TOLD_AT, WORTH_TELLING = 3, 10.0  # timed steps after which seconds left are told, if so many
LONG = 60.0  # seconds left from which a run is long
_SMOOTHING = 0.3  # weight of the newest step time in the estimate of the time left
_NUMBER = re.compile(
    r"[<+-]? ?[\d,]*\.?\d+(e[+-]?\d+)?("
    r" ?(%|[kMGTP]|([KMGT]i)?B|ms|s))?|\d+/\d+|\d+(:\d\d){1,2}|[+-]?(nan|inf)"
)


class Progress:
    """Progress of `total` steps, on stderr; a context manager.

    On a terminal a bar that stays in place: step, loss, milliseconds per step, target tokens per
    second, time left, time spent compiling. Elsewhere the same as plain lines, at most one per
    `every` steps, and one for the last step. The time left counts steps at their recent pace;
    compiling is not in it.

    Args:
      total: the last step.
      start: the first step (above 0 after a resume).
      every: steps between two plain lines.
      stream: the stream to write to; stderr by default.
      unit: the word for a step.
      item: the unit of the throughput, counted per second.

    Attributes:
      when_long: is called once, as the time left is told, if that is `LONG` or more.
    """

    def __init__(
        self,
        total: int,
        start: int = 0,
        *,
        every: int = 1,
        stream: TextIO | None = None,
        unit: str = "step",
        item: str = "tok",
    ) -> None:
        """Stores the total of steps, the step to start from, how often (`every` steps) a plain line
        is printed to `stream` (stderr by default) where no bar can be shown, and the words for a
        step (`unit`) and a token (`item`); prints nothing yet.
        """
        self.total = total
        self.step = start
        self.every = max(1, every)
        self.unit, self.item = unit, item
        self.stream = sys.stderr if stream is None else stream
        self.compile_seconds = 0.0
        self.when_long: Callable[[], object] = lambda: None
        self._printed = start
        self._pace: float | None = None
        self._timed: list[float] = []
        self._loss: float | None = None
        self._tokens_per_second: float | None = None
        self._bar: rich.progress.Progress | None = None

    def __enter__(self) -> "Progress":
        """Starts a live bar if the stream is a terminal that can show one, and returns this
        progress.
        """
        self._bar = _live_bar(self.stream)
        if self._bar is not None:
            self._bar.start()
            self._bar.add_task("", total=self.total, completed=self.step, text="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif kind is None and self.step != self._printed:
            self._print()

    def update(
        self,
        step: int,
        *,
        loss: float | None = None,
        tokens_per_second: float | None = None,
        step_seconds: float | None = None,
    ) -> None:
        """Shows that `step` steps are done by the bar, or by a line every `every` steps and at the
        end, with the latest loss, tokens per second and smoothed time per step; after the third
        timed step also prints how long the rest may take, if 10 s or more, and calls `when_long`
        from 60 s on. After a step that compiles, it waits for three more.
        """
        self.step = step
        self._loss = self._loss if loss is None else loss
        if tokens_per_second is not None:
            self._tokens_per_second = tokens_per_second
        if step_seconds is not None:
            pace = step_seconds if self._pace is None else self._pace
            self._pace = pace + _SMOOTHING * (step_seconds - pace)
            if len(self._timed) < TOLD_AT:
                self._timed.append(step_seconds)
                left = (self.total - step) * sorted(self._timed)[len(self._timed) // 2]
                if len(self._timed) == TOLD_AT and left >= WORTH_TELLING:
                    words = f"left: {self.total - step:,} {self.unit}s, about {clock(left)}"
                    self.note(f"{words} (h:mm:ss), without compiling and evaluation")
                    if left >= LONG:
                        self.when_long()
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=step, text=self.figures())
        elif step - self._printed >= self.every or step >= self.total > self._printed:
            self._print()

    def compiled(self, shape: str, seconds: float, peak: str = "") -> None:
        """Prints that compiling `shape` ("16x16") took `seconds`, with its `peak` in memory if
        given, and adds them to the compile time; for 0 seconds, prints that its first step compiles
        it, and times steps anew.
        """
        self.compile_seconds += seconds
        if not seconds:
            self._timed.clear()
            return self.note(f"{shape} are compiled in their first step")
        beside = f", peak {peak} on each device" if peak else ""
        return self.note(f"compiled {shape} in {seconds:.1f} s{beside}")

    def note(self, text: str) -> None:
        """Prints a line of text above the bar, or to the stream where there is no bar."""
        text = visible(text)
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=self.stream, flush=True)

    def warn(self, text: str) -> None:
        """Print a warning above the bar."""
        self.note(f"warning: {text}")

    def figures(self) -> str:
        """Returns the figures known so far as text, "loss 2.345 12.3 ms/step 4,560 tok/s ETA
        0:01:23 compile 3.1 s".
        """
        parts = []
        if self._loss is not None:
            parts.append(f"loss {self._loss:.4g}")
        if self._pace is not None:
            parts.append(f"{1000 * self._pace:.4g} ms/{self.unit}")
        if self._tokens_per_second is not None:
            parts.append(f"{self._tokens_per_second:,.0f} {self.item}/s")
        if self._pace is not None:
            parts.append(f"ETA {clock(self._pace * max(0, self.total - self.step))}")
        if self.compile_seconds:
            parts.append(f"compile {self.compile_seconds:.1f} s")
        return "  ".join(parts)

    def _print(self) -> None:
        """Prints the step and the figures as one plain line on the stream."""
        self._printed = self.step
        line = f"{self.unit} {self.step}/{self.total}  {self.figures()}".rstrip()
        print(line, file=self.stream, flush=True)


@contextlib.contextmanager
def patience(work: str, total: int = 0) -> Iterator[list[Any]]:
    """Context manager: yields a list, to which the block adds an element for each batch done, and
    prints on stderr that `work` goes on, with how many of `total` batches are done, after
    `PATIENCE` seconds and then every `BETWEEN`.
    """
    done, ended, began = list[Any](), threading.Event(), time.monotonic()

    def say() -> None:
        pause = PATIENCE
        while not ended.wait(pause):
            parts = f"{len(done)} of {total} batches, " if total else ""
            spent = clock(time.monotonic() - began)
            print(f"{work}: {parts}{spent} so far", file=sys.stderr, flush=True)
            pause = BETWEEN

    threading.Thread(target=say, daemon=True).start()
    try:
        yield done
    finally:
        ended.set()


def patiently(work: str, batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yields the batches one by one, while `patience` prints on stderr that `work` goes on and how
    many batches are done.
    """
    with patience(work, len(batches) if isinstance(batches, Sized) else 0) as done:
        for batch in batches:
            yield batch
            done.append(None)


def clock(seconds: float) -> str:
    """Seconds as "h:mm:ss"."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    stream: TextIO | None = None,
    numbers: Collection[int] | None = None,
) -> None:
    """Prints a table on `stream` (stdout by default): by rich on a terminal, as aligned plain text
    elsewhere; floats with 4 digits; raises `ValueError` for a row of another length.

    Args:
      title: the line above it.
      columns: the heads of the columns.
      rows: the cells of each row.
      stream: the stream to write to; stdout by default.
      numbers: the columns to align on the right; by default those whose cells are numbers, as such
        or as text ("1,234", "2.5 G", "4/10", "0:01:20"), or empty ("-", "").

    Raises:
      ValueError: a row that is not as long as `columns`.
    """
    out = sys.stdout if stream is None else stream
    title = visible(title)
    if any(len(row) != len(columns) for row in rows):
        raise ValueError(f"every row of {title!r} needs {len(columns)} cells")
    columns = [*map(visible, columns)]
    cells = [[_cell(value) for value in row] for row in rows]
    right = [
        _are_numbers([row[i] for row in cells]) if numbers is None else i in numbers
        for i in range(len(columns))
    ]
    if not out.isatty():
        print("\n".join([title, *_plain_table(columns, cells, right)]), file=out)
        return
    import rich.box
    import rich.console
    import rich.table
    import rich.text

    pretty = rich.table.Table(
        title=rich.text.Text(title), box=rich.box.SIMPLE_HEAD, title_justify="left"
    )
    for name, aligned in zip(columns, right, strict=True):
        pretty.add_column(
            rich.text.Text(name),
            justify="right" if aligned else "left",
            overflow="fold",
            no_wrap=name == columns[0],
        )
    for row in cells:
        pretty.add_row(*map(rich.text.Text, row))
    rich.console.Console(file=bare(out)).print(pretty)


def _plain_table(columns: list[str], cells: list[list[str]], right: list[bool]) -> list[str]:
    """Returns the lines of a plain table (names, dashes, the rows of `cells`): every column as wide
    as its widest cell, aligned to the right where `right` says so, two spaces between.
    """
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    lines = [columns, ["-" * width for width in widths], *cells]
    forms = [
        f"{{:{'>' if at_right else '<'}{width}}}"
        for at_right, width in zip(right, widths, strict=True)
    ]
    return ["  ".join(forms).format(*line).rstrip() for line in lines]


def _are_numbers(cells: Sequence[str]) -> bool:
    """Returns whether the texts of the cells of a column are numbers or empty, and not all empty."""
    filled = [cell for cell in cells if cell not in ("", "-")]
    return bool(filled) and all(map(_NUMBER.fullmatch, filled))


def _cell(value: Any) -> str:
    """The text of a cell on one line; a float with four significant digits, None as a dash."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return "-" if value is None else visible(" ".join(str(value).split()))


def bare(stream: TextIO) -> TextIO:
    """The stream of a terminal to draw on, below `commands.streams.Shown`."""
    below: TextIO = getattr(stream, "bare", stream)
    return below


def live_console(stream: TextIO) -> "rich.console.Console | None":
    """Returns a console of rich if the stream is a terminal that can move its cursor, else None."""
    if not stream.isatty():
        return None
    import rich.console

    console = rich.console.Console(file=bare(stream))
    return None if console.is_dumb_terminal else console


def _live_bar(stream: TextIO) -> "rich.progress.Progress | None":
    """Returns a progress bar of rich, not started, if the stream is a terminal that can move its
    cursor, else None.
    """
    if (console := live_console(stream)) is None:
        return None
    import rich.progress
    import rich.table

    return rich.progress.Progress(
        rich.progress.BarColumn(
            bar_width=None, table_column=rich.table.Column(ratio=1, max_width=40)
        ),
        rich.progress.MofNCompleteColumn(table_column=rich.table.Column(no_wrap=True)),
        rich.progress.TextColumn(
            "{task.fields[text]}", markup=False, table_column=rich.table.Column(no_wrap=True)
        ),
        console=console,
        expand=True,
        # what goes to a file or a pipe must not turn up beside the bar
        redirect_stdout=sys.stdout.isatty(),
    )
