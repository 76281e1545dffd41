"""Ensembles (Sutskever, Vinyals, Le 2014): several trained systems that predict together.

    log p(y_t | y_<t, x) = log (1/K) sum_k p_k(y_t | y_<t, x)          the mean of the probabilities of K members

Members may be different systems; all they share are the vocabularies. Decoding sees one system
whose state is the states of all, so that every method of search works, and every member is fed the
same words.

Source: I. Sutskever, O. Vinyals, Q. V. Le, "Sequence to Sequence Learning with Neural Networks",
NIPS 2014 (arXiv 1409.3215), section 3.6, which gives figures for ensembles of two and five and no
formula; means of probabilities are what toolkits since then take.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from attnlab.systems.protocol import AttentionMap, Seq2Seq, Side


class Ensemble(Seq2Seq):
    """Ensemble (Sutskever et al. 2014): the mean of the probabilities of trained systems; made by
    `ensemble`, not named in configs.

    Attributes:
      members: the systems; in parameters and names of maps the k-th, counted from 0, is
        "members_k".
    """

    members: tuple[Seq2Seq, ...] = ()

    kinds: ClassVar[Mapping[str, type[Seq2Seq]]] = {}

    def encode(self, source: jax.Array) -> tuple[Any, ...]:
        """See `Seq2Seq.encode`; the memory of every member."""
        return tuple(member.encode(source) for member in self.members)

    def decode(self, memory: tuple[Any, ...], target_in: jax.Array) -> jax.Array:
        """See `Seq2Seq.decode`; the logits are logarithms of probabilities."""
        pairs = zip(self.members, memory, strict=True)
        return averaged([member.decode(of_member, target_in) for member, of_member in pairs])

    def start(self, memory: tuple[Any, ...], length: int) -> tuple[Any, ...]:
        """See `Seq2Seq.start`; the state of every member."""
        pairs = zip(self.members, memory, strict=True)
        return tuple(member.start(of_member, length) for member, of_member in pairs)

    def step(
        self, state: tuple[Any, ...], memory: tuple[Any, ...], tokens: jax.Array
    ) -> tuple[jax.Array, tuple[Any, ...]]:
        """Feeds tokens [B] to every member, with its entry of the tuples `state` and `memory`;
        returns the logits [B,V] of the members' mean probabilities and a tuple of their next
        states. See `Seq2Seq.step`.
        """
        steps = [
            member.step(member_state, member_memory, tokens)
            for member, member_state, member_memory in zip(self.members, state, memory, strict=True)
        ]
        return averaged([logits for logits, _ in steps]), tuple(following for _, following in steps)

    @classmethod
    def maps(cls, collected: Mapping[str, Any]) -> dict[str, AttentionMap]:
        """See `System.maps`; a member's name comes before those of its maps."""
        kinds = cls.kinds.items()
        of_members = ((name, kind.maps(collected.get(name, {}))) for name, kind in kinds)
        return {f"{name}/{key}": map_ for name, maps in of_members for key, map_ in maps.items()}

    @classmethod
    def between(cls, name: str) -> tuple[Side, Side]:
        """See `System.between`."""
        member, _, path = name.partition("/")
        return cls.kinds[member].between(path)

    @classmethod
    def alignment(cls, maps: Mapping[str, AttentionMap]) -> jax.Array:
        """Returns the mean over the members of their alignments [B,Tq,S] with the source, each from
        its maps among `maps`, whose keys are "<member>/<path>". See `Seq2Seq.alignment`.
        """
        split: dict[str, dict[str, AttentionMap]] = {name: {} for name in cls.kinds}
        for full_name, heads in maps.items():
            name, _, path = full_name.partition("/")
            split.setdefault(name, {})[path] = heads
        alignments = [kind.alignment(split[name]) for name, kind in cls.kinds.items()]
        return jnp.stack(alignments).mean(axis=0)


def averaged(logits: Sequence[jax.Array]) -> jax.Array:
    """The logarithm of the mean of the probabilities [...,V] that K logits [...,V] stand for,
    float32.
    """
    log_probs = [jax.nn.log_softmax(scores.astype(jnp.float32), axis=-1) for scores in logits]
    return jax.nn.logsumexp(jnp.stack(log_probs), axis=0) - jnp.log(float(len(log_probs)))


def ensemble(members: Sequence[Seq2Seq]) -> Ensemble:
    """Returns one `Ensemble` that averages the probabilities of the systems `members`, of a new
    subclass that stores their classes; its attention needs are the last need of each member, by the
    member's name, if all of them attend, else none.
    """
    kinds = {f"members_{number}": type(member) for number, member in enumerate(members)}
    needs = {name: need for name, kind in kinds.items() for need in kind.needs.values()}
    if not all(kind.needs for kind in kinds.values()):
        needs = {}
    ensemble_class: type[Ensemble] = type(
        "Ensemble", (Ensemble,), {"kinds": kinds, "needs": needs, "__module__": __name__}
    )
    first = members[0]
    sizes = first.source_vocabulary, first.target_vocabulary
    return ensemble_class(*sizes, tuple(members), pad_id=first.pad_id)
