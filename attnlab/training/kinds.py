"""What each parameter is, and so whether weight decay draws it to zero: the last name of its path
says its kind, never its rank.

A matrix multiplies features, so that zero is a model without it; only matrices decay. What is
added, scales, is looked up, or starts near the identity loses its meaning at zero. A part of one's
own calls its parameters as ours are called: `kernel` or `w_...` decays, `..._bias`, `..._scale` and
`..._table` do not. LoRA's two factors are of the kind of what they are added to. Weights of a
`WeightNormed` layer are a matrix too, as elsewhere: their length is a gain of its own.
"""

import re
from collections.abc import Callable, Mapping

import jax

from attnlab.errors import UserError
from attnlab.training.trained import Params, Tree, leaves_by_path

KINDS: Mapping[str, str] = {
    "bias": r"(\w+_)?bias(_\d+)?|b|offset|logit|place|positions/[uw]",
    "gain": (
        r"(\w+_)?(scale|gain)|g|s|raw|slope|strength|a1|a2|b1|b2"
        r"|rate|step|skip|decay|erased|written|bonus"
    ),
    "table": (
        r"(\w+_)?(embedding|table)|positions/(tree_)?(keys|values)|scores|of_(queries|keys)"
        r"|(\w+_)?query|queries|class_token"
    ),
    "mix": r"mix_(scores|weights)|near|shift",
    "statistic": r"mean|variance",
    "matrix": (
        r"(\w+_)?kernel(_\d+)?|w(_\w+)?|v|past|gates|candidate|merge|columns|up_(key|value)"
        r"|along_(keys|values)|filter|of_(filter|covered)|fertile|(window|top)_\d+"
    ),
}
"""How the paths of parameters of each kind end, as a regular expression; the first kind counts. A
`table` has what stands for a token, a place, a query or a class; a `mix` joins heads, neighbours or
two tokens; a `statistic` is kept by a norm over batches."""
DECAYED = "matrix"
_ENDS = {kind: re.compile(f"(?:^|/)(?:{names})$") for kind, names in KINDS.items()}
_LORA = re.compile(r"lora/(.*)/[ab]")


def kind_of(path: str) -> str | None:
    """The kind of the parameter at a path, "layer_0/attention/w_query/kernel"; None if its name says
    none.
    """
    adapted = _LORA.fullmatch(path)
    end = adapted[1] if adapted else path
    return next((kind for kind, ends in _ENDS.items() if ends.search(end)), None)


def decayed_by_kind(params: Params) -> Tree:
    """Returns a tree like `params` with True where a parameter's name says that it is a matrix,
    which decays; raises `UserError` for a name of no kind.

    Raises:
      UserError: a parameter has no kind.
    """
    for path, leaf in leaves_by_path(params).items():
        if kind_of(path) is None:
            raise UserError(
                f"optimizer.decayed=kind: the parameter {path} {list(leaf.shape)} has no kind, so"
                " nobody can tell whether it decays; let its name end in _kernel (decays) or in"
                " _bias, _scale or _table (does not), or set config.optimizer.decayed=rank"
            )
    return _mask(params, lambda path, leaf: kind_of(path) == DECAYED)


def decayed_by_rank(params: Params) -> Tree:
    """Returns a tree like `params` with True for arrays of two axes or more, apart from `bias`,
    `scale` and paths with "embed": how all runs were trained before kinds were known.
    """

    def decays(path: str, leaf: jax.Array) -> bool:
        name = path.rpartition("/")[2].lower()
        return leaf.ndim >= 2 and name not in ("bias", "scale") and "embed" not in path.lower()

    return _mask(params, decays)


MASKS: Mapping[str, Callable[[Params], Tree]] = {"kind": decayed_by_kind, "rank": decayed_by_rank}
"""By what `optimizer.decayed` of a config says."""


def differently_decayed(params: Params) -> list[str]:
    """Returns one line of text on the parameters that decay by rank and not by kind, or the
    reverse; [] if there are none.
    """
    paths = leaves_by_path(params)
    by_rank = jax.tree.leaves(decayed_by_rank(params))
    decays_by_rank = zip(paths, by_rank, strict=True)
    differ = [path for path, decays in decays_by_rank if decays != (kind_of(path) == DECAYED)]
    if not differ:
        return []
    suffix = f" and {len(differ) - 3} more" if len(differ) > 3 else ""
    return [
        "weight decay goes by rank, as in runs of earlier versions (optimizer.decayed=rank); by kind"
        f" it would be otherwise for {', '.join(differ[:3])}{suffix}"
    ]


def _mask(params: Params, decays: Callable[[str, jax.Array], bool]) -> Tree:
    leaves = [decays(*item) for item in leaves_by_path(params).items()]
    return jax.tree.unflatten(jax.tree.structure(params), leaves)
