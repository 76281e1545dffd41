"""A run with a part of its system switched off, and the parts that carry what an input says.

Axis letters: H heads, T tokens, D head width.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from attnlab.analysis.ablation import mean_values, patch
from attnlab.analysis.heads import Record
from attnlab.analysis.inside import first_rows
from attnlab.analysis.passes import Passes, filled
from attnlab.api.trained import Run
from attnlab.attention.interventions import KINDS, Change, Place, intervene
from attnlab.data.passages import located
from attnlab.errors import UserError, nearest
from attnlab.tasks.base import Task
from attnlab.tasks.language_modelling import LanguageModelling
from attnlab.tasks.written import WritingTask

SWITCHES = ("zero", "mean", "uniform")
MEANT = 100  # examples whose mean stands for a part


def places_of(task: Task[Any, Any, Any], params: Any) -> list[Place]:
    """Returns the `Place`s (points at which a value can be changed) that a pass of the task's
    system comes through, in its order, by tracing shapes without computing.
    """
    places: list[Place] = []

    def passing(params: Any) -> None:
        with intervene(weights=True) as seen:
            task.system.apply({"params": params}, *task.init_inputs())
        places[:] = seen.places.values()

    jax.eval_shape(passing, params)
    return places


def switched_off(
    run: "Run", layer: int | str, head: int | None, kind: str, split: str
) -> dict[str, Change]:
    """Returns {name of a place: `Change`} that replaces the output of a layer, or of a head of it,
    by 0 ("zero"), by its mean over the first examples of `split` ("mean"), or its weights by
    uniform ones ("uniform"), in every call of a module that a pass calls several times; raises
    `UserError` if that is not possible.
    """
    if kind not in SWITCHES:
        raise UserError(f"without: kind={kind!r}; {nearest(kind, SWITCHES)}")
    wanted = "weights" if kind == "uniform" else "layer" if head is None else "heads"
    places = places_of(run.task, run.params)
    layers = {p.name.rpartition("/")[0]: p.layer for p in places if p.kind == "layer"}
    here = [p for p in places if layer in (p.layer, p.name.rpartition("/")[0])]
    if not here:
        numbered = ", ".join(f"{number} ({name!r})" for name, number in layers.items())
        raise UserError(f"without: no layer {layer!r}; there are {numbered or 'none'}")
    first = next((place for place in here if place.kind == wanted), None)
    if first is None:
        raise UserError(f"without: layer {layer!r} ({here[0].module}) has no {wanted} to change")
    if head is not None and not 0 <= head < first.heads:
        raise UserError(f"without: layer {layer!r} has no head {head}; 0 to {first.heads - 1}")
    part = np.ones(first.heads, np.float32) if head is None else np.eye(first.heads)[head]
    calls = re.compile(rf"{re.escape(first.name.rpartition('/')[0])}(_\d+)?/{wanted}")
    names = [x.name for x in places if x.layer == first.layer and calls.fullmatch(x.name)]
    if kind != "mean":
        change = Change(1 - part, uniform=part if kind == "uniform" else None)
        return dict.fromkeys(names, change)
    task = run.with_split(split)
    means = mean_values(Passes(task, run.params), filled(first_rows(task, split, MEANT)))
    if not {*names} <= {*means}:
        raise UserError(f"without: kind='mean' needs values, and layer {layer!r} is in a loop")
    mean = {name: part[:, None, None] * np.asarray(means[name]) for name in names}
    return {name: Change(1 - part, mean[name][None]) for name in names}


def changed_system(system: Any, changes: Mapping[str, Change]) -> Any:
    """Returns a copy of the Flax module `system` whose `apply` makes these changes, a `Change` by
    the name of its place, in every pass through it or a part of it.
    """

    class Changed(type(system)):  # type: ignore[misc]
        def apply(self, *given: Any, **named: Any) -> Any:
            with intervene(changes, partly=True):
                return super().apply(*given, **named)

    Changed.__name__ = Changed.__qualname__ = type(system).__name__
    fields = (field.name for field in dataclasses.fields(system) if field.init)
    return Changed(**{name: getattr(system, name) for name in fields})


def patched(
    run: "Run", clean: tuple[str, str], corrupted: str, at: str, by_position: bool
) -> list[Record]:
    """Returns records "place", "head", "position" (None unless `by_position`) and "restored": the
    share of the lost log-probability of clean[1] that comes back if `corrupted` is read in place of
    clean[0], with the values of kind `at` at that place from the clean pass.
    """
    if at not in (kinds := [kind for kind in KINDS if kind != "weights"]):
        raise UserError(f"patch: at={at!r}; {nearest(at, kinds)}")
    batch, other = (_batch_of(run.task, before, clean[1]) for before in (clean[0], corrupted))
    tokens = [x["source"].shape[1] for x in (batch, other)]
    if tokens[0] != tokens[1] or batch["target"].shape != other["target"].shape:
        raise UserError(f"patch: {tokens[0]} and {tokens[1]} tokens; both need the same number")
    positions = range(tokens[0]) if by_position else (None,)
    model, changed = Passes(run.task, run.params), {"source": other["source"]}
    shares = patch(model, batch, changed, (at,), positions)
    return [
        {"place": place, "head": head, "position": position, "restored": float(share[0])}
        for (place, head, position), share in shares.items()
    ]


def _batch_of(task: Any, before: str, text: str) -> dict[str, np.ndarray]:
    """Returns a batch {"source": ids [1,S], "target": ids [1,T]} of the text `before` and its
    continuation (or translation) `text`, whose tokens alone are targets; raises `UserError` for a
    task without probabilities of texts.
    """
    if isinstance(task, WritingTask) and hasattr(task, "vocabularies"):
        source, target = (ids[0] for ids in task.encoded([(before, text)]).sequences)
    elif isinstance(task, LanguageModelling):
        ((ids, places),) = located(task.data.vocabulary, [before + text])
        source = np.array([task.first_id, *ids[:-1]])
        target = np.where(places[:, 1] > len(before), ids, task.special.pad)
    else:
        raise UserError(f"patch: the task {task.config.task!r} gives texts no probability")
    return {"source": np.array(source)[None], "target": np.array(target)[None]}
