"""Which parameters are trained, how fast, and what the loss sees of them: freezing, rates of their
own, and low-rank adaptation (LoRA).

    training.freeze        parameters whose path has one of these regular expressions stay as they are
    training.rates         "REGEX=FACTOR": the update of a parameter times the factor of the first that its path has
    training.layer_decay   and times decay^(n - 1 - i) in layer i of n, decay^n in embeddings
    lora                   W is W_0 + (alpha / rank) A B,  A [in,rank] from N(0, 1 / in),  B [rank,out] from 0

With LoRA only A and B are trained, and what `lora.also` names. They are parameters of their own,
"lora/layer_0/attention/w_query/kernel/a"; W_0 keeps its path, and checkpoints hold both. A trained
run has the sum, so that whatever uses a model knows nothing of LoRA. Frozen parameters have no
gradient and no state of the optimizer, and do not count in the norm that is clipped. Factors scale
the whole update, weight decay too, and count layers that are frozen.

Source: E. Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022, section 4.1.
The dropout on the input of A is here one mask for all tokens of a microbatch, for the sum is formed
before any token is known: in training rows of A are left out with the probability `lora.dropout`,
the others count 1 / (1 - dropout). Rates that decay with depth: J. Howard, S. Ruder, "Universal
Language Model Fine-tuning for Text Classification", ACL 2018, section 3.2; K. Clark et al.,
"ELECTRA", ICLR 2020, appendix A.
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import flax.traverse_util
import jax
import jax.numpy as jnp

from attnlab.errors import UserError

if TYPE_CHECKING:
    from attnlab.tasks.schemas import Settings

Tree: TypeAlias = Any
"""Arrays in any nesting: a state, the outputs of a system. What it is, its maker knows alone."""
Params: TypeAlias = Mapping[str, Tree]
"""Parameters by the names of modules, as linen has them: arrays, or such mappings again."""
_MOST_REPETITIONS = 4  # of a regular expression
LORA = "lora"
_LAYER = re.compile(r"(?:^|/)(\w*?)_(\d+)/")


@dataclasses.dataclass(frozen=True)
class Trained:
    """What of the parameters is trained; see the top of this file.

    Attributes:
      freeze, rates, layer_decay: as in the config.
      rank, alpha, dropout, on, also: of LoRA; rank 0 for none.
    """

    freeze: tuple[str, ...] = ()
    rates: tuple[str, ...] = ()
    layer_decay: float = 1.0
    rank: int = 0
    alpha: float = 16.0
    dropout: float = 0.0
    on: tuple[str, ...] = ()
    also: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: "Settings") -> "Trained":
        """Returns the `Trained` of a config, with its settings of frozen parameters, learning rates
        and LoRA; raises `UserError` for an invalid regular expression or factor.

        Raises:
          UserError: no regular expression, or no factor.
        """
        training, lora = config.training, config.lora
        of_training = training.freeze, training.rates, training.layer_decay
        trained = lora.call(cls, *of_training) if lora.rank else cls(*of_training)
        for name, patterns in trained._patterns():
            for pattern in patterns:
                compile_pattern(pattern, f"config.{name}")
        return trained

    @property
    def all(self) -> bool:
        """Whether all parameters are trained as they are."""
        return not self.freeze and not self.rank

    def check(self, params: Params) -> None:
        """Checks the regular expressions against the parameters (or shapes) of a model: each
        matches a path, LoRA only matrices, and something is trained; else `UserError`.

        Raises:
          UserError: an expression that no path has, LoRA on what is no matrix, nothing to train.
        """
        flat = _flat(params)
        if self.rank:
            for path in self._adapted(flat):
                if len(flat[path].shape) != 2:
                    raise UserError(
                        f"config.lora.on: {path} has the shape {list(flat[path].shape)}; LoRA adds"
                        " to matrices, so name those only, as 'w_(query|value)/kernel'"
                    )
        paths = list(_flat(jax.eval_shape(self.with_adapters, params, jax.random.key(0))))
        for name, patterns in self._patterns():
            among = list(flat) if name.startswith("lora") else paths
            for pattern in patterns:
                if not any(re.search(pattern, path) for path in among):
                    ends = sorted({"/".join(path.split("/")[-2:]) for path in among})
                    raise UserError(
                        f"config.{name}: no parameter has {pattern!r} in its path;"
                        f" they end in: {', '.join(ends)}"
                    )
        if not any(self._trains(path) for path in paths):
            key = "lora.on" if self.rank else "training.freeze"
            raise UserError(f"config.{key}: every parameter is frozen; leave some to be trained")

    def note(self, params: Params) -> str:
        """Returns a line of text: how many of the numbers in all parameters, those of LoRA
        included, are trained.
        """
        flat = _flat(jax.eval_shape(self.with_adapters, params, jax.random.key(0)))
        sizes = {path: leaf.size for path, leaf in flat.items()}
        count = sum(size for path, size in sizes.items() if self._trains(path))
        return f"{count:,} of {sum(sizes.values()):,} parameters are trained"

    def warnings(self, params: Params, random_paths: Iterable[str]) -> list[str]:
        """Returns a list with one line of text if some of the paths `random_paths`, of parameters
        that were drawn at random, are neither trained nor adapted by LoRA; else [].
        """
        learned = self._adapted(_flat(params)) if self.rank else []
        stay = [path for path in random_paths if not self._trains(path) and path not in learned]
        if not stay:
            return []
        advice = "name them in lora.also" if self.rank else "leave them out of training.freeze"
        suffix = f" and {len(stay) - 4} more" if len(stay) > 4 else ""
        return [f"drawn anew and not trained: {', '.join(stay[:4])}{suffix}; {advice}"]

    def with_adapters(self, params: Params, key: jax.Array) -> Params:
        """Returns the initial parameters with two matrices of LoRA added for each adapted one, A
        drawn at random with `key` and B zero; without LoRA `params` itself.
        """
        if not self.rank:
            return params
        flat = _flat(params)
        pairs = {}
        for number, path in enumerate(self._adapted(flat)):
            rows, columns = flat[path].shape
            path_key = jax.random.fold_in(key, number)
            pairs[f"{path}/a"] = jax.random.normal(path_key, (rows, self.rank)) * rows**-0.5
            pairs[f"{path}/b"] = jnp.zeros((self.rank, columns))
        return {**params, LORA: flax.traverse_util.unflatten_dict(pairs, sep="/")}

    def split(self, params: Params) -> tuple[Params, Params]:
        """Splits the parameters into two trees: those that are trained, and the others."""
        if self.all:
            return params, {}
        flat = _flat(params)
        parts = (
            {path: leaf for path, leaf in flat.items() if self._trains(path) == trained}
            for trained in (True, False)
        )
        trained, fixed = (flax.traverse_util.unflatten_dict(part, sep="/") for part in parts)
        return trained, fixed

    def join(self, trained: Params, fixed: Params) -> Params:
        """All parameters again, of the two parts that `split` gives."""
        if self.all:
            return trained
        leaves = {**_flat(trained), **_flat(fixed)}
        return flax.traverse_util.unflatten_dict(leaves, sep="/")  # type: ignore[no-any-return]

    def merge(self, params: Params, key: jax.Array | None = None) -> Params:
        """Returns the parameters that the model computes with, where W_0 + (alpha / rank) A B
        replaces each adapted W_0; with a `key`, as in training, rows of A are dropped; without LoRA
        `params` itself.
        """
        if not self.rank:
            return params
        flat = _flat({name: part for name, part in params.items() if name != LORA})
        pairs = _flat(params[LORA])
        for number, path in enumerate(sorted({leaf.rpartition("/")[0] for leaf in pairs})):
            a = pairs[f"{path}/a"]
            if key is not None and self.dropout:
                keep = 1.0 - self.dropout
                mask = jax.random.bernoulli(jax.random.fold_in(key, number), keep, (len(a), 1))
                a = jnp.where(mask, a / keep, 0.0)
            change = a @ pairs[f"{path}/b"]
            flat[path] = flat[path] + (self.alpha / self.rank) * change
        return flax.traverse_util.unflatten_dict(flat, sep="/")  # type: ignore[no-any-return]

    def scale_updates(self, updates: Params, params: Params) -> Params:
        """Returns the updates of the trained parameters, each times its factor by `rates` and layer
        decay; `params` are all parameters.
        """
        if not self.rates and self.layer_decay == 1.0:
            return updates
        factors = self.factors(params)
        flat = {path: factors[path] * leaf for path, leaf in _flat(updates).items()}
        return flax.traverse_util.unflatten_dict(flat, sep="/")  # type: ignore[no-any-return]

    def factors(self, params: Params) -> dict[str, float]:
        """Returns the factor of the learning rate of each parameter, by path."""
        paths = list(_flat(params))
        layers: dict[str, int] = {}
        for path in paths:
            if match := _LAYER.search(path):
                layers[match[1]] = max(layers.get(match[1], 0), int(match[2]) + 1)
        return {path: self._factor(path, layers) for path in paths}

    def _factor(self, path: str, layers: Mapping[str, int]) -> float:
        """Returns the factor of the learning rate of the parameter at a path: that of the first of
        `rates` that matches it (1 if none), times `layer_decay` to the power of the number of
        layers above it (of all layers for embeddings, 0 for what is in no layer). `layers` has the
        number of layers of each stack.
        """
        factor = 1.0
        for rate in self.rates:
            pattern, _, number = rate.rpartition("=")
            if re.search(pattern, path):
                factor = float(number)
                break
        if match := _LAYER.search(path):
            return factor * float(self.layer_decay ** (layers[match[1]] - 1 - int(match[2])))
        lowest = re.match(rf"({LORA}/)?(embed|positions|types)", path)
        return factor * float(self.layer_decay ** max(layers.values(), default=0) if lowest else 1)

    def _trains(self, path: str) -> bool:
        """Whether the parameter at a path is trained."""
        adapts = not self.rank or path.startswith(f"{LORA}/") or _has(self.also, path)
        return adapts and not _has(self.freeze, path)

    def _adapted(self, paths: Iterable[str]) -> list[str]:
        """The paths of the matrices that LoRA adds to, sorted."""
        return sorted(path for path in paths if _has(self.on, path))

    def _patterns(self) -> list[tuple[str, list[str]]]:
        """Returns pairs of the name of a setting ("training.freeze", "training.rates", with LoRA
        "lora.on" and "lora.also") and the list of its regular expressions; raises `UserError` for a
        rate that is not 'REGEX=FACTOR'.
        """
        rates = []
        for rate in self.rates:
            pattern, _, number = rate.rpartition("=")
            try:
                factor = float(number)
            except ValueError:
                factor = -1.0
            if not pattern or not 0.0 <= factor < float("inf"):
                raise UserError(
                    f"config.training.rates: {rate!r} is not 'REGEX=FACTOR', as 'embed=0.1'"
                )
            rates.append(pattern)
        lora = [("lora.on", list(self.on)), ("lora.also", list(self.also))] if self.rank else []
        return [("training.freeze", list(self.freeze)), ("training.rates", rates), *lora]


ALL_TRAINED = Trained()


def leaves_by_path(tree: Tree) -> dict[str, Tree]:
    """Returns the leaves of a tree (arrays or `jax.ShapeDtypeStruct`) by path,
    "params/encoder/kernel", in the tree's order.
    """
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def compile_pattern(pattern: str, where: str) -> re.Pattern[str]:
    """Returns the compiled regular expression; raises `UserError`, which begins with `where`, for
    an invalid one, or one that may take very long.
    """
    try:
        count = _repetitions(re._parser.parse(pattern))  # type: ignore[attr-defined]
    except (re.error, RecursionError, OverflowError) as error:
        raise UserError(f"{where}: {pattern!r} is no regular expression ({error})") from error
    if count > _MOST_REPETITIONS:
        raise UserError(
            f"{where}: {pattern!r} may take very long; expected at most"
            f" {_MOST_REPETITIONS} repetitions, and none or a choice within one"
        )
    return re.compile(pattern)


def _repetitions(tree: object) -> float:
    """Returns the number of repetitions (* or the like) in a parsed regular expression; infinite if
    one contains a repetition or a choice, since trying all ways takes time exponential in the text.
    """
    if isinstance(tree, tuple) and tree and str(tree[0]).endswith("_REPEAT"):
        _, high, inside = tree[1]
        if high > 1:
            return math.inf if re.search("REPEAT|BRANCH", repr(inside)) else 1
    parts = getattr(tree, "data", tree)
    return sum(map(_repetitions, parts)) if isinstance(parts, (tuple, list)) else 0


def _has(patterns: Iterable[str], path: str) -> bool:
    return any(re.search(pattern, path) for pattern in patterns)


def _flat(params: Params) -> dict[str, jax.Array]:
    return flax.traverse_util.flatten_dict(params, sep="/")  # type: ignore[no-any-return]
