"""The Optuna side of a search: one study per variant and meaning (`Plan.study`), in
`DIR/search.journal`.

A draw is a function of the seed of the search, the number of the trial and the results told so far,
and is written as one record. So a launcher that was killed finds every trial that it has drawn, and
draws the same next one.
"""

import contextlib
import dataclasses
import hashlib
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.errors import UserError, optional_package
from attnlab.experiments.define import Range, Search
from attnlab.records.locks import exclusive

if TYPE_CHECKING:
    import optuna

JOURNAL = "search.journal"
_DIGITS = 4  # significant digits of a drawn number: finer differences are not worth a trial


@dataclasses.dataclass(frozen=True)
class Asked:
    """One trial of a study.

    Attributes:
      number: its place in the study, from 0.
      tuned: config key to value.
      state: "running" until its result is told, then "complete", "fail" or "pruned".
      value: the objective of a complete one.
    """

    number: int
    tuned: dict[str, Any]
    state: str
    value: float | None = None

    @property
    def settled(self) -> bool:
        """Whether its result was told."""
        return self.state != "running"


class Study:
    """The trials of one variant.

    Args:
      directory: the sweep's folder.
      search: the search.
      name: the name of the study; a name always belongs to the same search, see `Plan.study`.
      mode: "min" or "max".

    Raises:
      UserError: optuna is not installed, or the journal is damaged.
    """

    def __init__(self, directory: Path, search: Search, name: str, mode: str) -> None:
        """Opens the study called `name` in the journal of the sweep's folder, or creates it, for a
        search for the least ("min") or greatest ("max") score; raises `UserError` if optuna is not
        installed or the journal is damaged.
        """
        optuna = _optuna()
        self._search = search
        self._direction = {"min": "minimize", "max": "maximize"}[mode]
        self._asking = directory / ".search-ask.lock"
        try:
            self._study = optuna.create_study(
                storage=_storage(directory),
                study_name=name,
                direction=self._direction,
                load_if_exists=True,
                # never asked: `_draw` has one for each number
                sampler=optuna.samplers.RandomSampler(),
                pruner=optuna.pruners.NopPruner(),  # `searching` says what is pruned
            )
            self.trials()
        except (UserError, OSError):
            raise
        except Exception as error:  # of a damaged journal: from KeyError to AssertionError
            where, why = directory / JOURNAL, f"{type(error).__name__}: {error}"
            raise UserError(
                f"{where} is damaged ({why}): put back a good copy, or run the search anew in"
                " another --dir"
            ) from error

    def trials(self) -> list[Asked]:
        """Returns all trials that have been drawn, in their order."""
        return [self._asked(trial) for trial in self._study.get_trials(deepcopy=False)]

    def ask(self) -> Asked:
        """Draws the next trial, stores it in the journal under a lock (two processes never get the
        same one) and returns it as an `Asked`.
        """
        optuna = _optuna()
        with exclusive(self._asking):
            running = optuna.trial.TrialState.RUNNING
            given = {"params": self._draw(), "distributions": self._space()}
            trial = optuna.trial.create_trial(state=running, **given)
            self._study.add_trial(trial)  # one record: after a kill all of it is there, or nothing
            return self.trials()[-1]

    def tell(self, number: int, value: float | None) -> None:
        """Stores the objective of trial `number` and closes it, as failed for None; does nothing if
        it is closed already.
        """
        state = _optuna().trial.TrialState
        end = state.FAIL if value is None else state.COMPLETE
        self._study.tell(number, value, state=end, skip_if_finished=True)

    def tell_pruned(self, number: int, scores: Sequence[float]) -> None:
        """Closes trial `number` as pruned, with its scores at the evaluations it made (values that
        are not finite left out); does nothing if it is closed already.
        """
        optuna = _optuna()
        frozen = self._study.get_trials(deepcopy=False)[number]
        if frozen.state.is_finished():
            return
        trial = optuna.trial.Trial(self._study, frozen._trial_id)
        # the sampler goes by how far a trial came and what it had reached there
        for place, score in enumerate(scores, start=1):
            if place not in frozen.intermediate_values and math.isfinite(score):
                trial.report(score, place)
        self._study.tell(number, None, state=optuna.trial.TrialState.PRUNED, skip_if_finished=True)

    def _draw(self) -> dict[str, Any]:
        """Draws the parameters of the next trial as {setting: value}, a choice as the index of its
        option: a function of the search's seed and of the trials before.
        """
        history = self._study.get_trials(deepcopy=False)
        sampler = _sampler(self._search, len(history))
        draft = _optuna().create_study(direction=self._direction, sampler=sampler)
        draft.add_trials(history)
        params = draft.ask(self._space()).params
        return {key: _rounded(params[key], values) for key, values in self._search.space.items()}

    def _asked(self, trial: "optuna.trial.FrozenTrial") -> Asked:
        """Converts a trial of Optuna's to an `Asked`: its number, its settings with the values that
        a config has, its state, and its value if it is complete, else None.
        """
        tuned = {key: trial.params[key] for key in self._search.space}
        ranges = self._search.space.items()
        tuned |= {key: each.options[tuned[key]] for key, each in ranges if each.options}
        state = trial.state.name.lower()
        return Asked(trial.number, tuned, state, trial.value if state == "complete" else None)

    def _space(self) -> dict[str, Any]:
        return {key: _distribution(values) for key, values in self._search.space.items()}


def _optuna() -> Any:
    """Imports and returns the package optuna, set to print warnings only; raises `UserError` if it
    is not installed.
    """
    optuna = optional_package("optuna", "a search needs optuna", "search")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _distribution(values: Range) -> Any:
    """Converts a range to a distribution of Optuna's; a choice becomes a choice among the indices
    of its options, since these may have any type.
    """
    kinds = _optuna().distributions
    if values.kind == "choice":
        return kinds.CategoricalDistribution(tuple(range(len(values.options))))
    if values.kind == "integers":
        return kinds.IntDistribution(values.low, values.high)
    return kinds.FloatDistribution(values.low, values.high, log=values.kind == "log_uniform")


def _rounded(value: Any, values: Range) -> Any:
    """Returns a drawn float rounded to `_DIGITS` significant digits, within its bounds; other
    values unchanged.
    """
    if not isinstance(value, float) or values.low is None or values.high is None:
        return value
    return min(max(float(f"{value:.{_DIGITS}g}"), values.low), values.high)


def _sampler(search: Search, number: int) -> Any:
    """Returns the Optuna sampler (random, grid or TPE) for draw `number`, seeded by the search's
    seed and, except for the grid, by that number. The seed does not depend on the variant, so draws
    that do not depend on results are the same for all variants.
    """
    samplers = _optuna().samplers
    seed = int.from_bytes(hashlib.sha256(f"{search.seed}/{number}".encode()).digest()[:4])
    if search.sampler == "random":
        return samplers.RandomSampler(seed)
    if search.sampler == "grid":
        grid = {key: range(len(values.options)) for key, values in search.space.items()}
        return samplers.GridSampler(grid, seed=search.seed)
    return samplers.TPESampler(seed=seed, n_startup_trials=search.startup)


def _storage(directory: Path) -> Any:
    """Returns Optuna's storage in `DIR/search.journal`, which is created if absent and loses an
    incomplete last line.
    """
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    path, lock = directory / JOURNAL, directory / ".search.lock"
    directory.mkdir(parents=True, exist_ok=True)
    with exclusive(lock), open(path, "a+b") as file:
        file.seek(0)
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole != len(content):
            file.truncate(whole)
    backend: Any = JournalFileBackend
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the journal is announced as experimental
        return JournalStorage(backend(str(path), lock_obj=_JournalLock(lock)))


class _JournalLock(contextlib.ExitStack):
    """`flock` for Optuna's journal: unlike a lock file, it is gone when its holder was killed.

    Args:
      path: the file that is locked.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def acquire(self) -> bool:
        self.enter_context(exclusive(self._path))
        return True

    def release(self) -> None:
        self.close()
