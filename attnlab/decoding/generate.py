"""From batches of source sentences to hypotheses in the order of the sentences: the driver of
evaluation and generation.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.data.vocabulary import OURS, Special
from attnlab.decoding.beam import beam_search
from attnlab.decoding.rows import OnRows
from attnlab.decoding.rules import Rules
from attnlab.decoding.sampling import Choose, Run, best_token, group, sampler, start_run, unroll
from attnlab.decoding.settings import Decoding
from attnlab.decoding.steps import Hypotheses, StepFn, length_limits, repeat_rows
from attnlab.errors import UserError
from attnlab.progress import patiently


class Functions(NamedTuple):
    """A model with its parameters, in the form that decoding needs.

    Attributes:
      encode: `encode(source [B,...]) -> memory`, arrays with leading axis B.
      start: `start(memory, length) -> state` with room for `length` steps; arrays with leading axis
        B, scalars allowed.
      step: see `StepFn`.
    """

    encode: Callable[[jax.Array], Any]
    start: Callable[[Any, int], Any]
    step: StepFn


Bind = Callable[[Any], Functions]
"""`bind(params) -> Functions`, called while tracing: params stay an argument of the program and are
not baked into it.
"""


@dataclasses.dataclass(frozen=True)
class Decoded:
    """One hypothesis: tokens [l] int32 (EOS kept), score, log P(Y|X), and attention weights [l,
    source length] or None.
    """

    tokens: np.ndarray
    score: float
    log_prob: float
    alignment: np.ndarray | None = None


Ended = Callable[[np.ndarray], bool]
"""Whether a hypothesis, its ids so far [t], holds what stops it."""


@dataclasses.dataclass(eq=False)
class Decoder:
    """Decodes batches by one compiled program for each batch shape; keep the object to keep the
    programs.

    Attributes:
      bind: the model.
      settings: from `settings.validate`.
      alignment: also return attention weights, where the model has them.
      special: ids of the target's vocabulary; sources are padded with the same id.
      real: which places of a source [B,...] can be looked at, bool [B,S]; None for ids [B,S] that
        are no padding.
      continues: the output continues the source, so that rules count the tokens of the source too.
      ended: stops a hypothesis of greedy search or sampling; it is called after every token, so
        that scores count no token behind the stop. Beam search does not call it.
    """

    bind: Bind
    settings: Decoding
    _: dataclasses.KW_ONLY
    alignment: bool = False
    special: Special = OURS
    real: Callable[[Any], Any] | None = None
    continues: bool = False
    ended: Ended | None = None

    def __post_init__(self) -> None:
        """Prepares the programs, which are compiled for the first batch of a shape."""
        self._real = self.real or (lambda source: source != self.special.pad)
        self._compiled_search = OnRows(self.search)
        self._compiled_begin = OnRows(self.begin)
        self._compiled_go_on = OnRows(self.go_on, donate_argnums=2)
        self._compiled_finish = jax.jit(self.finish)

    def __call__(
        self, params: Any, batches: Iterable[tuple[Any, Mapping[str, Any]]]
    ) -> list[list[Decoded]]:
        """Decodes batches, pairs (sentence numbers [B], -1 for padding; dict with 'source'), and
        returns for each sentence, in the order of the numbers, the list of its hypotheses, best
        first; raises `ValueError` unless the numbers are 0 ... n-1.

        Args:
          params: what `bind` takes.
          batches: pairs of indices [B] (-1 for rows that only fill the batch up) and a batch with
            'source' [B,S], right-padded, or whatever else `encode` reads.

        Returns:
          Item i is the list of hypotheses of the sentence with index i; it holds at least one.

        Raises:
          ValueError: the indices are not 0 ... n-1, each once.
        """
        hypotheses: dict[int, list[Decoded]] = {}
        count = 0
        watched = self.ended is not None and self.settings.method != "beam"
        search = self._watched_search if watched else self._compiled_search
        for indices, batch in patiently("writing texts", batches):
            indices, source = np.asarray(indices, np.int32), np.asarray(batch["source"])
            lengths = np.asarray(self._real(source)).sum(axis=1)
            limits = self._limits(indices, lengths)
            result = jax.device_get(search(params, source, limits, indices))
            for row in np.flatnonzero(indices >= 0).tolist():
                hypotheses[int(indices[row])] = _unpack(result, row, int(lengths[row]))
                count += 1
        if count != len(hypotheses) or set(hypotheses) != set(range(count)):
            raise ValueError(
                f"decoding: {count} rows with {len(hypotheses)} distinct indices do not number the"
                " sentences 0 ... n-1"
            )
        return [hypotheses[index] for index in range(count)]

    def stream(self, params: Any, source: np.ndarray, index: int = 0) -> Iterator[np.ndarray]:
        """Yields after every token the ids written so far for one `source` [S], by greedy search or
        sampling with one sample, whose random key `index` sets; raises `UserError` for beam search
        or several samples.

        The last value is the first hypothesis of `__call__` for a text with this index.

        Args:
          source: [S] int32, or whatever else `encode` reads.
          index: of the text; a sample depends on it.

        Raises:
          UserError: beam search, or several samples.
        """
        if self.settings.method == "beam" or self.settings.n_best > 1:
            raise UserError(
                "only one hypothesis can be shown as it grows; set decoding.method to 'greedy' or"
                " 'sample', and decoding.n_best=1"
            )
        lengths = np.asarray(self._real(source[None])).sum(axis=1)
        indices = np.array([index], np.int32)
        for run in self._by_token(params, source[None], self._limits(indices, lengths), indices):
            tokens = np.asarray(run.tokens[0, : int(run.t)])
            yield tokens[tokens != self.special.pad]

    def _limits(self, indices: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """The most tokens [B] for sources of these lengths. A row that only fills the batch ends
        after one token, so that it never delays the others.
        """
        pairs = zip(indices, lengths, strict=True)
        return np.array([self.settings.limit(n) if i >= 0 else 1 for i, n in pairs], np.int32)

    def _watched_search(
        self, params: Any, source: np.ndarray, limits: np.ndarray, indices: np.ndarray
    ) -> Hypotheses:
        """Returns the `Hypotheses` of greedy search or sampling on a batch, asking `ended` after
        every token and continuing none that has ended; the arguments are those of `search`.
        """
        *_, run = self._by_token(params, source, limits, indices)
        return self._compiled_finish(run)

    def _by_token(
        self, params: Any, source: np.ndarray, limits: np.ndarray, indices: np.ndarray
    ) -> Iterator[Run]:
        """Yields the state (`Run`) of greedy search or sampling on a batch after every token until
        all rows are done: by an end token, their limit [B], or because `ended` says so; `indices`
        [B] set the random keys.
        """
        run, memory = self._compiled_begin(params, source)
        done = np.zeros(len(run.done), bool)
        while not done.all():
            until = np.int32(run.t + 1)
            run = self._compiled_go_on(params, source, run, memory, limits, indices, until)
            done, tokens = np.array(run.done), np.asarray(run.tokens)
            if self.ended is not None:
                lengths = (tokens != self.special.pad).sum(axis=1)
                for row in np.flatnonzero(~done):
                    done[row] = self.ended(tokens[row, : lengths[row]])
                run = run._replace(done=jnp.asarray(done))
            yield run

    def search(
        self, params: Any, source: jax.Array, limits: jax.Array, indices: jax.Array
    ) -> Hypotheses:
        """Encodes the sources of a batch and returns the `Hypotheses` [B,n_best] that the method of
        the settings (beam, greedy or sample) gives; `limits` [B] are the most tokens of each text,
        `indices` [B] set the random keys of samples.
        """
        if self.settings.method != "beam":
            run, memory = self.begin(params, source)
            return self.finish(self.go_on(params, source, run, memory, limits, indices))
        model, settings, real = self.bind(params), self.settings, self._real(source)
        memory, room = model.encode(source), settings.limit(real.shape[1])
        return beam_search(
            model.step,
            model.start(memory, room),
            memory,
            rows=len(source),
            beam=settings.beam,
            max_length=room,
            length_penalty=settings.length_penalty,
            length_offset=settings.length_offset,
            coverage=settings.coverage,
            source_mask=real,
            n_best=settings.n_best,
            rules=self.rules(source),
            limits=limits,
            alignment=self.alignment,
        )

    def begin(self, params: Any, source: jax.Array) -> tuple[Run, Any]:
        """Encodes the sources of a batch and returns the state (`Run`) of greedy search or sampling
        before its first token, and the encoded memory, both with a row for each sample.
        """
        model, room = self.bind(params), self.settings.limit(self._real(source).shape[1])
        memory = model.encode(source)
        state = model.start(memory, room)
        state, memory = repeat_rows((state, memory), len(source), self.each)
        shape: dict[str, Any] = {"rows": len(source) * self.each, "max_length": room}
        options: dict[str, Any] = {"alignment": self.alignment, "special": self.special}
        return start_run(model.step, state, memory, **shape, **options), memory

    def go_on(
        self,
        params: Any,
        source: jax.Array,
        run: Run,
        memory: Any,
        limits: jax.Array,
        indices: jax.Array,
        until: jax.Array | None = None,
    ) -> Run:
        """Continues a run of greedy search or sampling until `until` tokens are written in all
        (None: to its end) and returns it; `limits` [B] are the most tokens of each text, `indices`
        [B] set the random keys of samples.
        """
        limits = jnp.repeat(length_limits(limits, len(source), run.tokens.shape[1]), self.each)
        return unroll(
            self.bind(params).step,
            run,
            memory,
            self.choose(indices),
            limits,
            rules=self.rules(source).repeat(self.each),
            until=until,
        )

    def finish(self, run: Run) -> Hypotheses:
        """The hypotheses of a run, best first."""
        return group(run, len(run.done) // self.each, self.each, self.special)

    @property
    def each(self) -> int:
        """Hypotheses of each text in greedy search and sampling."""
        return self.settings.n_best if self.settings.method == "sample" else 1

    def rules(self, source: jax.Array) -> Rules:
        """Returns the rules on next tokens of the settings (minimum length, repetition penalty, no
        repeated n-grams); the source counts as already written text if the output continues it.
        """
        settings = self.settings
        return Rules(
            settings.min_length,
            settings.repetition_penalty,
            settings.no_repeat_ngram,
            source if self.continues else None,
            self.special,
        )

    def choose(self, indices: jax.Array) -> Choose:
        """Returns the function of logits and step that chooses the next tokens: the most probable
        (greedy, or temperature 0), or a random draw with a key for each text, from its index in
        `indices` [B] and the seed of the settings. The key depends on the index of the text alone,
        so samples do not depend on the batch.
        """
        settings = self.settings
        if settings.method == "greedy":
            return best_token
        seeded = jax.random.key(settings.seed)
        return sampler(
            jax.vmap(lambda index: jax.random.fold_in(seeded, index))(jnp.maximum(indices, 0)),
            settings.n_best,
            temperature=settings.temperature,
            top_k=settings.top_k,
            top_p=settings.top_p,
            min_p=settings.min_p,
        )


def _unpack(result: Hypotheses, row: int, source_length: int) -> list[Decoded]:
    """Returns the hypotheses of row `row` of decoded results as `Decoded`, arrays without padding
    (alignments cut to `source_length` positions); empty hypotheses are left out, except the first.
    """
    lengths = np.asarray(result.lengths[row])
    maps = result.alignment
    return [
        Decoded(
            tokens=np.array(result.tokens[row, k, :length], np.int32),
            score=float(result.scores[row, k]),
            log_prob=float(result.log_probs[row, k]),
            alignment=(
                None
                if maps is None
                else np.array(maps[row, k, :length, :source_length], np.float32)
            ),
        )
        for k, length in enumerate(lengths)
        if length or k == 0
    ]
