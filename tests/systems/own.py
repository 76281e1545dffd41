"""The promises of systems, put together for one that is not registered (`--system` of pytest).

Besides the class and its oracle, these names are read in the file of the system, or in that of the
oracle:

    SETTINGS      configs to test it in; slots they leave open are filled with `FILLINGS`; [{}] without
    LARGER        fields with which eight texts or pairs can be learnt by heart; {} without, its own defaults
    TIED          True: the output reads the table of embeddings too
    SILENT        ends of the names of parameters that rightly get no gradient
    IMAGE         height, width and channels of the images that classifiers of images and of pixels
                  and detectors are given; (16, 16, 3) without
"""

import dataclasses
import functools
import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from attnlab.attention import MECHANISMS
from attnlab.config import to_dict, validate
from attnlab.config.registry import build, fields
from attnlab.config.schema import TABLES, Node, setting
from attnlab.config.tree import ConfigNode, complete
from attnlab.errors import UserError
from attnlab.layers.norms import STATISTICS
from attnlab.mixers import MIXERS
from attnlab.systems import SYSTEMS
from attnlab.systems.protocol import Classifier, LanguageModel, Seq2Seq, System, TokenClassifier
from attnlab.systems.vision import protocol as vision
from attnlab.systems.vision.captioner import Captioner
from tests.systems import (
    captioners,
    checks,
    classifiers,
    image_systems,
    language_models,
    tiny,
    token_classifiers,
    visual_answerers,
)
from tests.systems.slots import check_slots_and_shapes
from tests.systems.tiny import SIZES, kind_of

FILLINGS = (
    {"name": "single", "score": {"name": "additive", "hidden": 6}},
    {"name": "multihead", "heads": 2},
)
KINDS: Mapping[type[System], Any] = {
    Seq2Seq: checks,
    LanguageModel: language_models,
    Classifier: classifiers,
    TokenClassifier: token_classifiers,
    **dict.fromkeys(
        (vision.ImageClassifier, vision.PixelClassifier, vision.Detector), image_systems
    ),
    Captioner: captioners,
    vision.VisualAnswerer: visual_answerers,
}
FIRST = {
    spec["name"]: (room, spec)
    for room in dict.fromkeys(KINDS.values())
    for spec in reversed(room.SPECS.values())
}
"""The room of a system and its first setting, by the system's name."""
Promise = Callable[[], None]
PROMISES: list[tuple[str, Promise]] = []
"""Of the system of `--system`: the name of each, and what to call."""


def only(path: str, oracle: str | None = None) -> None:
    """Fill `PROMISES`.

    Args:
      path: "module:Class" of the system.
      oracle: "module:function" of its oracle; without one a function `oracle` beside the class, if
        there is one.

    Raises:
      UserError: no such class, one of no kind, or settings that do not fit it.
    """
    system = SYSTEMS.resolve(path)
    kind = kind_of(system)
    if kind is None:
        raise UserError(
            f"expected a class derived from {', '.join(one.__name__ for one in KINDS)} of"
            f" {System.__module__} and attnlab.systems.vision"
        )
    reference = _function(oracle) if oracle else None
    beside = [vars(importlib.import_module(one.partition(":")[0])) for one in (path, oracle) if one]
    reference = reference or beside[0].get("oracle")
    said = {
        name: next((one[name] for one in beside if name in one), None)
        for name in ("SETTINGS", "LARGER", "TIED", "SILENT", "IMAGE")
    }
    if said["TIED"]:
        checks.TIED.add(path)
    checks.SILENT[path] = tuple(said["SILENT"] or ())
    image_systems.SHAPES[path] = tuple(said["IMAGE"] or (16, 16, 3))
    specs = [
        {"name": path, **one}
        for chosen in said["SETTINGS"] or [{}]
        for one in _filled(system, chosen)
    ]
    for spec in specs:
        complete_settings(spec)  # a misspelt one is told before any test
    PROMISES[:] = _promises(kind, system, specs, reference, said["LARGER"] or {})


def _function(path: str) -> Any:
    """What stands at "module:function"."""
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"--oracle={path}: {error}; write module:function") from error


def read(room: Any, spec: dict[str, Any], texts: int = 0) -> tuple[Any, ...]:
    """What a system of a room reads; of classifiers so many texts, by default as many as it must."""
    if room is image_systems:
        return (image_systems.shown(spec),)
    if room is captioners:
        return captioners.images(), captioners.words()
    if room is classifiers:
        return tuple(classifiers.batch(texts or (2 if "inter_attention" in spec else 1)))
    result = room.batch()
    return result if isinstance(result, tuple) else (result,)


def _filled(system: Any, chosen: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Settings with every slot for a mechanism taken."""
    known = fields(system)
    slots = [
        name
        for name, table in system.parts.items()
        if table in (MECHANISMS, MIXERS)
        and name not in chosen
        and known[name] is not None
        and not isinstance(known[name], str | Mapping)
    ]
    return (
        [{**chosen, **dict.fromkeys(slots, one)} for one in FILLINGS] if slots else [dict(chosen)]
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alone(Node):
    """A config of nothing but a system."""

    system: str = setting("the model", table=TABLES["system"])


def complete_settings(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The config node of a system with all that it leaves to defaults; `UserError` for what does
    not fit.
    """
    config = ConfigDict({"system": spec})
    complete(ConfigNode(config, "", Alone))
    validate(config, Alone)
    return to_dict(config)["system"]


def _promises(
    kind: Any, system: Any, specs: list[dict[str, Any]], oracle: Any, larger: Mapping[str, Any]
) -> list[tuple[str, Promise]]:
    """What each setting is put through."""
    result: list[tuple[str, Promise]] = []
    for spec in specs:
        label = json.dumps({name: value for name, value in spec.items() if name != "name"})
        result.append((f"slots and shapes-{label}", functools.partial(check_slots, spec)))
        for texts in system.texts if kind is Classifier else [None]:
            of = {} if texts is None else {"texts": texts}
            beside = "" if texts is None else f" of {texts} texts" if texts > 1 else " of a text"
            for name, check in promises(kind, system, oracle):
                result.append((f"{name}{beside}-{label}", functools.partial(check, spec, **of)))
    if kind is not Classifier:
        of_its_own = {
            name: value
            for name, value in specs[0].items()
            if name == "name" or name in system.parts
        }
        result.append(
            (
                "learning by heart",
                functools.partial(KINDS[kind].check_learning, {**of_its_own, **larger}),
            )
        )
    return result


def promises(kind: Any, system: Any, oracle: Any) -> Iterator[tuple[str, Callable[..., None]]]:
    """What every setting of a system is put through, each a function of the setting; its oracle is
    told the config node with all defaults.
    """
    room = KINDS[kind]
    yield from room.CHECKS.items()
    if system.needs and kind is Seq2Seq:
        yield "maps", checks.check_maps
    if "dropout" in fields(system):
        yield "dropout", functools.partial(_drops, room)
    yield "the oracle", functools.partial(_equal, room, oracle)
    yield "the oracle reads every parameter", functools.partial(_reads, room, oracle)


def check_slots(spec: dict[str, Any]) -> None:
    """See `slots.py`."""
    factory: Any = build(SYSTEMS, ConfigDict(spec), "system")
    sizes, image = SIZES[kind_of(factory.func)], image_systems.SHAPES.get(spec["name"])  # type: ignore[index]
    check_slots_and_shapes(factory, image=image, **sizes)


def _drops(room: Any, spec: dict[str, Any], texts: int = 0) -> None:
    """The rate changes nothing without a random stream, and other keys drop other units."""
    given = read(room, spec, texts)
    params = room.parameters(room.make(spec), *given)
    dropping, never = (
        functools.partial(room.make({**spec, "dropout": rate}).apply, {"params": params}, *given)
        for rate in (0.5, 0.0)
    )
    joined = getattr(room, "joined", np.array)
    if str(jax.make_jaxpr(dropping)()) != str(jax.make_jaxpr(never)()):
        np.testing.assert_array_equal(joined(jax.jit(dropping)()), joined(jax.jit(never)()))
    run = jax.jit(lambda key: dropping(rngs={"dropout": key}, mutable=[STATISTICS])[0])
    one, other = (joined(run(jax.random.key(seed, impl="rbg"))) for seed in (0, 1))
    assert np.abs(one - other).max() > 1e-3


def _equal(room: Any, oracle: Any, spec: dict[str, Any], **of: int) -> None:
    """The system computes what its oracle computes."""
    tiny.check_equal(*_both_logits(room.compared, oracle, spec, **of))


def _reads(room: Any, oracle: Any, spec: dict[str, Any], **of: int) -> None:
    """No array of parameters is left out of the oracle."""
    calls: list[tuple[Any, ...]] = []

    def noted(*given: Any) -> Any:
        calls.append(given)
        return oracle(*given)

    _both_logits(room.compared, oracle and noted, spec, **of)
    params, *given = calls[0]
    by = 1.0 if room is checks else 0.1  # weights of attention may be nearly even at first
    silent = checks.SILENT.get(spec["name"], ())
    tiny.check_every_parameter_is_read(lambda params: oracle(params, *given), params, by, silent)


def _both_logits(compared: Any, oracle: Any, spec: dict[str, Any], **of: int) -> Any:
    """Logits of the system and of the oracle; skips the test where there is none, or none for this
    setting.
    """
    if oracle is None:
        pytest.skip(
            "compared with no oracle: name one by --oracle=module:function, or put a function"
            " `oracle` beside the system"
        )
    try:
        return compared(spec, oracle, complete_settings(spec), **of)
    except NotImplementedError as error:
        pytest.skip(f"the oracle leaves this setting out: {error}")
