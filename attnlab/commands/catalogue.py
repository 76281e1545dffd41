"""What `launch.py list` says of networks besides their cards, and the page docs/mechanisms.md: every
mechanism and every part it can be put together from, written by the code itself.

Of a system it is the task and the size, of a task what it takes, of every mechanism and its parts
the parameters: their names in the tree of `init`, and how each array is laid out, in letters.
Nothing is computed: each is built by shapes alone; a mechanism with sizes of which no two are
equal, and the sizes are read back as letters.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence

import flax.traverse_util
import jax
import jax.numpy as jnp

from attnlab import config as configs
from attnlab.api.arrays import mechanism
from attnlab.commands import listing
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

COMMAND = "python launch.py list --markdown > docs/mechanisms.md"
HEAD = f"""\
# Mechanisms and their parts

Written by `{COMMAND}`
from the tables, the docstrings and the cards of the components; a test says when it is out of date.

Letters: B batch, T length (Tq queries, Tk keys), d width of the context, dq/ds widths of query and source, H heads, K key heads,
D width of a head; A hidden width of a score, L positions of the location score, k clip of a relative scheme, C and R latent and rotary
width, r hops, N steps, M features; of visibilities w window, l stride, c summary, b block, r random blocks, g global tokens, n first keys.

*time* is how the FLOPs of a look grow with T = Tq = Tk, of a part for one head; *state* how the numbers a memory keeps do. How FLOPs are
counted stands in `attnlab/analysis/work.py`; `tests/attention/test_cards.py` compares them with the program.
The *time* of a visibility is how many pairs may be seen, which a kernel that skips blocks comes near to.
"""
MIXERS = """\
Further layers for slots that only mix: self-attention in Transformers (`--config.system.attention=NAME`, `decoder_attention`,
`encoder_attention`). Those that are attention also read another sequence. Letters here: M features, m landmarks or tokens of a chunk, n
buckets, r rounds, g global tokens, w window, F or H a hidden width, k tokens of a convolution."""
PARTS = {
    "scores": "What a mechanism takes as `score`: how a query and a key fit.",
    "alignments": "What a mechanism takes as `alignment`: scores to weights.",
    "positions": "What a mechanism (or, for those on embeddings, a system) takes as `positions`.",
    "visibilities": "What a system takes as a visibility: who may see whom.",
    "features": "What `linear` takes as `features`: the weight of a key is a product of features.",
    "gates": (
        "What stands at the place of a gate in an image network: feature maps [B,H,W,C] to the same"
        " shape. Letters here: N = H W places, C channels, r reduction, k kernel."
    ),
    "kernels": (
        "What a mechanism takes as `kernel`: how it is computed; none changes the result beyond"
        " rounding."
    ),
}
TITLES = {"positions": "Position schemes", "features": "Feature maps"}  # others are the kinds
PARAMETERS = """\
## Parameters

What `init` returns under "params", by path, with the layout of each array. Kernels are [in, out], as in Flax; torch keeps its own as
[out, in]. Where heads lie side by side in one axis they stand in order, channel c of head h at h D + c. Beside the letters above:
A hidden width of a score, Q width of the queries' own latent. Everything a mechanism may have is listed: `latent` without
`query_latent` has `w_query/kernel` [dq, H (D + R)] alone, and `bias=True` gives each of the four projections of `multihead` a `bias`.
The source of `single` is as wide as its context, ds = d; where K = H, [ds, K D] is [ds, d]. A score's parameters are those it has inside
`single`; inside `multihead` it sees heads, so that its dq and d are D, and one set of them serves all heads.
"""


@functools.cache
def page() -> str:
    """Returns the whole page docs/mechanisms.md, in Markdown."""
    mixers = _mixers("mechanisms", ""), _mixers("mixers", MIXERS)
    return "\n".join([HEAD, *mixers, *(_part(kind) for kind in PARTS), _parameters()])


def _mixers(kind: str, text: str) -> str:
    """Returns a Markdown chapter on a kind of mixers: `text`, a table of its components and a
    section on each; mechanisms are left out unless `kind` is "mechanisms".
    """
    columns = listing.KINDS["mechanisms"].columns
    listed = set() if kind == "mechanisms" else set(listing.components("mechanisms").names())
    rows = listing.component_rows(listing.components(kind), columns)
    rows = [row for row in rows if row[0] not in listed]
    head = [f"## {kind.capitalize()}", "", *([text, ""] if text else [])]
    sections = [_mixer(kind, row[0]) for row in rows]
    return "\n".join([*head, *_table(("name", *columns), rows), "", *sections])


def _mixer(kind: str, name: str) -> str:
    """Returns the Markdown section about the mixer `name` among the components of a `kind`
    ("mechanisms" or "mixers"): its summary, its formula and memory contents if any, and a table of
    its fields.
    """
    from attnlab.attention.protocol import Attention

    mechanism = listing.components(kind).resolve(name)
    fields = [dataclasses.astuple(field) for field in listing.settable_fields(mechanism)]
    formula = listing.formula(mechanism)
    memory = ""
    if isinstance(mechanism, type) and issubclass(mechanism, Attention):
        memory = listing.memory_contents(mechanism)
    lines = [f"### `{name}`", "", listing.summary(mechanism), ""]
    lines += ["```", formula, "```", ""] if formula else []
    lines += [f"Memory: {memory}", ""] if memory else []
    return "\n".join([*lines, *_table(("field", "default", "meaning"), fields), ""])


def _part(kind: str) -> str:
    """Returns the Markdown section about one kind of part, a key of `PARTS`: title, text and a table
    of its components.
    """
    columns = (*listing.KINDS[kind].columns, "fields")
    rows = listing.component_rows(listing.components(kind), columns)
    head = [f"## {TITLES.get(kind, kind.capitalize())}", "", PARTS[kind], ""]
    return "\n".join([*head, *_table(("name", *columns), rows), ""])


def _parameters() -> str:
    """Returns the Markdown section with the parameters (path and array layout) of every mechanism,
    score, alignment and position scheme.
    """
    rows = [
        (f"`{name}`", mechanism_parameters(name))
        for name in listing.components("mechanisms").names()
    ]
    kinds = {"score": "scores", "alignment": "alignments", "positions": "positions"}
    for field, parts in kinds.items():
        for name in listing.components(parts).names():
            if parameters := part_parameters(field, name):
                rows.append((f"`{field}={name}`", parameters))
    return "\n".join([PARAMETERS, *_table(("of", "parameters"), rows), ""])


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a Markdown table; "|" in cells is escaped."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return [f"| {' | '.join(line)} |" for line in (columns, ["---"] * len(columns), *cells)]


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
OWNERS: Mapping[str, tuple[str, Sizes]] = {  # field of a mechanism to the mechanism and its sizes
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
    owner, sizes = OWNERS[field]
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
