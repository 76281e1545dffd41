"""What a system requires of the attention mechanism in one of its slots. When the config is
checked, this is compared with what the mechanism and its parts declare.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp

from attnlab.attention.kernels import BACKWARDLESS, BACKWARDS, KERNELS, ROWLESS, WEIGHTLESS
from attnlab.attention.mechanisms.heads import refusal
from attnlab.attention.protocol import Attention, Capabilities, Rows
from attnlab.attention.visibility import Causal, Everything, Rule
from attnlab.config.registry import Parts, kind, made
from attnlab.errors import UserError

# what weights sum to, in the words of the messages; the strictest first
_SUMS: Mapping[Rows, str] = {"one": "one", "at most one": "at most one", "any": "anything"}


@dataclasses.dataclass(frozen=True)
class Need:
    """What a system requires of the mechanism in one of its slots; same words as `Capabilities`, and
    like these 14 fields on one level, of which a slot states those that it needs.

    Attributes:
      cache: the memory is extended; "decoding": in decoding alone, so that full passes over the
        text so far (`decoding.full_passes`) do without.
      stepwise: queries come one by one, at least in decoding, so no weight may depend on earlier
        queries, except through `history`.
      history: the system passes `history` from each look to the next, so that a weight may depend
        on earlier queries.
      heads: how many heads the rule distinguishes, 1 for none.
      values: keys and values are two arrays; "unprojected": also, the context must be a sum of the
        values that are passed in, with weights that sum to at most one.
      places: what is known about positions: the distance from the "first" token; dependency "trees"
        too; rows and columns of a "grid" too; or, for a memory that is "adrift", only the distance of
        query and key.
      weights: the system reads with `weights=True`; "distribution": it also needs weights that sum
        to one.
      mixes: the system only calls `begin` and `mix`, so any mixer works.
    """

    role: Literal["self", "cross"]
    direction: Literal["causal", "bidirectional"] = "bidirectional"
    padding: bool = True
    cache: bool | Literal["decoding"] = False
    maps: bool = True
    positions: frozenset[str] = frozenset()
    stepwise: bool = False
    dense: bool = False
    heads: int = 1
    values: bool | Literal["unprojected"] = False
    places: Literal["first", "trees", "grid", "adrift"] = "first"
    weights: bool | Literal["distribution"] = False
    history: bool = False
    mixes: bool = False

    def under(self, rule: Rule) -> "Need":
        """Returns this need for a slot that also has the visibility `rule`: as many heads as the
        rule distinguishes, causal if the rule is, and `dense` unless it is `Causal` itself;
        unchanged for `Everything`.
        """
        if isinstance(rule, Everything):
            return self
        position = jax.ShapeDtypeStruct((1,), jnp.int32)
        heads = jax.eval_shape(rule.allows, position, position).shape[1]
        direction = "causal" if rule.is_causal else self.direction
        return dataclasses.replace(
            self, dense=not isinstance(rule, Causal), heads=heads, direction=direction
        )

    def in_full_passes(self, where: str) -> "Need":
        """Returns this need without a cache if its cache is for "decoding" only, because full
        passes over the text so far replace it, else unchanged; raises UserError, naming the slot by
        `where`, if such a "decoding" slot is not causal.

        Raises:
          UserError: what has been written would see what is written later, so that full passes are
            not what steps with a cache compute.
        """
        if self.cache != "decoding":
            return self
        if self.direction != "causal":
            raise UserError(
                f"config.decoding.full_passes=true: in a full pass {where} sees later tokens, so"
                " what it writes would not be what its steps write; set it to false"
            )
        return dataclasses.replace(self, cache=False)

    def check(self, mechanism: type, where: str, chosen: Mapping[str, Any] | None = None) -> None:
        """Raise `UserError` if the mechanism cannot do what this slot requires. The message names
        the mechanism, what it lacks and what to choose.

        Args:
          mechanism: the class.
          where: the path of the slot in the config.
          chosen: fields of the mechanism that the config sets; its parts must fit each other and
            the slot.
        """
        for field, reason in self.misfits(mechanism, chosen or {}):
            raise UserError(f"{where}{field}: {reason}")

    def misfits(self, mechanism: Any, chosen: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yields why a mechanism class with the field values `chosen` does not fit this slot, the
        most important first: pairs of text, the field (".score", or "" for the mechanism itself)
        and the reason.
        """
        if not self.mixes and not issubclass(mechanism, Attention):
            yield (
                "",
                f"{mechanism.__name__} mixes a sequence, but cannot attend to another one; choose"
                " 'multihead' or another attention",
            )
        heads = chosen.get("heads", getattr(mechanism, "heads", 1))
        for request, instead in self._lacks(mechanism, heads):
            yield "", f"{mechanism.__name__} does not support {request}; {instead}"
        tables: Parts = getattr(mechanism, "parts", {})
        parts = {
            name: made(table, chosen.get(name, getattr(mechanism, name)))
            for name, table in tables.items()
        }
        for name, table in tables.items():
            if table.kind == "mechanism":  # an attention inside this one
                inside = self.misfits(kind(parts[name]), getattr(parts[name], "keywords", {}))
                yield from ((f".{name}{field}", reason) for field, reason in inside)
        for field, misfits in (
            ("alignment", _alignment_misfits),
            ("score", _score_misfits),
            ("positions", _position_misfits),
        ):
            if field in parts:
                yield from ((f".{field}", reason) for reason in misfits(mechanism, parts, self))
        kernel = chosen.get("kernel", getattr(mechanism, "kernel", "auto"))
        yield from ((".kernel", why) for why in _kernel_misfits(mechanism, kernel, parts, self))
        if self.weights == "distribution" or self.values == "unprojected":
            most_allowed: Rows = "one" if self.weights == "distribution" else "at most one"
            rows: Rows = mechanism(width=1, **chosen, parent=None).rows()
            if list(_SUMS).index(rows) > list(_SUMS).index(most_allowed):
                yield (
                    "",
                    f"the weights of {mechanism.__name__} sum to {_SUMS[rows]}, here they must sum to"
                    f" {_SUMS[most_allowed]}; choose 'single' or 'multihead' with the alignment 'softmax'",
                )

    def _without_cache(self) -> str:
        """Returns what to choose in place of a mechanism without a cache."""
        full = (
            ", or set decoding.full_passes=true: every token then costs a pass over the whole text"
        )
        return f"choose a mechanism with cache=True{full if self.cache == 'decoding' else ''}"

    def _lacks(self, mechanism: Any, heads: int) -> Iterator[tuple[str, str]]:
        """Yields pairs of text for a mechanism class with this number of heads: a requirement of
        this slot that its `capabilities` do not declare, and what to choose instead.
        """
        can: Capabilities = mechanism.capabilities
        if self.role not in can.roles:
            yield f"the role {self.role!r}", f"it offers {_listed(can.roles)}"
        if self.direction not in can.directions:
            yield f"the direction {self.direction!r}", f"it offers {_listed(can.directions)}"
        if self.direction == "causal" and not (self.mixes or can.grows):
            instead = "its causal form only mixes a text; choose 'multihead'"
            yield "reading a text while it grows", instead
        if self.padding and not can.padding:
            yield "padding", "it needs sequences of one length"
        if self.cache and not can.cache:
            yield "cached decoding", self._without_cache()
        if self.values and not can.values:
            instead = "choose 'single', 'multihead' or another with values=True"
            yield "values apart from keys", instead
        if self.values == "unprojected" and not can.unprojected:
            yield "unprojected values", "choose 'single'"
        if self.maps and can.maps == "none":
            yield "attention maps", "choose a mechanism with maps"
        if self.dense and not can.dense:
            yield "a visibility of its own", "choose 'full' or a mechanism with dense=True"
        if self.heads not in (1, heads):
            yield f"a visibility of {self.heads} heads", f"it has {heads}"
        if not self.positions <= can.positions:
            yield f"position hooks {_listed(self.positions)}", f"it offers {_listed(can.positions)}"
        if self.weights and not hands_out_weights(mechanism):
            yield "weights as a result", _lacking(mechanism)


def hands_out_weights(mechanism: Any) -> bool:
    """Whether a mechanism supports `read(..., weights=True)`: its maps are exact, and its `read`
    has the argument.
    """
    takes = hasattr(mechanism, "read") and "weights" not in getattr(mechanism.read, "left_out", ())
    return bool(mechanism.capabilities.maps == "exact" and takes)


def _lacking(mechanism: Any) -> str:
    """Returns the text that says why a mechanism class does not return weights (its maps are not
    exact, or its `read` has no argument for it) and what to choose or change.
    """
    maps = mechanism.capabilities.maps
    if maps != "exact":
        return f"its maps are {maps!r}, choose a mechanism whose maps are 'exact'"
    return (
        "give its `read` an argument `weights` and pass it on to `capture`, or choose 'single' or"
        " 'multihead'"
    )


def _alignment_misfits(mechanism: Any, parts: Mapping[str, Any], need: Need) -> Iterator[str]:
    """Yields texts why the alignment, `parts["alignment"]`, does not fit the mechanism class or the
    slot of `need`: it needs earlier queries that are not passed on, one causal sequence, or a
    length that reveals the future.
    """
    alignment = kind(parts["alignment"])
    name = alignment.__name__
    if alignment.form == "look" and need.stepwise and not need.history:
        yield (
            f"{name} needs all queries of a sequence at once, here they come one by one; choose"
            " 'softmax'"
        )
    if alignment.form == "look" and need.stepwise and not mechanism.capabilities.history:
        yield (
            f"{name} depends on earlier looks, which {mechanism.__name__} does not carry on; choose"
            " 'softmax', or the mechanism 'single' or 'multihead'"
        )
    if alignment.looks_between and (need.role == "cross" or need.direction != "causal"):
        yield (
            f"{name} looks at what stands between a key and its query, so it needs one sequence in"
            " which no query sees a later key; choose 'softmax'"
        )
    if "lengths" in alignment.looks_at and need.direction == "causal":
        yield (
            f"{name} looks at the length of the source, which tells of the future; choose 'softmax'"
        )


def _score_misfits(mechanism: Any, parts: Mapping[str, Any], need: Need) -> Iterator[str]:
    """Yields texts why the score, `parts["score"]`, does not fit the mechanism class or the slot of
    `need`: it needs earlier queries that are not passed on, forbids rotation of queries and keys,
    or needs positions that are not available.
    """
    score = parts["score"](parent=None)
    name = type(score).__name__
    if score.looks_back and not mechanism.capabilities.history:
        yield f"{mechanism.__name__}: {refusal(type(score))}"
    if score.looks_back and need.stepwise and not need.history:
        yield (
            f"{name} depends on earlier looks, but here queries come one by one and nothing is"
            " carried on; choose 'additive'"
        )
    if getattr(mechanism, "turns", False) and not (score.product and score.rotary):
        yield (
            f"{mechanism.__name__} turns queries and keys, {name} does not allow it; choose"
            " 'scaled_dot'"
        )
    if need.places == "adrift" and score.places:
        yield f"{name} depends on positions, but only distances are known here; choose 'additive'"


def _position_misfits(mechanism: Any, parts: Mapping[str, Any], need: Need) -> Iterator[str]:
    """Yields texts why the position scheme, `parts["positions"]`, does not fit the mechanism class
    or the slot of `need`: it acts on embeddings or a hook that the mechanism lacks, needs a single
    or a causal sequence, trees or a grid, or rotates for a score that forbids it.
    """
    scheme, offered = kind(parts["positions"]), mechanism.capabilities.positions
    name = scheme.__name__
    if not scheme.hooks:
        return
    if "embedding" in scheme.hooks:
        yield (
            f"{name} acts on embeddings; set it as the system's positions, outside the mechanism"
        )
    if scheme.hooks - offered:
        hooks = _listed(scheme.hooks - offered)
        yield f"{name} acts on {hooks}; {mechanism.__name__} offers {_listed(offered)}"
    if need.role == "cross":
        yield f"{name} relates positions of one sequence; between two choose 'none'"
    if scheme.looks_between and need.direction != "causal":
        yield f"{name} counts back from the query, so no query may see a later key; choose 'shaw'"
    score = parts["score"](parent=None) if "score" in parts else None
    if "query_key" in scheme.hooks and score is not None and not score.rotary:
        yield (
            f"{name} turns queries and keys, {type(score).__name__} does not allow it; choose"
            " 'scaled_dot'"
        )
    if scheme.trees and need.places != "trees":
        yield f"{name} needs dependency trees, which are not known here; choose 'shaw'"
    if scheme.on_grid and not (need.places == "grid" and issubclass(mechanism, Attention)):
        yield f"{name} needs rows and columns, which are not known here; choose 'rope'"


def _kernel_misfits(
    mechanism: Any, kernel: str, parts: Mapping[str, Any], need: Need
) -> Iterator[str]:
    """Yields texts why the kernel named `kernel` is not supported by the mechanism class, does not
    fit the alignment, score or positions among its `parts`, or cannot return the weights that the
    slot of `need` requires.
    """
    offered = frozenset(getattr(mechanism, "kernels", (kernel,)))
    if kernel not in offered:
        yield (
            f"{mechanism.__name__} works on whole maps, which {kernel!r} never has; choose"
            f" {_listed(offered)}"
        )
    resolve = KERNELS.resolve
    reason = resolve(kernel)().misfit(kind(parts["alignment"])) if "alignment" in parts else None
    if "score" in parts and parts["score"](parent=None).looks_back and kernel not in BACKWARDS:
        reason = BACKWARDLESS
    if "positions" in parts and "row" in kind(parts["positions"]).hooks and kernel not in BACKWARDS:
        reason = ROWLESS
    if reason is None and need.weights and not resolve(kernel).weighs:
        reason = WEIGHTLESS
    if reason:
        yield f"kernel {kernel!r} {reason}"


def _listed(names: frozenset[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names)) or "none"
