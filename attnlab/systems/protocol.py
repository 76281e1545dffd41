"""The interfaces of systems for training and decoding: systems that write a text, language models,
classifiers of texts and of tokens. Those of systems that read images are in `vision/protocol.py`.

Axis letters: B batch, S source length, T target length, V vocabulary of what is predicted, C
classes, O outputs of a token. Ids are int32.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import flax.linen as nn
import flax.struct
import flax.traverse_util
import jax
import jax.numpy as jnp

from attnlab.attention.mixer import Kind
from attnlab.attention.needs import Need
from attnlab.attention.protocol import LOSSES, Reading
from attnlab.config.registry import Parts

Side = str
"""The name of what the rows or the columns of a map lie along: "source", "target", ...; what stands
there (tokens, patches, numbered looks) the task says."""


@flax.struct.dataclass
class AttentionMap:
    """Weights, or what stands for them, and what their rows and columns are.

    Attributes:
      weights: [B,H,Tq,Tk] float32, of one example [H,Tq,Tk]; over an image [R,h,w], each a part of
        it.
      rows: the side of the queries; "target" are the tokens that steps predict, "target_in" those
        they read (BOS first); "hops" are numbered looks without a position. A language model reads
        its "source"; a classifier of pairs reads "source" and "target_in", or both as one row,
        "joined". Once a task has labelled a map (`attnlab.tasks.maps`), a word for each row.
      columns: the side of the keys, or a word for each.
      image: [H,W,C] uint8, of a map over an image.
      kind: what the numbers are: "exact" weights of the layer; an "effective" matrix A, context = A
        v, that the layer itself never has; or "sensitivity", || d y_i / d x_j ||. See
        `attnlab.attention.mixer.Kind`.
    """

    weights: Any
    rows: Side | Sequence[str] = flax.struct.field(pytree_node=False, default="target")
    columns: Side | Sequence[str] = flax.struct.field(pytree_node=False, default="source")
    image: Any = flax.struct.field(pytree_node=False, default=None)
    kind: Kind = flax.struct.field(pytree_node=False, default="exact")


GLIMPSES = "glimpses"
"""The variable collection for where a system has looked in an image."""


@dataclasses.dataclass(frozen=True)
class Card:
    """The source of a system of a user's own that has it as its attribute `card`, not in its
    docstring (see `layers/cards.py`).

    Attributes:
      year: of the paper.
      paper: authors, title, where it appeared.
    """

    year: int
    paper: str


def looked(module: nn.Module, reading: Reading) -> jax.Array:
    """The context of a reading, whose auxiliary losses go to the collection "losses" under the name
    of the module while that is mutable, but not during initialization.
    """
    if reading.losses and not module.is_initializing():
        module.sow(LOSSES, "looks", reading.losses)
    return reading.context


def mean_of(a: jax.Array, real: jax.Array) -> jax.Array:
    """The mean [B,D] of the real ones of vectors a [B,L,D]; zeros where there is none."""
    count = jnp.maximum(real.sum(axis=1), 1).astype(a.dtype)
    return jnp.where(real[..., None], a, 0).sum(axis=1) / count[:, None]


class System(nn.Module, kw_only=True):
    """Base of all systems.

    `parts` of a subclass names the fields that are components and their tables; `needs` says what
    it requires of the mechanism in each attention slot. A system with empty `needs` has no
    attention and no maps. `map_sides` are those of all maps, where `between` says nothing else.

    Attributes:
      pad_id: the padding id; the task sets it from its vocabulary.
      bos_id: the id that begins a text, for systems that put one in front; set in the same way.
    """

    pad_id: int = 0
    bos_id: int = 1

    parts: ClassVar[Parts] = {}
    needs: ClassVar[Mapping[str, Need]] = {}
    map_sides: ClassVar[tuple[Side, Side]] = ("target", "source")

    @classmethod
    def asks(cls, chosen: Mapping[str, Any]) -> Mapping[str, Need]:
        """The need of each slot for these fields of the system: `needs`, changed by what the fields
        imply.
        """
        return cls.needs

    @property
    def over_batch(self) -> bool:
        """Whether a pass of training leaves statistics of its batch, see `layers.norms.BatchNorm`."""
        return False

    @property
    def looks(self) -> bool:
        """Whether there is something to draw: attention, gates of an image network, or an answer
        that lies over the image.
        """
        return bool(self.needs)

    @nn.nowrap
    def overlaid(
        self, collected: Mapping[str, Any], height: int, width: int
    ) -> dict[str, tuple[Any, list[str]]]:
        """What a pass over one image has left beside maps and gates, to be drawn over it: arrays
        [R,h,w] and the names of their rows. All collections of the pass are in `collected`.
        """
        return {}

    @nn.nowrap
    def notes(self) -> list[str]:
        """What a person should know before training with these fields, a line each."""
        return []

    def real(self, ids: jax.Array) -> jax.Array:
        """Which of the ids are not padding, bool of their shape."""
        return ids != self.pad_id

    @classmethod
    def maps(cls, collected: Mapping[str, Any]) -> dict[str, AttentionMap]:
        """Returns every attention map of a pass, an `AttentionMap` [B,H,Tq,Tk] by the path of its
        module, made from `collected`, the variables of the collection "maps"; maps inside another
        mechanism are left out.

        A scan over time stacks each step's [B,H,1,Tk] into [B,H,T,1,Tk]; here that is [B,H,T,Tk]
        again. If a mechanism was used several times, the later maps are called "<path>_1" and so
        on. Looks without a token, "hops", are rows, of all heads.
        """
        maps = {}
        looks: dict[Any, tuple[Any, Any]] = {
            tuple(path): ("exact" if kind == "weights" else kind, weights)
            for (*path, kind), weights in flax.traverse_util.flatten_dict(dict(collected)).items()
        }
        for path, (kind, several) in looks.items():
            if any(path[:end] in looks for end in range(len(path))):
                continue  # a mechanism inside another, which returns its maps
            for number, weights in enumerate(several):
                name = "/".join(path) + (f"_{number}" if number else "")
                query, key = cls.between(name)
                weights = weights[:, :, :, 0] if weights.ndim == 5 else weights
                maps[name] = AttentionMap(
                    weights.swapaxes(1, 2) if query == "hops" else weights, query, key, kind=kind
                )
        return maps

    @classmethod
    def between(cls, name: str) -> tuple[Side, Side]:
        """The sides of the queries and of the keys of the map of this name."""
        return cls.map_sides


class Writer(System):
    """Base of the systems that write a text for what they read, whatever that is: see `Seq2Seq` for
    a text, `attnlab.systems.vision.captioner.Captioner` for an image.

    If the bias of the logits is a parameter "bias" [V] of a layer called `out`,
    `training.output_bias` can initialize it.

    Attributes:
      target_vocabulary: V.
      source_side: the side of the maps where the places of the source stand.
    """

    target_vocabulary: int

    source_side: ClassVar[Side] = "source"

    def encode(self, source: jax.Array) -> Any:
        """source [B,...] to a memory, its arrays have leading axis B, except scalars; it is
        constant in decoding.
        """
        raise NotImplementedError

    def decode(self, memory: Any, target_in: jax.Array) -> jax.Array:
        """Teacher forcing: memory and target_in [B,T] (BOS first) to logits [B,T,V]; position t
        sees target_in[:, :t+1].
        """
        raise NotImplementedError

    def start(self, memory: Any, length: int) -> Any:
        """The decoding state before the first token, with room for `length` steps; its arrays have
        leading axis B, except scalars.

        A number that all rows share may be passed back as [B], one for each row
        (`decoding.steps.by_row`): each row is then at its own step, and `step` computes for each
        row what it would compute for it alone.
        """
        raise NotImplementedError

    def step(self, state: Any, memory: Any, tokens: jax.Array) -> tuple[jax.Array, Any]:
        """Feed tokens [B] (BOS first) to get the logits [B,V] of the next ones and the next
        state.
        """
        raise NotImplementedError

    @classmethod
    def alignment(cls, maps: Mapping[str, AttentionMap]) -> jax.Array:
        """Returns the weights [B,Tq,S], averaged over heads, of the last layer that attends from
        the target to the source, chosen by their sides from `maps`, the `AttentionMap` of each
        module of a pass by its path; `IndexError` if there is none.
        """
        # layer 10 after layer 9
        in_order = [maps[name] for name in sorted(maps, key=lambda name: (len(name), name))]
        of_source = [
            map_ for map_ in in_order if (map_.rows, map_.columns) == ("target", cls.source_side)
        ]
        return of_source[-1].weights.mean(axis=1)

    def __call__(self, source: jax.Array, target_in: jax.Array) -> jax.Array:
        """`decode(encode(source), target_in)`: logits [B,T,V]."""
        return self.decode(self.encode(source), target_in)


class Seq2Seq(Writer):
    """Base of the sequence-to-sequence systems: the source is a text, ids [B,S].

    Attributes:
      source_vocabulary: number of source ids.
    """

    source_vocabulary: int


class LanguageModel(System):
    """Base of the systems that predict every token of a text from earlier tokens.

    Attributes:
      vocabulary: V.
      carries: whether a text may be read over any number of batches, with the state passed from one
        to the next. If the state grows with the text, each piece is read from the initial state
        instead.
      packs: whether several texts may share a row; `__call__` then takes a second argument,
        "segments" [B,T]: tokens with the same number are one text, and see no others.
      in_two: whether `logits(hidden_states(...))` is `__call__`, so that the logits of a long text
        need never be there at once.
    """

    vocabulary: int

    map_sides = ("source", "source")
    carries: ClassVar[bool] = True
    packs: ClassVar[bool] = False
    in_two: ClassVar[bool] = False

    def start(self, rows: int, room: int) -> Any:
        """The state before the first token of `rows` texts, the same for each; its arrays have this
        leading axis.

        Args:
          rows: B.
          room: how many tokens may follow; a state of constant size does not depend on it.
        """
        raise NotImplementedError

    def read(self, state: Any, tokens: jax.Array) -> tuple[jax.Array, Any]:
        """Feed tokens [B,T] to get the logits [B,T,V], those at t of the token after `tokens[:,
        t]`, and the state after the last.

        Reading a text in pieces gives the same logits as reading it at once. Padding is allowed
        only at the end of a row; it does not change the state.
        """
        raise NotImplementedError

    def step(self, state: Any, tokens: jax.Array) -> tuple[jax.Array, Any]:
        """Feed tokens [B] to get the logits [B,V] of the next ones and the next state."""
        logits, state = self.read(state, tokens[:, None])
        return logits[:, 0], state

    def hidden_states(self, tokens: jax.Array, segments: jax.Array | None = None) -> jax.Array:
        """What `__call__` makes of tokens [B,T] before the logits, x [B,T,d]; where `in_two`."""
        raise NotImplementedError

    def logits(self, x: jax.Array) -> jax.Array:
        """x [B,t,d] of any tokens to their logits [B,t,V]; where `in_two`."""
        raise NotImplementedError

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Logits [B,T,V] of texts from their beginning, tokens [B,T]."""
        return self.read(self.start(*tokens.shape), tokens)[0]


class Classifier(System):
    """Base of the systems that classify a text, or a pair of texts, into C classes.

    Attributes:
      vocabulary: number of ids.
      classes: C.
    """

    vocabulary: int
    classes: int

    map_sides = ("source", "source")
    texts: ClassVar[tuple[int, ...]] = (1,)
    """How many texts it can read: (1,), (2,) or (1, 2)."""

    def __call__(self, source: jax.Array, target: jax.Array | None = None) -> jax.Array:
        """Texts [B,S], and the second ones [B,T] of pairs, to logits [B,C]; a row may have only
        padding.
        """
        raise NotImplementedError


Beside = Literal["types", "segments", "trees", "at"]
"""What a `TokenClassifier` may read beside the tokens; see there."""


class TokenClassifier(System):
    """Base of the systems that give O numbers for every token of a text, which may depend on all of
    its tokens: taggers (O tags), masked language models (O = vocabulary), extractive question
    answering (O = 2: the answer starts, ends here).

    Attributes:
      vocabulary: number of ids.
      outputs: O.
      reads: what `__call__` reads beside the tokens. A task hands over what it has of it; what
        changes the meaning of a row ("segments", "trees") is refused where a system does not read
        it.
    """

    vocabulary: int
    outputs: int

    map_sides = ("source", "source")
    reads: ClassVar[frozenset[Beside]] = frozenset()

    def __call__(
        self,
        tokens: jax.Array,
        types: jax.Array | None = None,
        segments: jax.Array | None = None,
        trees: jax.Array | None = None,
        at: jax.Array | None = None,
    ) -> jax.Array:
        """Tokens to numbers [B,T,O], or those of P tokens of each row alone, [B,P,O]; those at
        padding mean nothing, but are finite.

        Args:
          tokens: [B,T], padding at the end of a row; a row may have only padding. What begins and
            ends a text is put there by the task.
          types: [B,T] int32, which of the texts that a row joins a token belongs to, from 0 (a
            question, then the passage); None for one text. A system that does not read them takes
            the row as one text.
          segments: [B,T] int32: tokens with the same number are one text, and see no others; None
            for one text a row. (Rows packed with several texts.)
          trees: [B,T,T] int32, distances in dependency trees, see `attention.view.View`.
          at: [B,P] int32, which tokens; None for all. A large head then costs as much as is asked.
        """
        raise NotImplementedError
