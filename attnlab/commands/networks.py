"""What `launch.py list` says of networks besides the card: of a system its task and size, of a task
what it takes, of every mechanism and its parts the parameters: their names in the tree of `init`,
and how each array is laid out, in letters.

Nothing is computed: each is built by shapes alone; a mechanism with sizes of which no two are
equal, and the sizes are read back as letters.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping

import flax.traverse_util
import jax
import jax.numpy as jnp

from attnlab import config as configs
from attnlab.api.arrays import mechanism
from attnlab.config.registry import build, fields, kind
from attnlab.data import SOURCES
from attnlab.errors import UserError
from attnlab.records.measures import declared
from attnlab.systems import SYSTEMS
from attnlab.systems.protocol import Classifier, LanguageModel, Seq2Seq, TokenClassifier
from attnlab.systems.vision.captioner import Captioner
from attnlab.systems.vision.protocol import (
    Detector,
    ImageClassifier,
    PixelClassifier,
    VisualAnswerer,
)
from attnlab.tasks.protocol import Params
from attnlab.tasks.schemas import Settings

_VOCABULARIES = ("source_vocabulary", "target_vocabulary", "vocabulary", "outputs")
SIZES = {**dict.fromkeys(_VOCABULARIES, 1000), "classes": 10}
TASKS = {
    Seq2Seq: ("translation",),
    LanguageModel: ("language_modelling", "diagnostics"),
    Classifier: ("classification", "inference"),
    TokenClassifier: ("masked_language_modelling", "tagging"),
    ImageClassifier: ("image_classification",),
    PixelClassifier: ("segmentation",),
    Detector: ("detection",),
    Captioner: ("captioning",),
    VisualAnswerer: ("visual_questions",),
}
"""The config files of systems by their base class, the task first."""
IMAGE = jax.ShapeDtypeStruct((1, 32, 32, 3), jnp.float32)


def system_cells(name: str, system: Callable[..., object]) -> dict[str, str]:
    """Returns a dict with the texts of the table columns "task" and "parameters" for the class
    `system`, which is registered as `name`; "" where unknown.
    """
    bases = getattr(system, "__mro__", ())
    files = next((TASKS[base] for base in bases if base in TASKS), ())
    task = files[0].replace("_", " ") if files else ""
    return {"task": task, "parameters": parameters(name, files)}


@functools.cache
def parameters(name: str, files: tuple[str, ...]) -> str:
    """Returns the number of parameters of the system `name` as text, for its small setting in the
    first of the config `files` (names without ".py") that has one; "" if none has.

    The setting has the name of the system, or that without what stands behind its last "_" ("lstm"
    of "lstm_lm"), or it is "transformer", of the encoder.
    """
    for file, setting in itertools.product(files, (name, name.rpartition("_")[0], "transformer")):
        try:
            config = configs.load(f"configs/{file}.py:{setting}")
        except UserError:
            continue
        if config.system.name != name:
            continue
        shapes = parameter_shapes(config)
        return f"{sum(leaf.size for leaf in jax.tree.leaves(shapes)):,}"
    return ""


def parameter_shapes(config: Settings) -> Params:
    """Returns the parameter tree of a config's system as shapes, without computing any, for the
    vocabularies of `SIZES` and images of the shape `IMAGE`.

    Raises:
      UserError: the settings of the system do not fit each other, or such images.
    """
    factory = build(SYSTEMS, config.system, "system")
    system = factory(
        **{field: size for field, size in SIZES.items() if field in fields(kind(factory))}
    )
    texts = max(system.texts) if isinstance(system, Classifier) else 1 + isinstance(system, Seq2Seq)
    inputs = [jax.ShapeDtypeStruct((1, 2), jnp.int32)] * texts
    if isinstance(system, ImageClassifier | PixelClassifier | Detector):
        inputs = [IMAGE]
    if isinstance(system, Captioner | VisualAnswerer):
        inputs = [IMAGE, *inputs]
    return jax.eval_shape(system.init, jax.random.key(0), *inputs)["params"]


def task_cells(task: Callable[..., object]) -> dict[str, str]:
    """Returns a dict with the texts of three table columns of a task: "systems", names that fit;
    "data", the method that it reads by and the sources with it; "measures", names, each with the
    better direction; "" where the task declares none.
    """
    base, method = getattr(task, "systems", None), getattr(task, "reads", "")
    base = base if isinstance(base, type) else ()
    systems = [name for name in SYSTEMS.names() if issubclass(SYSTEMS.resolve(name), base)]
    sources = [
        name for name in SOURCES.names() if callable(getattr(SOURCES.resolve(name), method, None))
    ]
    measures = [f"{name} {measure.better}" for name, measure in declared(task).items()]
    data = f"{method}(split): {', '.join(sources)}" if method else ""
    return {"systems": ", ".join(systems), "data": data, "measures": ", ".join(measures)}


WIDTHS = {"dq": 22, "ds": 26, "d": 24}


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes with which a mechanism is built to read its layouts.

    Attributes:
      fields: values of its configuration.
      letters: names of the sizes, besides the widths; "2 k + 1" for 33, say.
      widths: widths of query, source and context, if not those of `WIDTHS`.
    """

    fields: Mapping[str, object]
    letters: Mapping[str, int]
    widths: Mapping[str, int] = dataclasses.field(default_factory=lambda: WIDTHS)


_ADDITIVE = {"score": {"name": "additive", "hidden": 17}}
_CUT = {"A": 17, "dq / 2": 11, "ds / 2": 13}
MECHANISMS: Mapping[str, Sizes] = {
    "single": Sizes(_ADDITIVE, {"A": 17}, {"dq": 22, "d": 24}),
    "multihead": Sizes({"heads": 4, "key_heads": 2}, {"K D": 12}),
    "talking_heads": Sizes({"heads": 4}, {"H": 4}),
    "differential": Sizes({"heads": 4}, {"D": 6, "2 D": 12}),
    "gated": Sizes({"heads": 4}, {}),
    "latent": Sizes(
        {"heads": 4, "latent": 5, "rotary": 2, "query_latent": 9},
        {"H": 4, "D": 6, "C": 5, "R": 2, "Q": 9, "H (D + R)": 32},
    ),
    "hops": Sizes({"hops": 3, "hidden": 17}, {"r": 3, "A": 17, "r ds": 78}),
    "key_value": Sizes(_ADDITIVE, _CUT),
    "key_value_predict": Sizes(
        _ADDITIVE, {"A": 17, "dq / 3": 10, "ds / 3": 13}, {"dq": 30, "ds": 39, "d": 24}
    ),
    "multi_step": Sizes({"looks": {"name": "multihead", "heads": 4}}, {}),
    "linear": Sizes({"heads": 4}, {}),
    "forgetting": Sizes({"heads": 4}, {"H": 4}),
    "path": Sizes({"heads": 4, "rank": 7}, {"H": 4, "c": 7}),
    "tensor_product": Sizes(
        {"heads": 4, "query_rank": 3, "key_rank": 5, "value_rank": 7},
        {"Rq H": 12, "Rq D": 18, "Rk H": 20, "Rk D": 30, "Rv H": 28, "Rv D": 42},
    ),
    "lightning_indexer": Sizes(
        {"heads": 4, "index_heads": 3, "index_width": 7}, {"n": 3, "c": 7, "n c": 21}
    ),
    "native_sparse": Sizes({"heads": 4, "key_heads": 2}, {"3 H": 12, "K (D + D + D)": 36}),
    "linformer": Sizes(
        {"heads": 4, "length": 50, "rank": 7, "share": "none"}, {"H": 4, "k": 7, "L": 50}
    ),
    "synthesizer": Sizes(
        {"heads": 4, "length": 50, "hidden": 17}, {"H": 4, "A": 17, "L": 50, "H A": 68}
    ),
}
PARTS: Mapping[str, tuple[str, Sizes]] = {  # field of a mechanism to the mechanism and its sizes
    "score": ("single", Sizes({}, {"A": 256, "L": 50, "2 d": 48}, {"dq": 22, "d": 24})),
    "alignment": ("multihead", Sizes({"heads": 4}, {"H": 4})),
    "positions": ("multihead", Sizes({"heads": 4}, {"H": 4, "D": 6, "2 k + 1": 33, "buckets": 32})),
}


def mechanism_parameters(name: str, sizes: Sizes | None = None) -> str:
    """Returns all parameters of a mechanism as text: "`w_query/kernel` [dq, d], ..."; "" if it has
    none. A mechanism without sizes here is built as it is.
    """
    return _join(_shapes(name, sizes or MECHANISMS.get(name, Sizes({}, {}))))


def part_parameters(field: str, name: str) -> str:
    """Returns as text, "`path` [layout], ...", the parameters that the score, alignment or position
    scheme `name` adds to a mechanism; `field` is "score", "alignment" or "positions"; "" if it has
    none or acts on embeddings.
    """
    owner, sizes = PARTS[field]
    for widths in (sizes.widths, {**sizes.widths, "dq": sizes.widths["d"]}):
        try:
            shapes = _shapes(owner, Sizes({**sizes.fields, field: name}, sizes.letters, widths))
        except UserError:
            # a score whose two sides must be equally wide, or a scheme that acts elsewhere
            continue
        return _join({path: layout for path, layout in shapes.items() if path[0] == field})
    return ""


def _shapes(name: str, sizes: Sizes) -> dict[tuple[str, ...], str]:
    """Returns the layout of each parameter of the mechanism `name`, such as "[dq, d]", by its path
    (a tuple of names); `sizes` gives its fields and a letter for each axis length; traces shapes,
    computes nothing.
    """
    widths = {"ds": sizes.widths["d"], **sizes.widths}
    module = mechanism(name, direction=None, **sizes.fields)(width=widths["d"])
    query, source = (
        jax.ShapeDtypeStruct((1, 2, widths[side]), jnp.float32) for side in ("dq", "ds")
    )
    variables = jax.eval_shape(module.init, jax.random.key(0), query, source)
    letters = {size: letter for letter, size in {**sizes.letters, **sizes.widths}.items()}
    flat = flax.traverse_util.flatten_dict(variables.get("params", {}))
    return {
        path: f"[{', '.join(letters.get(size, str(size)) for size in leaf.shape)}]"
        for path, leaf in sorted(flat.items())
    }


def _join(layouts: Mapping[tuple[str, ...], str]) -> str:
    return ", ".join(f"`{'/'.join(path)}` {layout}" for path, layout in layouts.items())
