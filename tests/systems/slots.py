"""What a system asks of the mechanisms in its slots, watched while it runs, against what it
declares; and the shapes it promises.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention import MECHANISMS
from attnlab.attention.needs import Need
from attnlab.attention.view import EVERYTHING
from attnlab.layers.by_layer import chosen, varies
from attnlab.mixers import MIXERS
from attnlab.systems.protocol import Classifier, LanguageModel, Seq2Seq, TokenClassifier
from attnlab.systems.vision import protocol as vision
from attnlab.systems.vision.captioner import Captioner

Note = Callable[[bool, str], None]
ROWS = 3


@flax.struct.dataclass
class Carried:
    """What a mechanism hands on, which may be nothing, in a shell that tells it from nothing."""

    content: Any


def _watched(mechanism: Any, note: Note, need: Need, stepping: list[bool]) -> Any:
    """A mechanism that notes what the system asks it for, and whether `need` declares that; what it
    asks of itself is its own matter.
    """
    inside: list[str] = []

    @contextlib.contextmanager
    def asked(*declared: tuple[bool, str]) -> Iterator[None]:
        for holds, what in () if inside else declared:
            note(holds, what)
        inside.append("asked")
        yield
        inside.pop()

    class Watched(mechanism):  # type: ignore[misc]
        """As its base."""

        def remember(self, source: Any, valid: Any = None, *rest: Any, **named: Any) -> Any:
            handed = valid is None or need.padding
            with asked((handed, "padding=False, but it is handed `valid`")):
                return super().remember(source, valid, *rest, **named)

        def extend(self, *given: Any, **named: Any) -> Any:
            with asked((need.cache, "cache=False, but its memory is extended")):
                return super().extend(*given, **named)

        def remember_pairs(self, *given: Any, **named: Any) -> Any:
            with asked((need.values, "values=False, but keys and values come apart")):
                return super().remember_pairs(*given, **named)

        def extend_pairs(self, *given: Any, **named: Any) -> Any:
            declared = need.values and need.cache
            what = "values or cache False, but a memory of keys and values is extended"
            with asked((declared, what)):
                return super().extend_pairs(*given, **named)

        def read(
            self,
            query: Any,
            memory: Any,
            view: Any = EVERYTHING,
            weights: bool = False,
            history: Any = None,
        ) -> Any:
            wanted, one_by_one = need.under(view.rule), stepping[0]
            carried = isinstance(history, Carried)
            before = history.content if carried else history
            declared = (
                (need.dense or not wanted.dense, "dense=False, but it is given a rule of its own"),
                (
                    wanted.direction == need.direction,
                    "direction='bidirectional', but it is given a causal view",
                ),
                (
                    need.stepwise or not one_by_one,
                    "stepwise=False, but queries come one by one in decoding",
                ),
                (bool(need.weights) or not weights, "weights=False, but it is asked for weights"),
                (
                    carried or not (need.history and one_by_one),
                    "history=True, but a look of decoding is not told of the looks before",
                ),
            )
            with asked(*declared):
                reading = super().read(query, memory, view, weights=weights, history=before)
            return reading.replace(history=Carried(reading.history)) if carried else reading

        def initial_history(self, memory: Any) -> Any:
            if inside:
                return super().initial_history(memory)
            expected = need.history or not stepping[0]  # a whole text may begin with it
            with asked((expected, "history=False, but it is asked what to carry")):
                return Carried(super().initial_history(memory))

    return Watched


def check_slots_and_shapes(
    factory: Any, image: tuple[int, int, int] | None = None, **sizes: int
) -> None:
    """Nothing but what is declared is asked for; results have the shapes that decoding rests on.
    Nothing is computed.

    Args:
      factory: of a system, its fields bound.
      image: H, W, C' of the images to read, for what reads images alone; (16, 16, 3) without.
      sizes: the fields that a task supplies.
    """
    of_mechanisms = {
        name
        for name, table in factory.func.parts.items()
        if table in (MECHANISMS, MIXERS) and factory.keywords.get(name)
    }
    needs = _needs(factory)
    assert of_mechanisms == set(needs), (
        f"slots {sorted(of_mechanisms)}, but needs of {sorted(needs)}"
    )
    wrong: set[str] = set()
    read: set[str] = set()
    stepping = [False]
    watched = {}
    for slot, need in needs.items():

        def note(holds: bool, what: str, slot: str = slot) -> None:
            read.add(slot)
            wrong.update([] if holds else [f"needs[{slot!r}] has {what}"])

        watched[slot] = _every(factory.keywords[slot], note, need, stepping)
    system = _rebound(factory, factory.func, **watched)(**sizes)
    shown = jax.ShapeDtypeStruct((ROWS, *(image or (16, 16, 3))), jnp.float32)
    match system:
        case Seq2Seq():
            _decodes(system, _ids(ROWS, 6), stepping)
        case Captioner():
            _decodes(system, _images(8, 12), stepping)
        case LanguageModel():
            _continues(system, stepping)
        case Classifier():
            _classifies(system)
        case TokenClassifier():
            _labels(system)
        case vision.VisualAnswerer():
            _answers(system)
        case _:
            _sees(system, shown)
    assert not wrong, "; ".join(sorted(wrong))
    assert read == set(needs), f"slots that nothing asks: {sorted(set(needs) - read)}"


def _needs(factory: Any) -> dict[str, Need]:
    """What is asked of each slot; where layers differ, of that which asks for most."""
    layers = factory.keywords.get("layers", 1)
    result: dict[str, Need] = {}
    for layer in range(layers if any(map(varies, factory.keywords.values())) else 1):
        fields = {field: chosen(part, layer)[0] for field, part in factory.keywords.items()}
        for slot, need in factory.func.asks(fields).items():
            result[slot] = need if need.dense else result.get(slot, need)
    return result


def _every(part: Any, note: Note, need: Need, stepping: list[bool]) -> Any:
    """The mechanism of a slot, or all of its layers, watched."""
    if varies(part):
        both = {one: _every(part.keywords[one], note, need, stepping) for one in ("one", "other")}
        return _rebound(part, part.func, **both)
    if getattr(part.func, "absent", False):
        return part
    return _rebound(part, _watched(part.func, note, need, stepping))


def _rebound(factory: Any, kind: Any, **changes: Any) -> Any:
    return type(factory)(kind, **{**factory.keywords, **changes})


def _ids(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def _images(height: int, width: int) -> Any:
    return jax.ShapeDtypeStruct((ROWS, height, width, 3), jnp.float32)


def _parameters(system: Any, *ids: Any) -> Any:
    return jax.eval_shape(system.init, jax.random.key(0), *ids)["params"]


def _leads(tree: Any, what: str) -> None:
    """Arrays lead with the batch, so that decoding can tile, gather and reorder their rows."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        assert leaf.ndim == 0 or leaf.shape[0] == ROWS, (
            f"{what}{jax.tree_util.keystr(path)} is {leaf.shape}, expected [B={ROWS},...]"
        )


def _same(one: Any, other: Any) -> None:
    """A state goes in as it comes out: shapes and dtypes, for it is carried through a loop."""
    kinds = (
        jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), tree) for tree in (one, other)
    )
    first, second = kinds
    assert first == second, f"a step makes another kind of state: {first}, then {second}"


def _logits(found: Any, *shape: int) -> None:
    assert (found.shape, found.dtype) == (shape, jnp.float32), (
        f"logits are {found.dtype}{list(found.shape)}, expected float32{list(shape)}"
    )


def _decodes(system: Any, source: Any, stepping: list[bool]) -> None:
    """`encode`, `decode`, `start` and `step` of texts, or of images; a state may hold one step's
    shapes only, whatever its room.
    """
    variables = {"params": _parameters(system, source, _ids(ROWS, 2))}

    def run(variables: Any, source: jax.Array, target: jax.Array) -> Any:
        memory = system.apply(variables, source, method="encode")
        full = system.apply(variables, memory, target, method="decode")
        stepping[0] = True
        begun = system.apply(variables, memory, 5, method="start")
        logits, after = system.apply(variables, begun, memory, target[:, 0], method="step")
        stepping[0] = False
        return memory, full, begun, logits, after

    memory, full, begun, logits, after = jax.eval_shape(run, variables, source, _ids(ROWS, 5))
    _leads(memory, "memory")
    _leads(begun, "state")
    _same(begun, after)
    _logits(full, ROWS, 5, system.target_vocabulary)
    _logits(logits, ROWS, system.target_vocabulary)


def _continues(system: Any, stepping: list[bool]) -> None:
    """`start`, `read` and `step`."""
    variables = {"params": _parameters(system, _ids(1, 2))}

    def run(variables: Any, tokens: jax.Array) -> Any:
        begun = system.apply(variables, ROWS, 9, method="start")
        full, after = system.apply(variables, begun, tokens, method="read")
        stepping[0] = True
        logits, stepped = system.apply(variables, after, tokens[:, 0], method="step")
        stepping[0] = False
        return begun, full, after, logits, stepped

    begun, full, after, logits, stepped = jax.eval_shape(run, variables, _ids(ROWS, 6))
    _leads(begun, "state")
    _same(begun, after)
    _same(after, stepped)
    _logits(full, ROWS, 6, system.vocabulary)
    _logits(logits, ROWS, system.vocabulary)


def _classifies(system: Any) -> None:
    """Texts to logits, as many texts as it says."""
    for texts in system.texts:
        variables = {"params": _parameters(system, *[_ids(1, 2)] * texts)}
        logits = jax.eval_shape(system.apply, variables, *[_ids(ROWS, 6), _ids(ROWS, 5)][:texts])
        _logits(logits, ROWS, system.classes)


def _labels(system: Any) -> None:
    """Tokens to numbers for each."""
    variables = {"params": _parameters(system, _ids(1, 2))}
    beside = {name: _ids(ROWS, 6) for name in ("types", "segments") if name in system.reads}
    numbers = jax.eval_shape(system.apply, variables, _ids(ROWS, 6), **beside)
    _logits(numbers, ROWS, 6, system.outputs)


def _answers(system: Any) -> None:
    """Images and questions to logits; places on a grid."""
    read = _images(6, 9), _ids(ROWS, 5)
    logits = jax.eval_shape(system.apply, {"params": _parameters(system, *read)}, *read)
    _logits(logits, ROWS, system.classes)
    height, width = system.grid(read[0].shape[1:])
    assert height >= 1 and width >= 1, f"a grid of {height} x {width} places"


def _sees(system: Any, images: Any) -> None:
    """Images to logits, of each or at every pixel, or to classes and boxes of all queries, layer by
    layer.
    """
    result = jax.eval_shape(system.apply, {"params": _parameters(system, images)}, images)
    match system:
        case vision.ImageClassifier():
            _logits(result, ROWS, system.classes)
        case vision.PixelClassifier():
            _logits(result, *images.shape[:3], system.classes)
        case vision.Detector():
            layers = result.logits.shape[0]
            _logits(result.logits, layers, ROWS, system.queries, system.classes + 1)
            _logits(result.boxes, layers, ROWS, system.queries, 4)
