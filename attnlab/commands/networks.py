"""The columns of `launch.py list systems` besides the card, a system's task and size; and those of
`list tasks`, what a task takes.
"""

import functools
import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from attnlab import config as configs
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
