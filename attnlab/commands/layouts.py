"""The parameters of every mechanism and of its parts: their names in the tree of `init`, and how
each array is laid out, in letters.

Nothing is computed: each is built by shapes alone, with sizes of which no two are equal, and the
sizes are read back as letters.
"""

import dataclasses
from collections.abc import Mapping

import flax.traverse_util
import jax
import jax.numpy as jnp

from attnlab.api.arrays import mechanism
from attnlab.errors import UserError

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
