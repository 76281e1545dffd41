"""What all tasks do to get from a config to a system."""

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from operator import getitem
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.alignments.protocol import SAMPLES
from attnlab.attention.mixer import Mixer
from attnlab.attention.needs import Need
from attnlab.attention.protocol import LOSSES, Attention, Reading
from attnlab.config.registry import behind, build, location
from attnlab.config.schema import settings_of
from attnlab.data.columns import Declared
from attnlab.data.settings import Buckets
from attnlab.data.vocabulary import Special
from attnlab.errors import UserError, nearest
from attnlab.layers.by_layer import chosen, varies
from attnlab.layers.norms import STATISTICS
from attnlab.systems import SYSTEMS
from attnlab.systems.protocol import Classifier, LanguageModel, Seq2Seq, System, TokenClassifier
from attnlab.tasks import schemas
from attnlab.tasks.protocol import Numbers, Params, Totals, Tree
from attnlab.training.hyperparameters import WEIGHTS

BYTES = 2**38  # 256 GiB: more than one device has, so no array of a model can be larger


def system_factory(config: schemas.Settings, base: type[System]) -> Any:
    """Returns the factory of the system of a config, its fields bound; raises `UserError` if it is
    of another kind than `base`, a mechanism cannot do what its slot needs, or norms need whole
    batches where there are microbatches.

    Raises:
      UserError: another kind of system, a mechanism that cannot do what the system asks of it, or
        statistics of batches with microbatches.
    """
    factory = build(SYSTEMS, config.system, "system")
    if not _is_subclass(factory.func, (base,)):
        writes = issubclass(base, (LanguageModel, Seq2Seq))
        reads = _is_subclass(factory.func, (Classifier, TokenClassifier))
        why = "; it reads whole texts, both ways, and writes none" if writes and reads else ""
        raise UserError(
            f"system={config.system.name}: expected a class derived from"
            f" {base.__module__}.{base.__name__}; {_list_fitting_systems(base)}{why}"
        )
    norm = behind(factory.keywords.get("normalisation"))
    if getattr(norm, "over_batch", False):
        named = f"system.normalisation={config.system.normalisation.name}"
        check_statistics(config, norm, f"the statistics of {named} are those of")
    decoding = getattr(config, "decoding", None)
    _check_slots(factory, config.system, "system", decoding is not None and decoding.full_passes)
    return factory


def watched_pass(
    system: System, watched: Sequence[str], apply: Callable[..., Any]
) -> tuple[Tree, Mapping[str, Any], dict[str, Tree]]:
    """Calls `apply`, which has its arguments, and returns three things: its outputs, a mapping with
    what it left in the collections `watched`, and {"statistics": those of batch norms}, {} without
    any; `apply` gets `mutable` only if there are collections to collect.
    """
    aside = [*watched, *([STATISTICS] if system.over_batch else [])]
    if not aside:
        return apply(), {}, {}
    outputs, collected = apply(mutable=aside)
    statistics = collected.get(STATISTICS)  # nothing where layers have no norms
    return outputs, collected, {"statistics": statistics} if statistics else {}


def _is_subclass(component: Any, bases: tuple[type, ...]) -> bool:
    return isinstance(component, type) and issubclass(component, bases)


def _check_slots(factory: Any, node: Mapping[str, Any], where: str, full_passes: bool) -> None:
    """Raises `UserError` unless every mechanism of a system (`factory`, with its config `node`),
    and of the networks that are its parts, can do what its slot in each layer needs; messages name
    the setting below `where`.
    """
    layered = any(map(varies, factory.keywords.values()))
    depths = [node.get(field, 1) for field in ("layers", "decoder_layers")]
    layers: int = max(depths) if layered else 1
    checked = set()
    for layer in range(layers):
        parts = {field: chosen(part, layer) for field, part in factory.keywords.items()}
        fields = {field: part for field, (part, _) in parts.items()}
        for slot, need in factory.func.asks(fields).items():
            below = f"{slot}{parts[slot][1]}"
            setting = functools.reduce(getitem, below.split("."), node)
            place = f"{where}.{below}={setting['name']}"
            need = need.in_full_passes(place) if full_passes else need
            if (place, need) not in checked:
                _check_slot(fields[slot], need, place)
            checked.add((place, need))
    for field, part in factory.keywords.items():
        if hasattr(behind(part), "asks"):
            _check_slots(part, node[field], f"{where}.{field}", full_passes)


def _check_slot(factory: Any, need: Need, where: str) -> None:
    """Raises `UserError`, which begins with `where`, unless the mechanism of a factory is a class
    of the right kind and can do what its slot needs; an absent one passes.
    """
    mechanism = factory.func
    if getattr(mechanism, "absent", False):
        return
    base = Mixer if need.mixes else Attention
    if not _is_subclass(mechanism, (base,)):  # a dotted path may lead to anything
        raise UserError(f"{where}: expected a class derived from {base.__module__}.{base.__name__}")
    need.check(mechanism, where, factory.keywords)


def stand_ins(declared: Sequence[Declared]) -> list[jax.Array]:
    """Ones for what a system reads: a row, and two of whatever has no fixed size."""
    sizes = ([n if isinstance(n, int) else 2 for n in column.axes or ()] for column in declared)
    return [
        jnp.ones((1, *axes), column.dtype) for axes, column in zip(sizes, declared, strict=True)
    ]


def shapes_of(system: System, *inputs: jax.ShapeDtypeStruct) -> dict[str, Tree]:
    """Traces a system and returns the shapes of its parameters for `inputs`, under "params", and by
    collection those of the losses and samples that a pass leaves; raises `UserError` with the
    setting at fault.

    Raises:
      UserError: a mechanism reads something else than a `Reading` whose context is as wide as it
        was asked to be, there are more parameters than any device holds, or a part does not fit the
        sizes of the system, with its setting in front.
    """
    failed: list[tuple[str, ...]] = []

    def check(method: Callable[..., Any], args: Any, kwargs: Any, context: Any) -> Any:
        """Calls a method as `_call_and_check_read` does and records the path of the module in which it
        raised `UserError`.
        """
        try:
            return _call_and_check_read(method, args, kwargs, context)
        except UserError:
            failed.append(context.module.path)  # the innermost first
            raise

    try:
        with nn.intercept_methods(check):
            params = jax.eval_shape(system.init, jax.random.key(0), *inputs)["params"]
            check_bytes(params, "its parameters")
            return {"params": params, **left_aside(system, params, *inputs)}
    except UserError as error:
        setting = _setting_at(system, failed[0]) if failed else "system"
        if setting == "system" or setting in str(error):
            raise
        raise UserError(f"config.{setting}: {error}") from error


def _setting_at(system: System, path: Sequence[str]) -> str:
    """Returns the setting of a config that a module inside a system comes from,
    "system.attention.score" for layer_0/attention/score: of its path the names that are fields
    ("encoder_attention" is encoder_0/self_attention, "positions" positions_source).
    """
    parts: Mapping[str, Any] = vars(system)
    fields = ["system"]
    names = [re.sub(r"_\d+$", "", part) for part in path]
    for previous, name in zip(["", *names], names, strict=False):
        alternatives = f"{previous}_{name.removeprefix('self_')}", name.rpartition("_")[0]
        name = next((field for field in (name, *alternatives) if field in parts), "")
        if name:
            fields.append(name)
            part = parts[name]
            parts = part if isinstance(part, Mapping) else getattr(part, "keywords", {})
    return ".".join(fields)


def longest_row(config: schemas.Settings) -> jax.ShapeDtypeStruct:
    """The ids of the longest row that the system of a config has to read; of a config that lets
    scores take longer ones (as older ones do) any, for its data may be short.
    """
    batch = config.batch
    assert isinstance(batch, Buckets)
    length = 2 if batch.longer == "score" else batch.max_length
    return jax.ShapeDtypeStruct((1, length), jnp.int32)


def refuse_terms(config: schemas.Settings, shapes: Mapping[str, Tree]) -> None:
    """Raises `UserError` where attention samples or hands out a loss, which the task of the config
    does not add to its own; `shapes` is what `shapes_of` gives.
    """
    for collection, problem in (
        (SAMPLES, "samples what it looks at"),
        (LOSSES, "hands out a loss of its own"),
    ):
        if shapes.get(collection):
            raise UserError(
                f"system={config.system.name}: its attention {problem}, which task={config.task} does"
                " not train"
            )


def check_longest(task: Any, splits: Sequence[str]) -> None:
    """Raises `UserError` where the system cannot score the longest example of one of `splits` (but
    "train"), if scores leave long ones whole (`batch.longer=score`, one text a row).
    Training leaves out what is longer than `batch.max_length`, scores then do not: without this a
    run would end at its first evaluation.
    """
    batch = task.config.batch
    scored_whole = getattr(batch, "longer", None) == "score"
    if not scored_whole or getattr(batch, "texts", "apart") != "apart":
        return
    for split in splits:
        examples = getattr(task.data, "examples", {}).get(split)
        lengths = getattr(examples or task.data.ids[split], "lengths", np.zeros(0, int))
        longest = int(lengths.max(initial=0)) + task.extra_tokens
        if split == "train" or longest <= batch.max_length:
            continue
        try:
            if examples is None or "ids" in examples.columns:  # running text
                shapes_of(task.system, jax.ShapeDtypeStruct((1, longest), jnp.int32))
            else:
                widest = task.in_order(examples.chosen(np.array([lengths.argmax()])))[-1][1]
                task.try_batch(widest)
        except UserError as error:
            problem, _, _ = str(error).partition(";")  # what it advises is for training
            rules = settings_of(type(task.config.batch))["longer"].choices
            advice = "".join(
                f"config.batch.longer={rule}, or "
                for rule in rules
                if rule not in ("score", "refuse")
            )
            raise UserError(
                f"the {split} split has an example of {longest} tokens, and scores leave none out:"
                f" {problem}; take {advice}longer positions"
            ) from error


def check_bytes(shapes: Tree, subject: str, times: int = 1) -> None:
    """Raises `UserError` where `times` arrays of these shapes take more than `BYTES`; `subject` names
    them.
    """
    size = times * sum(
        math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes)
    )
    if size > BYTES:
        raise UserError(
            f"config.system: {subject} would take {size / 2**30:,.0f} GiB; expected at most"
            f" {BYTES // 2**30}, take smaller sizes"
        )


def _call_and_check_read(method: Callable[..., Any], args: Any, kwargs: Any, context: Any) -> Any:
    """Calls a method of a module and returns its result; raises `UserError` where `read` of a
    mechanism gives another thing than a `Reading` whose context is as wide as the mechanism.
    """
    result = method(*args, **kwargs)
    if not (isinstance(context.module, Attention) and context.method_name == "read"):
        return result
    module, query = context.module, args[0] if args else kwargs["query"]
    where = f"mechanism {type(module).__name__}{location(type(module))}: read gave"
    if not isinstance(result, Reading):
        raise UserError(
            f"{where} {_kind(result)}, expected a {Reading.__module__}.{Reading.__name__}"
        )
    expected, shape = (*query.shape[:-1], module.width), getattr(result.context, "shape", None)
    if shape != expected:
        raise UserError(
            f"{where} a context of shape {shape}, expected {expected}: that of the queries, with"
            " `width` as the last axis"
        )
    return result


def _kind(result: Any) -> str:
    """What a result is; a tracer is an array to those who write modules."""
    return "an array" if isinstance(result, jax.Array) else f"a {type(result).__name__}"


def _list_fitting_systems(base: type[System]) -> str:
    """The registered systems that derive from `base`, as the tail of an error message."""
    return "choose from: " + ", ".join(
        name for name in SYSTEMS.names() if issubclass(SYSTEMS.resolve(name), base)
    )


def left_aside(system: nn.Module, params: Any, *ids: Any) -> Mapping[str, Any]:
    """Returns the shapes of what a pass over ids leaves in the collections "losses" and "samples";
    parameters and ids may be shapes.
    """
    watched = [LOSSES, SAMPLES]
    run = functools.partial(system.apply, mutable=watched)
    aside: Mapping[str, Any] = jax.eval_shape(run, {"params": params}, *ids)[1]
    return aside


def chosen_weights(weights: Mapping[str, float], numbers: Numbers | None) -> dict[str, Any]:
    """The weights of losses by name, of those among the numbers of a program theirs."""
    overrides = numbers or {}
    return {name: overrides.get(f"{WEIGHTS}.{name}", weight) for name, weight in weights.items()}


def built(
    config: schemas.Settings,
    kind: type[System],
    special: Special,
    *read: jax.ShapeDtypeStruct,
    **sizes: int,
) -> tuple[Any, Params]:
    """Builds the system of a config that reads tokens, and returns it with the shapes of its
    parameters; raises `UserError` where it does not fit.

    Args:
      config: the whole.
      kind: the kind of system that the task trains.
      special: the ids that are no text.
      read: the inputs of one row, as large as the system must be able to read.
      sizes: fields of the system that the data gives.

    Raises:
      UserError: another kind of system, a mechanism that does not fit, samples or has a loss, inputs
        that the system cannot read.
    """
    ids = {"pad_id": special.pad, "bos_id": special.bos}
    system = system_factory(config, kind)(**sizes, **ids)
    shapes = shapes_of(system, *read)
    refuse_terms(config, shapes)
    return system, shapes["params"]


def check_statistics(config: schemas.Settings, part: Any, subject: str, advice: str = "") -> None:
    """Raises `UserError` where a system or a norm has statistics of batches (`over_batch`) and a
    batch is read in microbatches; `subject` names these statistics, `advice` ends the message.
    """
    if part.over_batch and config.training.accumulate > 1:
        raise UserError(
            f"config.training.accumulate={config.training.accumulate}: {subject} the whole batch, which"
            f" is never there; set it to 1{advice}"
        )


def check_ratios(kind: Any) -> None:
    """Raises `UserError` where a class of tasks has a ratio that is none of its measures, nor the
    loss of its perplexity; nothing is checked if its measures are a property or in no class, or
    declared by a class below the one that declares its ratios.
    """
    by_name = {name: _declaring_class(kind, name) for name in ("ratios", "measures")}
    if by_name["measures"] is None or not issubclass(by_name["ratios"], by_name["measures"]):
        return
    if not isinstance(kind.measures, Mapping):
        return
    for name in kind.ratios:
        if name not in {*kind.measures, *(["loss"] if "perplexity" in kind.measures else [])}:
            raise UserError(f"ratios: {name!r} is no measure; {nearest(name, kind.measures)}")


def _declaring_class(kind: type, name: str) -> Any:
    """The class from which a class has an attribute; None where it has none."""
    return next((base for base in kind.__mro__ if name in vars(base)), None)


def ratio_scores(ratios: Mapping[str, tuple[str, str]], totals: Totals) -> dict[str, float]:
    """Returns by name the scores that are one sum divided by another; `ratios` has for each score
    the names (dividend, divisor), `totals` the sums over a split; raises `UserError` for a missing
    sum.

    Raises:
      UserError: a sum that is not there.
    """
    for name, pair in ratios.items():
        for part in pair:
            if part not in totals:
                problem = f"ratios: {name!r} needs the sum {part!r}, which the task does not give"
                raise UserError(f"{problem}; {nearest(part, totals)}")
    return {name: float(totals[part] / totals[divisor]) for name, (part, divisor) in ratios.items()}
