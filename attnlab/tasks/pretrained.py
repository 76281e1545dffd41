"""The weights of another model that the training of a task begins with. Imported where a config
names some.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax
import numpy as np

from attnlab import config as configs
from attnlab import weights
from attnlab.attention.mechanisms.head_variants import Gated
from attnlab.attention.mechanisms.multihead import MultiHead
from attnlab.data.learned import SIDES
from attnlab.errors import UserError
from attnlab.records.files import write_atomic
from attnlab.records.manifest import Manifest
from attnlab.tasks import TASKS, schemas
from attnlab.tasks.protocol import Params
from attnlab.training.pruning import ALONE, CHECKPOINTS, used_prints
from attnlab.weights.fitting import Fit, Heads, Model, fit, fit_parameters
from attnlab.weights.names import flat, nested

if TYPE_CHECKING:
    from attnlab.tasks import AnyTask

REPORT = "pretrained.json"
Reader = Callable[[schemas.Settings, Any, Path], tuple[Params, int]]
"""The parameters of a trained run, given its config, its task and its folder, and their step."""


class InitialWeights:
    """The weights that the training of a task begins with.

    Args:
      task: whose `config.pretrained` names their folder.

    Attributes:
      folder: of a model of `transformers`, or of a run of ours.
    """

    def __init__(self, task: "AnyTask") -> None:
        """Stores the task, its settings `pretrained` and their folder, and whether all weights of a
        foreign folder are taken unchanged.
        """
        self.task, self.settings = task, task.config.pretrained
        assert self.settings.path is not None
        self.folder: Path = self.settings.path
        self._run = self.settings.run
        self._as_it_is = self.settings.take == "all" and self._run is None

    def check(self) -> dict[str, str]:
        """Raises `UserError` unless the weights fit the system as `config.pretrained` demands;
        returns {"pretrained": their fingerprint}, or {} if the folder is gone.

        Raises:
          UserError: a folder of which nothing is known; weights that are missing, too many or of
            another shape, or none that fits where only those that fit are taken.
        """
        folder = self.folder
        if not folder.exists():
            return {}
        if self._as_it_is:
            try:
                weights.check(folder, self.task.shapes)
            except UserError as error:
                raise UserError(f"{error}{self._other_system()}") from error
            return {"pretrained": weights.fingerprint(folder)}
        fit = self._fit
        if self.settings.take == "all" and (fit.drawn or fit.left_out or fit.pooled):
            lines = "; ".join(line.removeprefix("pretrained: ") for line in fit.lines())
            raise UserError(
                f"pretrained.folder={folder} has another system than the config: {lines}; set"
                " pretrained.take=matching to take what fits"
            )
        if not fit.kept and not fit.pooled:
            raise UserError(
                f"pretrained.folder={folder}: none of its {len(fit.left_out)} parameters fits the"
                f" system {self.task.config.system.name}; compare the settings of the two systems"
            )
        return {"pretrained": _fingerprint(folder) if self._run else weights.fingerprint(folder)}

    def in_saved_form(self, prints: dict[str, str], saved: Mapping[str, Any]) -> dict[str, str]:
        """Returns the fingerprints that `check` gave, or the one that is `saved`, by name, if that
        is of the same run in an earlier form, of all files.
        """
        stored = saved.get("pretrained")
        if self._run and stored not in (None, *prints.values()) and stored == _hash_run(self._run):
            return {"pretrained": stored}
        return prints

    def params(self, key: jax.Array, read: Reader, dtype: Any = np.float32) -> Params:
        """Returns the first parameters on the host: those of the pretrained weights (`read` loads
        them from a run) where they fit, pooled over heads if needed, else drawn from `key` as
        `init` does.

        Args:
          key: of what is drawn; nothing else is.
          read: reads the parameters of a run of ours.
          dtype: of a model that is taken as it is; each tensor is rounded as it is read.
        """
        if self._as_it_is:
            return weights.parameters(self.folder, self.task.shapes, dtype)
        source = self._source
        if self._run:
            loaded, _ = read(source.config, source, self.folder)
        else:
            loaded = weights.parameters(self.folder, source.shapes)
        fresh = jax.device_get(self._draw_params(key)) if self._fit.drawn else {}
        models = model_of(source), model_of(self.task)
        return nested(fit_parameters(flat(jax.device_get(loaded)), fresh, *models))

    @property
    def partial(self) -> bool:
        """Whether not all weights are taken as they are."""
        if not self.folder.exists() or self._as_it_is:
            return False
        return bool(self._fit.pooled or self._fit.drawn or self._fit.left_out)

    def lines(self) -> list[str]:
        """What of the weights is taken, for a person; nothing if all are."""
        return self._fit.lines() if self.partial else []

    def drawn_paths(self) -> tuple[str, ...]:
        """Paths of the parameters that the weights do not give."""
        return self._fit.drawn if self.partial else ()

    def keep_report(self, workdir: Path) -> None:
        """Write `REPORT`, where not all weights are taken as they are."""
        if self.partial:
            report = {"folder": str(self.folder), **dataclasses.asdict(self._fit)}
            write_atomic(workdir / REPORT, json.dumps(report, indent=1) + "\n")

    def _other_system(self) -> str:
        """The end of an error message: what to do if the config has another system than a folder."""
        system = configs.prepare(configs.from_dict(weights.run_config(self.folder)), []).system
        if configs.to_dict(system) == configs.to_dict(self.task.config.system):
            return ""
        return "; the config changes its system: set pretrained.take=matching to take what fits"

    @functools.cached_property
    def _fit(self) -> Fit:
        return fit(model_of(self._source), model_of(self.task))

    @functools.cached_property
    def _draw_params(self) -> Callable[[jax.Array], dict[str, jax.Array]]:
        """Returns a compiled program that draws from a key, by path, those parameters that the
        weights do not give.
        """
        paths = self._fit.drawn

        def draw(key: jax.Array) -> dict[str, jax.Array]:
            params = flat(self.task.init(key))
            return {path: params[path] for path in paths}

        return jax.jit(draw)

    @functools.cached_property
    def _source(self) -> "AnyTask":
        """Loads the task, without data, of the model that the weights come from: a run of ours, or
        the config read from a foreign folder.
        """

        stored: Mapping[str, Any]
        if self._run:
            manifest = Manifest.read(self._run)
            assert manifest is not None
            stored = manifest.config
        else:
            stored = weights.run_config(self.folder)
        config = configs.prepare(configs.from_dict(stored), [])
        source: AnyTask = TASKS.resolve(config.task).load(config, self._run, ())
        return source


def model_of(task: "AnyTask") -> Model:
    """Returns as a `Model` the shapes of a task's parameters, the heads of its multi-head
    mechanisms and its vocabularies; nothing is computed.
    """
    heads: dict[str, Heads] = {}

    def record_heads(method: Callable[..., Any], args: Any, kwargs: Any, context: Any) -> Any:
        """Records the heads of a multi-head mechanism by its path, and calls the method."""
        module = context.module
        if type(module) in (MultiHead, Gated):
            keys = module.key_heads or module.heads
            heads["/".join(module.path)] = Heads(module.heads, keys, module.size())
        return method(*args, **kwargs)

    with nn.intercept_methods(record_heads):
        params = jax.eval_shape(task.init, jax.random.key(0))
    # data of a user's own may have a vocabulary alone
    learned = getattr(task.data, "learned", None)
    names = ("vocabulary",) if learned is None else SIDES
    vocabularies = [getattr(learned or task.data, name, None) for name in names]
    pieces = dict.fromkeys(tuple(side.tokens(range(side.size))) for side in vocabularies if side)
    shapes = {path: tuple(leaf.shape) for path, leaf in flat(params).items()}
    return Model(shapes, heads, tuple(pieces))


def _fingerprint(run: Path) -> str:
    """Computes SHA-256 over the fingerprints of the parameters that a run is used with, which are
    the same if it is pruned; if they are damaged over the files of its states.
    """
    try:
        return hashlib.sha256(json.dumps(used_prints(run), sort_keys=True).encode()).hexdigest()
    except Exception:  # the reader of the parameters will tell
        return _hash_run(run)


def _hash_run(run: Path) -> str:
    """Returns the SHA-256, in hex, over the names and contents of all checkpoint files in the
    folder `run`.
    """
    digest = hashlib.sha256()
    files = [path for folder in (CHECKPOINTS, ALONE) for path in (run / folder).rglob("*")]
    for file in sorted(path for path in files if path.is_file()):
        digest.update(str(file.relative_to(run)).encode())
        with file.open("rb") as source:
            digest.update(hashlib.file_digest(source, "sha256").digest())
    return digest.hexdigest()
