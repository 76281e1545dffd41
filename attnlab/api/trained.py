"""A trained run as an object: `run = attnlab.load("runs/first")`. Its methods return the values
that the commands print.
"""

import dataclasses
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from attnlab.analysis.heads import Record
from attnlab.analysis.inside import Analysis, analyse
from attnlab.analysis.results import curves, scores
from attnlab.api.maps import Map as Map
from attnlab.api.maps import Maps as Maps
from attnlab.api.maps import atlas_example
from attnlab.api.stored import Stored
from attnlab.api.training import Folder as Folder
from attnlab.data import SPLITS
from attnlab.decoding.settings import Decoding
from attnlab.errors import UserError, nearest
from attnlab.experiments.define import overridden
from attnlab.tasks import TASKS
from attnlab.tasks.base import Task
from attnlab.tasks.maps import EVERY_MAP, Chosen, attention_maps
from attnlab.tasks.metrics import failures
from attnlab.tasks.protocol import Example, Response, Typed
from attnlab.tasks.schemas import Settings
from attnlab.tasks.scoring import Text, scored_texts
from attnlab.training.devices import use_precision
from attnlab.training.updates import best_params


def load(
    workdir: Folder,
    overrides: Mapping[str, Any] | None = None,
    *,
    ensemble: Sequence[Folder] = (),
    splits: Sequence[str] | str = (),
    accept_changed_code: bool = False,
) -> "Run":
    """Loads the trained run in a folder as a `Run`, with the parameters that were best on
    validation, together with an ensemble of further runs and with changed settings; raises
    `UserError` if the user's code has changed since training, or only warns if
    `accept_changed_code`.

    Args:
      workdir: the folder that `train` wrote, or a trial of a sweep.
      overrides: {"decoding.beam": 8, ...}, settings of how it is used; keys begin with "data.",
        "decoding." or "parallel.", or are "training.metrics".
      ensemble: folders of further trained runs with the same vocabulary; the mean of all
        probabilities counts.
      splits: splits to read now, for `run.task.data`; `evaluate` reads what it needs.
      accept_changed_code: continue with a warning although your code that the config names has
        changed.

    Raises:
      UserError: no such run; an override that changes the model; runs that do not fit each other;
        the test split of a trial of a sweep before it is opened; a vocabulary, data or code that
        has changed since training. The message is that of the command line.
    """
    folders = [ensemble] if isinstance(ensemble, str | os.PathLike) else ensemble
    splits = [splits] if isinstance(splits, str) else splits
    for split in splits:
        _check_split(split)
    of_run = Path(workdir), overridden(overrides), None, list(map(Path, folders))
    stored = Stored.find(*of_run, accept_changed_code)
    for line in stored.notes():
        warnings.warn(line, stacklevel=2)
    return open_run(stored, splits)


def open_run(stored: Stored, splits: Sequence[str] = ()) -> "Run":
    """Returns a `Run` of a stored run: its best parameters, and its task with the data of `splits`;
    with an ensemble, a single task and tree of parameters for all its runs.

    Raises:
      UserError: a checkpoint or data cannot be read, runs do not fit each other, or a test split is
        still closed.
    """
    use_precision(stored.config.training.precision)
    task = _task(stored, splits)
    stored.remember_imports()
    params, step = best_params(stored.config, task, stored.workdir)
    params = in_precision(stored.config, params)
    if stored.members:
        from attnlab.tasks.pairs import together

        named = [(str(stored.workdir), task, params)]
        for folder, config in stored.members.items():
            other = TASKS.resolve(config.task).load(config, folder, ())
            theirs = in_precision(stored.config, best_params(config, other, folder)[0])
            named.append((str(folder), other, theirs))
        task, params = together(named)
    return Run(stored, task, params, step)


def compute_dtype(config: Settings) -> Any:
    """Returns the type of numbers that a trained model is used in, see `decoding.compute`."""
    return np.dtype(getattr(getattr(config, "decoding", None), "compute", "float32"))


def in_precision(config: Settings, params: Any) -> Any:
    """Casts parameters to `compute_dtype`; float32 ones stay as they are."""
    dtype = compute_dtype(config)
    return params if dtype == np.float32 else jax.tree.map(lambda x: x.astype(dtype), params)


def _check_split(split: str) -> None:
    """Raise `UserError` for a name of no split."""
    if split not in SPLITS:
        raise UserError(f"split {split!r}; {nearest(split, SPLITS)}")


def _task(stored: Stored, splits: Sequence[str]) -> Task[Any, Any, Any]:
    """Loads the task of a run with the data of these splits; raises `UserError` for a test split
    still closed and `Changed` if the data differ from training.
    """
    stored.check_splits(splits)
    kind: type[Task[Any, Any, Any]] = TASKS.resolve(stored.config.task)
    task = kind.load(stored.config, stored.vocabulary_folder, splits)
    stored.check_data(dict(task.data.fingerprints))
    return task


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A trained run, or several as one.

    Attributes:
      stored: its folder and origin.
      task: see `attnlab.tasks.base.Task`; `task.system` is the Flax module.
      params: its parameters, for `{"params": params}`; of an ensemble under "members_0",
        "members_1", ...
      step: the step of training of these parameters.
    """

    stored: Stored
    task: Task[Any, Any, Any]
    params: Any
    step: int
    _of_split: dict[str, Task[Any, Any, Any]] = dataclasses.field(default_factory=dict)

    @property
    def config(self) -> Settings:
        """The whole config, with overrides."""
        return self.stored.config

    @property
    def workdir(self) -> Path:
        """Its folder."""
        return self.stored.workdir

    @property
    def parameters(self) -> int:
        """How many numbers were trained."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.params))

    def __repr__(self) -> str:
        folders = ", ".join(repr(str(folder)) for folder in (self.workdir, *self.stored.members))
        names = f"system={self.config.system.name!r}, data={self.config.data.name!r}"
        return f"Run({folders}, {names}, step={self.step}, parameters={self.parameters})"

    def _repr_png_(self) -> bytes:
        """What a notebook shows: its losses."""
        with tempfile.TemporaryDirectory() as folder:
            return curves(self.workdir, Path(folder)).read_bytes()

    def generate(self, texts: Sequence[str]) -> list[str]:
        """Returns the best answer to each text, a translation, a label or a continuation, and ""
        for a blank text. A classifier of pairs takes both texts with a tab between them.

        Raises:
          UserError: one text instead of a list, or a text that the task cannot read.
        """
        return [answers[0].text if answers else "" for answers in self.respond(texts)]

    def respond(self, texts: Sequence[str]) -> list[list[Response]]:
        """Returns for each text the `config.decoding.n_best` best answers, best first, each with
        `text` and `score`; [] for a blank text; raises `UserError` if given one text, no list.
        """
        if isinstance(texts, str):
            raise UserError(
                f"generate takes a list of texts, not one text: write generate([{texts!r}])"
            )
        wanted = [number for number, text in enumerate(texts) if text.strip()]
        answers = self.task.respond(self.params, [texts[number] for number in wanted])
        of_wanted = dict(zip(wanted, answers, strict=True))
        return [of_wanted.get(number, []) for number in range(len(texts))]

    def stream(self, text: str, index: int = 0) -> Iterator[str]:
        """Yields the answer to one text in pieces, as it is written; together they are that of
        `generate` for the text at this index.

        Raises:
          UserError: the task writes no texts, or `config.decoding` asks for beam search or for
            several answers.
        """
        # The end of a text that is not whole may change: it may be the beginning of what stops it,
        # or of a character.
        decoding: Decoding | None = getattr(self.config, "decoding", None)
        held = max(map(len, decoding.stop if decoding else ()), default=1) - 1
        shown = whole = ""
        for whole in self.task.partial_answers(self.params, text, index):
            safe = whole[: len(whole) - held].rstrip("\ufffd")
            if len(safe) > len(shown) and safe.startswith(shown):
                yield safe[len(shown) :]
                shown = safe
        if len(whole) > len(shown):
            yield whole[len(shown) :]

    def longer(self, texts: Sequence[str]) -> list[int]:
        """Returns the indices of the texts with more tokens than `config.batch.max_length`, the
        limit of training texts; [] if there is no limit.
        """
        limit = self.config.longest_text
        if limit is None:
            return []
        wanted = [number for number, text in enumerate(texts) if text.strip()]
        long = self.task.longer_than(limit, [texts[number] for number in wanted])
        return [wanted[index] for index in long]

    def score(
        self,
        texts: "Sequence[Text] | str" = (),
        target: str | None = None,
        *,
        source: str | None = None,
        **options: Any,
    ) -> Any:
        """Returns a `TextScore` (log-probability of each token) for each text or pair; of a source
        and its target given alone, the number log P(target | source) in nats, with the end of the
        target.

        Args:
          texts: a list of texts, or of pairs of a text and what follows it (of a source and its
            target, for a system that writes); or one source.
          target: of that source.
          source: the one source, in place of `texts`.
          options: `window`, `stride` and `end` of `attnlab.tasks.scoring.scored_texts`.

        Returns:
          A `TextScore` for each text; of one source and its target the number alone.

        Raises:
          UserError: a text with no tokens, or a task that gives texts no probability.
        """
        texts = texts if source is None else source
        if target is not None and not isinstance(texts, str):
            raise UserError("score: target= goes with one source; give a list of pairs")
        if isinstance(texts, str) and target is None:
            raise UserError(f"score takes a list of texts, not one: write score([{texts!r}])")
        if isinstance(texts, str):
            return self.score([(texts, target or "")], **options)[0].log_prob
        return scored_texts(self.task, self.params, texts, **options)

    def scores(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Scores many pairs of source and target, in batches."""
        return [text.log_prob for text in self.score(pairs)]

    def maps(self, source: str, target: str | None = None, chosen: Chosen = EVERY_MAP) -> Maps:
        """Returns `Maps`, a dict by name of the attention maps of a text (or pair) that `chosen`
        selects, each a `Map` of weights [H,Tq,Tk] with labels of queries and keys. Of a system
        without attention they are sensitivities of its answers to what it reads. A notebook shows
        them as an atlas.

        Args:
          source: a text.
          target: the second text if the task has two; in translation by default the output of the
            system.
          chosen: names, heads, rows and kinds of the maps, see `attnlab.tasks.maps.Chosen`.

        Raises:
          UserError: a blank text, one text too many or too few, or no such map, head or row.
        """
        (example,) = self.examples_from_text([(source, target)])
        maps = attention_maps(self.task, self.params, example, chosen)
        if not maps:
            raise UserError(f"{self.config.system.name} has no map of kind {list(chosen.kinds)}")
        result = Maps(
            (name, Map(name, map_.weights, list(map_.rows), list(map_.columns), map_.kind))
            for name, map_ in maps.items()
        )
        result.example = atlas_example(self.task, example, maps, self.workdir.name)
        return result

    def without(
        self, layer: int | str, head: int | None = None, kind: str = "zero", split: str = "valid"
    ) -> "Run":
        """Returns a copy of the run with a layer, or its head `head` alone, switched off: its
        scores and answers are computed without it; raises `UserError` if the run has no such layer
        or head, or `kind` is unknown.

        Args:
          layer: the number of the mixing layer in the order of a pass, or its name.
          head: its number; None for the whole layer.
          kind: "zero"; "mean", its mean over examples of `split`; or "uniform" weights.
          split: whose first 100 examples the mean is of.

        Raises:
          UserError: no such layer, head or kind, or a layer that has no such values.
        """
        from attnlab.api.changed import changed_system, switched_off

        _check_split(split)
        changes, task = switched_off(self, layer, head, kind, split), _task(self.stored, ())
        task.system = changed_system(self.task.system, changes)
        return dataclasses.replace(self, task=task, _of_split={})

    def patch(
        self, clean: tuple[str, str], corrupted: str, at: str = "heads", by_position: bool = False
    ) -> "list[Record]":
        """Returns records of the share of a text's lost log-probability that each part of a pass
        restores, when `corrupted` is read before the text in place of clean[0] and the part has its
        values of the clean pass.

        Args:
          clean: what is read first (the source of a translation), and the text.
          corrupted: what is read in its place, of as many tokens.
          at: the parts: "heads", "layer" or "embedding".
          by_position: patch each position alone.

        Returns:
          Records "place", "head", "position" and "restored": 1 is all of the difference, 0 nothing;
          NaN where the two do not differ.

        Raises:
          UserError: texts of different numbers of tokens, no such parts, or no probability.
        """
        from attnlab.api.changed import patched

        return patched(self, clean, corrupted, at, by_position)

    def analyse(
        self,
        split: str = "valid",
        examples: int = 100,
        conllu: Folder | None = None,
        coreference: Folder | None = None,
    ) -> Analysis:
        """Returns an `Analysis` of what the layers and heads of the run attend to and contribute,
        over the first `examples` of a split, as the command `analyse` does; see
        `attnlab.analysis.inside.analyse`.
        """
        _check_split(split)
        task = self.with_split(split)
        return analyse(task, self.params, split, examples, conllu, coreference)

    def examples_from_text(self, typed: Sequence[Typed]) -> list[Example]:
        """Returns an example, as `maps` draws it, for each typed pair (source text, target text or
        None); raises `UserError` for a blank text. A missing target is generated by the system if
        it can.
        """
        for pair in typed:
            for name, entry in zip(("source", "target"), pair, strict=True):
                if entry is not None and not entry.strip():
                    raise UserError(f"{name}={entry!r}: expected a text that is not empty")
        return list(self.task.examples_from_text(self.params, typed))

    def evaluate(self, split: str = "test") -> dict[str, Any]:
        """Returns the scores of a split by name, with "step" and, if the user's code has changed,
        "changed_code", as `evaluate --json` prints them; raises `UserError` if a metric fails.

        Raises:
          UserError: no such split, data cannot be read, the test split of a trial of a sweep is
            still closed, or a metric of the user's fails.
        """
        _check_split(split)
        results, _ = scores(self.with_split(split), self.params, split)
        if failed := failures(results):
            raise UserError(f"{failed}; without it: training.metrics")
        changed = self.stored.changed_code()
        return {**results, "step": self.step, **({"changed_code": changed} if changed else {})}

    def with_split(self, split: str) -> Task[Any, Any, Any]:
        """Returns the task with the data of a split, which is read on first use and kept; raises
        `UserError` for a test split still closed.
        """
        self.stored.check_splits((split,))
        if split in self.task.data.fingerprints:
            return self.task
        if split not in self._of_split:
            task = self._of_split[split] = _task(self.stored, (split,))
            task.system = self.task.system  # that of an ensemble is not that of its first member
        return self._of_split[split]
