"""What every system offers to training and decoding: sequence-to-sequence systems, language models
and classifiers.

Axis letters: B batch, S source length, T target length, V vocabulary of what is predicted, C
classes. Ids are int32.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import flax.linen as nn
import flax.struct
import flax.traverse_util
import jax

from attnlab.attention.needs import Need
from attnlab.attention.protocol import LOSSES, Reading
from attnlab.config.registry import Table

Side = str
"""The name of what the rows or the columns of a map lie along: "source", "target", ...; what stands
there (tokens, patches, numbered looks) the task says."""


@flax.struct.dataclass
class AttentionMap:
    """Weights and what they lie between.

    Attributes:
      weights: [B,H,Tq,Tk] float32.
      query: the side of the rows; "target" is what a step predicts, "target_in" what it reads
        (BOS first); "hops" are numbered looks that belong to no position. A language model reads
        its "source"; a classifier of pairs reads "source" and "target_in".
      key: the side of the columns.
    """

    weights: jax.Array
    query: Side = flax.struct.field(pytree_node=False, default="target")
    key: Side = flax.struct.field(pytree_node=False, default="source")


@dataclasses.dataclass(frozen=True)
class Card:
    """Where a system comes from; the attribute `card` of every registered system.

    Attributes:
      year: of the paper.
      paper: authors, title, where it appeared.
    """

    year: int
    paper: str


def looked(module: nn.Module, reading: Reading) -> jax.Array:
    """The context of a look of a module; the losses of the look go to the collection "losses" in
    its name, while that is mutable.

    While parameters are made they go nowhere.
    """
    if reading.losses and not module.is_initializing():
        module.sow(LOSSES, "looks", reading.losses)
    return reading.context


class System(nn.Module, kw_only=True):
    """Base of all systems.

    A subclass lists in `parts` which of its fields are components and from which table they come,
    and in `needs` what it asks of the mechanism in each attention slot; a system that needs none
    does not attend, and has no maps.

    Attributes:
      pad_id: fills up texts that are shorter than the batch; handed over by the task, whose
        vocabulary has it.
    """

    pad_id: int = 0

    parts: ClassVar[Mapping[str, Table]] = {}
    needs: ClassVar[Mapping[str, Need]] = {}
    card: ClassVar[Card | None] = None

    @classmethod
    def asks(cls, chosen: Mapping[str, Any]) -> Mapping[str, Need]:
        """What is asked of the mechanism in each slot where the fields `chosen` are set: `needs`,
        and what follows from these fields.
        """
        return cls.needs

    def real(self, ids: jax.Array) -> jax.Array:
        """Which of the ids are no padding, bool of their shape."""
        return ids != self.pad_id

    @classmethod
    def maps(cls, collected: Mapping[str, Any]) -> dict[str, AttentionMap]:
        """Every attention map of a pass, by the module's path: what the pass collected under
        "maps", in one layout.

        A scan over time stacks each step's [B,H,1,Tk] into [B,H,T,1,Tk]; here that is [B,H,T,Tk]
        again. Where a mechanism looked several times, the later maps are called "<path>_1" and so
        on. Looks that belong to no token, "hops", are rows, whichever heads they are of.
        """
        found = {}
        looks = {
            path[:-1]: weights
            for path, weights in flax.traverse_util.flatten_dict(dict(collected)).items()
        }
        for path, several in looks.items():
            if any(path[:end] in looks for end in range(len(path))):
                continue  # a mechanism inside another, which hands out its maps
            for number, weights in enumerate(several):
                name = "/".join(path) + (f"_{number}" if number else "")
                query, key = cls.between(name)
                weights = weights[:, :, :, 0] if weights.ndim == 5 else weights
                found[name] = AttentionMap(
                    weights.swapaxes(1, 2) if query == "hops" else weights, query, key
                )
        return found

    @classmethod
    def between(cls, name: str) -> tuple[Side, Side]:
        """The sides of the queries and of the keys of the map of this name."""
        return "target", "source"


class Seq2Seq(System):
    """Base of the sequence-to-sequence systems.

    Where the bias of the scores is a parameter "bias" [V] of a layer called `out`,
    `training.output_bias` can start it.

    Attributes:
      source_vocabulary: number of source ids.
      target_vocabulary: V.
    """

    source_vocabulary: int
    target_vocabulary: int

    def encode(self, source: jax.Array) -> Any:
        """source [B,S] to a memory, every array of it with leading axis B (scalars aside); it stays
        constant in decoding.
        """
        raise NotImplementedError

    def decode(self, memory: Any, target_in: jax.Array) -> jax.Array:
        """Teacher forcing: memory and target_in [B,T] (BOS first) to logits [B,T,V]; position t
        sees target_in[:, :t+1].
        """
        raise NotImplementedError

    def start(self, memory: Any, length: int) -> Any:
        """The decoding state before the first token, with room for `length` steps; arrays of rank
        >= 1 lead with B.

        A number that all rows share may come back as [B], one for each row (`decoding.steps.by_row`):
        rows then stand at steps of their own, and `step` is for each what it is alone.
        """
        raise NotImplementedError

    def step(self, state: Any, memory: Any, tokens: jax.Array) -> tuple[jax.Array, Any]:
        """Feed tokens [B] (BOS first) to get the logits [B,V] of the next ones and the next
        state.
        """
        raise NotImplementedError

    @classmethod
    def alignment(cls, maps: Mapping[str, AttentionMap]) -> jax.Array:
        """The source weights [B,Tq,S]: of the last layer that looks at the source, averaged over
        heads.
        """
        in_order = sorted(
            maps.items(), key=lambda item: (len(item[0]), item[0])
        )  # layer 10 after layer 9
        of_source = [one for _, one in in_order if (one.query, one.key) == ("target", "source")]
        return of_source[-1].weights.mean(axis=1)

    def __call__(self, source: jax.Array, target_in: jax.Array) -> jax.Array:
        """`decode(encode(source), target_in)`: logits [B,T,V]."""
        return self.decode(self.encode(source), target_in)


class LanguageModel(System):
    """Base of the systems that predict every token of a text from those before it.

    Attributes:
      vocabulary: V.
      carries: whether a text may be read over any number of batches, its state going on from one
        to the next. Where that would grow with the text, each piece is read from its beginning.
    """

    vocabulary: int

    carries: ClassVar[bool] = True

    def start(self, rows: int, room: int) -> Any:
        """The state before the first token of `rows` texts, the same for each; every array leads
        with that axis.

        Args:
          rows: B.
          room: how many tokens may follow; a state of one size is the same for any.
        """
        raise NotImplementedError

    def read(self, state: Any, tokens: jax.Array) -> tuple[jax.Array, Any]:
        """Feed tokens [B,T] to get the logits [B,T,V], those at t of the token after `tokens[:,
        t]`, and the state after the last.

        Reading a text in pieces gives the logits of reading it at once. Padding may only stand at
        the end of a row; it leaves the state.
        """
        raise NotImplementedError

    def step(self, state: Any, tokens: jax.Array) -> tuple[jax.Array, Any]:
        """Feed tokens [B] to get the logits [B,V] of the next ones and the next state."""
        logits, state = self.read(state, tokens[:, None])
        return logits[:, 0], state

    @classmethod
    def between(cls, name: str) -> tuple[Side, Side]:
        """See `System.between`; a language model looks back at what it has read."""
        return "source", "source"

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Logits [B,T,V] of texts from their beginning, tokens [B,T]."""
        return self.read(self.start(*tokens.shape), tokens)[0]


class Classifier(System):
    """Base of the systems that put a text, or a pair of texts, into one of C classes.

    Attributes:
      vocabulary: number of ids.
      classes: C.
    """

    vocabulary: int
    classes: int

    texts: ClassVar[tuple[int, ...]] = (1,)
    """How many texts it can read: (1,), (2,) or (1, 2)."""

    @classmethod
    def between(cls, name: str) -> tuple[Side, Side]:
        """See `System.between`; a classifier looks at what it has read."""
        return "source", "source"

    def __call__(self, source: jax.Array, target: jax.Array | None = None) -> jax.Array:
        """Texts [B,S], and the second ones [B,T] of pairs, to logits [B,C]; a row may be nothing
        but padding.
        """
        raise NotImplementedError
