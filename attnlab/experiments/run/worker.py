"""A worker: it takes one trial of a sweep after another and trains each in a process of its own
(`live.py`), until nothing is left. Every way to run a sweep is such workers: one here (`sweep`), one
on any machine that sees the folder (`work`), or several that SLURM or Ray places.

Workers share nothing but the folder; the locks of trials decide who takes which. A job whose process
dies is tried again, twice. One that may have been killed for lack of memory waits until all others
have ended, and is tried once alone. A process that does not leave when asked is killed after a grace
period. A worker never makes the choice. Nothing here imports jax.
"""

import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path

from attnlab.errors import UserError
from attnlab.experiments.plan import Plan
from attnlab.experiments.run.board import Board
from attnlab.experiments.run.jobs import WHOLE, Due, Job, Part, due, in_turn, perform, stacked
from attnlab.experiments.run.live import DEFAULTS, Live, Perform, Stop, WorkOptions, died
from attnlab.experiments.run.output import last_line, shortened
from attnlab.experiments.run.selection import Choice
from attnlab.experiments.run.slots import Slot, with_planned_cores
from attnlab.experiments.run.state import recorded
from attnlab.experiments.run.training import CHANGED, HELD, UNLOCKED
from attnlab.records import attempts
from attnlab.records.locks import Held, RunLock, Unlocked, holder, is_elsewhere, is_held, prove
from attnlab.records.provenance import Changed

FURTHER = 2  # attempts at a job whose process died without a record
TICK = 0.5  # seconds between two checks of signals and updates of the board
LOOK = 1.0  # seconds between two reads of requests about running trials
ASK = 2.0  # seconds between two questions what is due, while nothing has ended here
SHARE = 10.0  # such a question takes at most one part in so many of the time
POLL = 3.0  # seconds between two looks at a folder in which nothing is left to take
IDLE = 120.0  # seconds that `work` waits for something to do


class Worker:
    """Runs what is due in slots.

    Args:
      directory: the sweep's folder.
      slots: where to run.
      board: receives the events.
      stop: an entered `Stop`; a remembered signal is passed on to all processes and ends the run.
      options: the limits of a trial.
      stack: whether trials that fit one program train together.

    Attributes:
      perform: the function for the process of a job; it must be importable.
      failures: a line for each job that failed without a record, by its name; it is not taken
        again.
    """

    perform: Perform = staticmethod(perform)

    def __init__(
        self,
        directory: Path,
        slots: Sequence[Slot],
        board: Board,
        stop: Stop,
        options: WorkOptions = DEFAULTS,
        stack: bool = False,
    ) -> None:
        """Stores the sweep's folder, slots, board, stop, limits (`options`) and whether trials may
        train together (`stack`), and begins without processes or jobs.
        """
        self._directory, self._board, self._stop, self._options = directory, board, stop, options
        self._slots, self._free, self._stack = len(slots), list(slots), stack
        self._live: list[Live] = []
        self._waiting: deque[Job] = deque()
        self._held: list[Job] = []
        self._deaths = Counter[str]()  # job to how many of its processes died without a record
        self._hungry = set[str]()  # jobs whose process was killed, perhaps for lack of memory
        self._apart = set[str]()  # trials that could not be trained together
        self._announced = set[str]()  # jobs that others hold, and errors, that were noted
        self._refusal: UserError | None = None
        self._looked = self._asks = 0.0
        self.failures: dict[str, str] = {}

    def run(self, due: Due) -> list[str]:
        """Runs the jobs that `due()` lists, each in a process and a slot, until none is left or a
        signal comes; returns a line for each that failed without a record; raises `Changed` or
        `Unlocked` if one meets changed code or data, or locks that do not hold.

        Args:
          due: lists the jobs that are left, one for each trial or evaluation, in their order; asked
            again and again.

        Returns:
          The lines of `failures`.

        Raises:
          Changed: code or data has changed since the sweep was planned; no job was begun after
            that.
          Unlocked: locks do not hold between machines; the same.
        """
        self._asks = 0.0
        try:
            while self._stop.signal is None and (self._start_jobs(due) or self._live):
                self._wait()
                self._ask_unwanted_to_leave()
        finally:
            self._finish()
        if self._refusal:
            raise self._refusal
        return list(self.failures.values())

    def _start_jobs(self, due: Due) -> bool:
        """Starts waiting jobs while a slot is free (those that need all the memory last, alone) and
        returns whether a job is left to begin; always False once a process has met changed code or
        data, or locks that do not hold.
        """
        while (
            self._free
            and self._refusal is None
            and self._stop.signal is None
            and not any(live.alone for live in self._live)
        ):
            if not self._waiting:
                self._list_jobs(due)
            if not self._waiting or (self._live and self._is_hungry(self._waiting[0])):
                break
            self._start(self._waiting.popleft())
        return self._refusal is None and bool(self._waiting or self._held)

    def _list_jobs(self, due: Due) -> None:
        """Adds the jobs that `due` lists to the queue, unless it was asked shortly before (`ASK`
        seconds, more if it is slow) and no job has ended since; leaves out those that run here or
        have failed, and with `stack` groups trials that fit one program.
        """
        began = time.monotonic()
        if began < self._asks:
            return
        live = {trial.name for live in self._live for trial in live.job.trials}
        try:
            listed = due()
        except (UserError, OSError) as error:  # of a record of another trial, perhaps
            if not self._live:
                raise
            self._note_once(str(error), "; what runs goes on, nothing more is begun")
            self._asks = time.monotonic() + ASK
            return
        not_failed = (job for job in listed if job.name not in self.failures)
        jobs = [job for job in not_failed if job.trials[0].name not in live]
        for job in self._held:
            if not job.left(self._directory):  # another process has done it
                self._board.ended(job)
        self._held.clear()
        if self._stack:
            apart = [job for job in jobs if job.name in self._apart]
            jobs = stacked([job for job in jobs if job not in apart], self._slots) + apart
        self._waiting.extend(sorted(jobs, key=self._is_hungry))
        now = time.monotonic()
        self._asks = now + max(ASK, SHARE * (now - began))

    def _note_once(self, what: str, rest: str) -> None:
        """Prints `what` and `rest` as one line, unless a line on `what` was printed before."""
        if what not in self._announced:
            self._announced.add(what)
            self._board.note(f"{what}{rest}")

    def _is_hungry(self, job: Job) -> bool:
        return job.name in self._hungry

    def _start(self, job: Job) -> None:
        """Starts a job in a free slot; instead, reports one that is done as ended, and sets one
        that another process runs aside in `_held`.
        """
        left = job.left(self._directory)
        if not left:
            return self._board.ended(job)
        if held := job.held(self._directory):
            who = holder(held[0].workdir(self._directory))
            self._note_once(job.name, f": another worker has it ({who}); waiting for it")
            return self._held.append(job)
        slot = self._free.pop(0)
        records = (attempts.read(trial.workdir(self._directory)) for trial in left)
        before = max(map(attempts.spent, records))
        self._live.append(live := Live(self.perform, self._directory, job, slot, self._options))
        live.open, live.alone = left, self._is_hungry(job)
        live.before = before * len(left) if job.kind == "train" else 0.0
        self._board.started(job, slot)

    def _wait(self) -> None:
        """Waits a moment, or until a process ends; kills those whose time to leave is over, handles
        those that have ended, and updates the board.
        """
        signs = [sign for live in self._live for sign in live.signs]
        if signs:
            wait(signs, TICK)
        else:
            time.sleep(min(TICK, ASK))
        for live in self._live:
            if word := live.hurry():
                self._board.note(f"{live.job.name}: {word}")
        for live, code in [(live, live.exit_code()) for live in self._live]:
            if code is not None:
                self._live.remove(live)
                self._free = sorted([*self._free, live.slot], key=lambda slot: slot.number)
                self._ended(live, code)
        self._board.tick()

    def _ask_unwanted_to_leave(self) -> None:
        """Asks the processes to leave whose trial a user has stopped, or that have taken longer
        than the limit; at most once every `LOOK` seconds.
        """
        if time.monotonic() - self._looked < LOOK:
            return
        self._looked, limit = time.monotonic(), self._options.limit
        for live in [live for live in self._live if not live.asked]:
            left = live.job.left(self._directory)
            if live.job.kind == "train" and any(
                recorded(trial, self._directory).word == "stopped"
                for trial in live.open
                if trial not in left
            ):
                live.ask()
            if limit is not None and left and live.seconds > limit * len(live.open):
                live.why = f"stopped after {limit / 60:g} minutes (--trial-timeout)"
                live.ask()

    def _ended(self, live: Live, code: int) -> None:
        """Handles a job whose process has ended with `code`: reports it as over, gives it up,
        starts it again, splits it, or leaves it to another process.
        """
        job = live.job
        left, deaths = job.left(self._directory), self._deaths
        asked_to_save = code in (128 + signal.SIGTERM, 128 + signal.SIGHUP)
        self._asks = 0.0
        if not left:
            del deaths[job.name]  # a round of a search may bring it back
        if left and live.why:
            self._fail(job, live.why)
        elif self._stop.signal is not None or not left:
            self._board.ended(job)
        elif code == HELD:
            # another process was faster: it is due until that one has done it
            self._asks = time.monotonic() + ASK
            self._held.append(job)
        elif code in (CHANGED, UNLOCKED):
            self._store_refusal([trial.workdir(self._directory) for trial in left], code)
            self._board.note(f"{job.name}: {self._refusal}; nothing more is begun")
        elif job.kind == "final" and code in (1, 2):
            self._fail(job, "")
        elif job.together and (code in (1, 2) or deaths[job.name] == FURTHER):
            self._split(job)
        elif live.asked or (job.kind == "train" and asked_to_save):  # requested, not a crash
            word = "left" if code < 0 else "saved"
            self._board.note(f"{job.name}: was asked to leave and has {word}; going on with it")
        elif live.out_of_memory(code):
            self._retry_alone(live, died(code))
        elif deaths[job.name] < FURTHER:
            deaths[job.name] += 1
            self._board.note(f"{job.name}: its process {died(code)}; trying again")
            self._waiting.appendleft(job)
        else:
            self._fail(job, f"its process {died(code)}, {FURTHER + 1} times")

    def _store_refusal(self, folders: Sequence[Path], code: int) -> None:
        """Stores the error after which no job begins: code or data has changed (`CHANGED`), or a
        lock does not hold between machines (`UNLOCKED`), as a process at trials in `folders` has
        found.
        """
        if code == CHANGED:
            line = last_line(folders[0] / "log.txt")
            self._refusal = Changed(line.removeprefix("error: "))
        else:
            self._refusal = Unlocked(next(filter(is_elsewhere, folders), folders[0]))

    def _split(self, job: Job) -> None:
        """Splits a job that could not train its trials together into a queued job for each."""
        self._board.note(f"{job.name}: could not be trained together; going on with one at a time")
        jobs = [Job("train", (trial,)) for trial in job.left(self._directory)]
        self._apart.update(single.name for single in jobs)
        self._waiting.extendleft(reversed(jobs))

    def _retry_alone(self, live: Live, ending: str) -> None:
        """Handles a job whose process may have been killed for lack of memory (`ending`: words on
        its end): runs its trials one at a time, or the one trial once more with nothing beside it;
        after that it has failed.
        """
        words = f"its process {ending}, perhaps for lack of memory"
        if live.job.together:
            self._split(live.job)  # each alone takes less
        elif live.alone:
            self._fail(live.job, f"{words}, also with no other trial beside it")
        else:
            self._board.note(f"{live.job.name}: {words}; trying again when no other runs")
            self._hungry.add(live.job.name)

    def _fail(self, job: Job, why: str) -> None:
        """Records that a training failed, with `why` and the log's last line, in each of its
        unfinished trials; records an evaluation's failure in `failures`.
        """
        first = (job.left(self._directory) or job.trials)[0].workdir(self._directory)
        word = shortened(last_line(first / "log.txt"), first)
        message = "; ".join(part for part in (why, word) if part)
        if job.kind == "final":
            self.failures[job.name] = f"{job.name}: {message}"
        for trial in job.left(self._directory) if job.kind == "train" else []:
            try:
                with RunLock(trial.workdir(self._directory)):
                    attempts.give_up(trial.workdir(self._directory), message)
            except Held:  # another process works on it, and will report
                continue
            except (UserError, OSError) as error:
                # a full disk, for example: without a record it would be begun again and again
                self.failures[trial.name] = f"{trial.name}: {message}; {error}"
        self._board.ended(job)

    def _finish(self) -> None:
        """Asks all processes to save and leave, waits for them, and kills at a second signal."""
        killed = False
        while self._live:
            for live in self._live:
                live.ask()
                if len(self._stop.signals) > 1 and not killed:
                    live.kill()
            killed = len(self._stop.signals) > 1
            self._wait()


def work(
    directory: Path, slots: Sequence[Slot], stop: Stop, options: WorkOptions = DEFAULTS
) -> None:
    """Runs the trials and evaluations of a sweep as one of its workers, until none is left or a
    signal comes; waits while other workers hold the rest, and up to `IDLE` seconds for a launcher's
    next trials and its choice; where no launcher works it advances a search itself.

    Raises:
      UserError: no sweep there, a pattern that fits nothing in it, or slots of fewer cores than
        planned, unless these are accepted.
      Changed: code or data is not what the sweep was planned with.
      Unlocked: locks do not hold between this machine and another one that works there.
    """
    plan = Plan.of_sweep(directory)
    options.part.check(plan)
    slots = with_planned_cores(slots, plan.cores, options.accept_cores)
    board = Board(plan, directory, len(slots), stream=sys.stdout)
    worker = Worker(directory, slots, board, stop, options)
    prove(directory)

    def left() -> list[Job]:
        board.plan = Plan.of_sweep(directory)
        jobs = due(board.plan, Choice.read(directory), directory, options.part)
        return [job for job in jobs if job.name not in worker.failures]

    def free() -> list[Job]:
        jobs = [job for job in left() if not job.held(directory)]
        return in_turn(jobs, slots[0].number, directory)

    since = time.monotonic()
    while stop.signal is None and time.monotonic() - since < IDLE:
        jobs = left()
        if not all(job.held(directory) for job in jobs):
            worker.run(free)
        elif not jobs and (
            Choice.read(directory) is not None
            or not (is_held(directory) or _advanced(directory, options.part))
        ):
            return
        else:
            time.sleep(POLL)
        since = time.monotonic() if jobs else since  # other workers may leave something to do


def _advanced(directory: Path, part: Part) -> bool:
    """Advances the search of a sweep that has no launcher, and returns whether it goes on or jobs
    are due, always False without a search or if this worker has only a part of the trials.
    """
    if Plan.of_sweep(directory).search is None or part != WHOLE:
        return False
    from attnlab.experiments.run.searching import advance

    return advance(directory) or bool(due(Plan.of_sweep(directory), None, directory))
