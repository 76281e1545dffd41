"""What a task whose training begins with the weights of another model says of them."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax

from attnlab import config as configs
from attnlab import weights
from attnlab.attention.mechanisms.gated import Gated
from attnlab.attention.mechanisms.multihead import MultiHead
from attnlab.errors import UserError
from attnlab.records.files import write_atomic
from attnlab.records.manifest import Manifest
from attnlab.tasks import schemas
from attnlab.tasks.protocol import Params
from attnlab.weights.fitting import Fit, Heads, Model, fit, fitted
from attnlab.weights.names import flat, nested

REPORT = "pretrained.json"
Reader = Callable[[schemas.Settings, Any, Path], tuple[Params, int]]
"""The parameters of a trained run, given its config, its task and its folder, and their step."""


class Pretrained:
    """The part of `attnlab.tasks.base.Task` that knows of `config.pretrained`."""

    config: schemas.Settings
    data: Any

    def init(self, key: jax.Array) -> Params:
        """Fresh float32 parameters."""
        raise NotImplementedError

    @functools.cached_property
    def shapes(self) -> Params:
        """The shapes of `init`, which is traced for them once."""
        return jax.eval_shape(self.init, jax.random.key(0))

    @property
    def pretrained(self) -> Path | None:
        """The folder of weights that training begins with; None if they are drawn."""
        return pretrained_folder(self.config)

    def check_pretrained(self) -> dict[str, str]:
        """Whether the weights that training begins with fit the system as `config.pretrained` asks;
        their fingerprint, {} where weights are drawn or the folder has gone.

        Raises:
          UserError: a folder of which nothing is known; weights that are missing, too many or of
            another shape, or none that fits where only those that fit are taken.
        """
        folder = self.pretrained
        if folder is None or not folder.exists():
            return {}
        if self._as_it_is(folder):
            try:
                weights.check(folder, self.shapes)
            except UserError as error:
                raise UserError(f"{error}{self._other_system(folder)}") from error
            return {"pretrained": weights.fingerprint(folder)}
        found = self._fit
        if self.config.pretrained.take == "all" and (found.drawn or found.left_out or found.pooled):
            told = "; ".join(line.removeprefix("pretrained: ") for line in found.lines())
            raise UserError(
                f"pretrained.folder={folder} has another system than the config: {told}; set"
                " pretrained.take=matching to take what fits"
            )
        if not found.kept and not found.pooled:
            raise UserError(
                f"pretrained.folder={folder}: none of its {len(found.left_out)} parameters fits the"
                f" system {self.config.system.name}; compare the settings of the two systems"
            )
        return {
            "pretrained": _fingerprint(folder) if is_run(folder) else weights.fingerprint(folder)
        }

    def begun(self, key: jax.Array, read: Reader) -> Params:
        """What training begins with, as `init` draws it where the weights do not give it, and on
        the host; `UserError` as `check_pretrained`.

        Args:
          key: of what is drawn; nothing else is.
          read: reads the parameters of a run of ours.
        """
        folder = self.pretrained
        if folder is None:
            return jax.device_get(self.init(key))  # type: ignore[no-any-return]
        if self._as_it_is(folder):
            return weights.parameters(folder, self.shapes)
        source = self._source
        if is_run(folder):
            found, _ = read(source.config, source, folder)
        else:
            found = weights.parameters(folder, source.shapes)
        found = flat(jax.device_get(found))
        drawn = jax.device_get(self._drawn(key)) if self._fit.drawn else {}
        return nested(fitted(found, drawn, model_of(source), model_of(self)))

    def begins_with(self) -> list[str]:
        """What of the pretrained weights is taken, for a person; nothing if all are."""
        folder = self.pretrained
        if folder is None or not folder.exists() or self._as_it_is(folder):
            return []
        found = self._fit
        return found.lines() if found.pooled or found.drawn or found.left_out else []

    def drawn_anew(self) -> tuple[str, ...]:
        """Paths of the parameters that the pretrained weights do not give."""
        return self._fit.drawn if self.begins_with() else ()

    def keep_report(self, workdir: Path) -> None:
        """Write `REPORT`, where not all weights are taken as they are."""
        if self.begins_with():
            told = {"folder": str(self.pretrained), **dataclasses.asdict(self._fit)}
            write_atomic(workdir / REPORT, json.dumps(told, indent=1) + "\n")

    def _other_system(self, folder: Path) -> str:
        """The end of an error message: what to do if the config has another system than a folder."""
        own = configs.prepare(configs.from_dict(weights.run_config(folder)), []).system
        if configs.to_dict(own) == configs.to_dict(self.config.system):
            return ""
        return "; the config changes its system: set pretrained.take=matching to take what fits"

    def _as_it_is(self, folder: Path) -> bool:
        """Whether every tensor of a folder of `transformers` is to be a parameter."""
        return self.config.pretrained.take == "all" and not is_run(folder)

    @functools.cached_property
    def _fit(self) -> Fit:
        return fit(model_of(self._source), model_of(self))

    @functools.cached_property
    def _drawn(self) -> Callable[[jax.Array], dict[str, jax.Array]]:
        """A program that draws what the weights do not give, and nothing else."""
        paths = self._fit.drawn

        def drawn(key: jax.Array) -> dict[str, jax.Array]:
            every = flat(self.init(key))
            return {path: every[path] for path in paths}

        return jax.jit(drawn)

    @functools.cached_property
    def _source(self) -> Pretrained:
        """The task of the model that weights come from."""
        from attnlab.tasks import TASKS

        folder = self.pretrained
        assert folder is not None
        if is_run(folder):
            manifest = Manifest.read(folder)
            assert manifest is not None
            config, kept = configs.prepare(configs.from_dict(manifest.config), []), folder
        else:
            config, kept = configs.prepare(configs.from_dict(weights.run_config(folder)), []), None
        found: Pretrained = TASKS.resolve(config.task).load(config, kept, ())
        return found


def pretrained_folder(config: schemas.Settings) -> Path | None:
    """The folder of weights that training begins with; None if they are drawn."""
    folder = config.pretrained.folder
    return Path(folder).expanduser() if folder else None


def is_run(folder: Path) -> bool:
    """Whether a folder has a run of ours, not a model of `transformers`."""
    return (folder / "manifest.json").is_file()


def begun_with(config: schemas.Settings) -> Path | None:
    """The folder of the run of ours that a run begins with; None for none."""
    folder = pretrained_folder(config)
    return folder if folder and is_run(folder) else None


def model_of(task: Pretrained) -> Model:
    """The shapes and heads of the system of a task, and its vocabularies; nothing is computed."""
    heads: dict[str, Heads] = {}

    def seen(method: Callable[..., Any], args: Any, kwargs: Any, context: Any) -> Any:
        one = context.module
        if type(one) in (MultiHead, Gated):
            keys = one.key_heads or one.heads
            heads["/".join(one.path)] = Heads(one.heads, keys, one.size())
        return method(*args, **kwargs)

    with nn.intercept_methods(seen):
        params = jax.eval_shape(task.init, jax.random.key(0))
    names = ("vocabulary", "source_vocabulary", "target_vocabulary")
    known = [getattr(task.data, name) for name in names if hasattr(task.data, name)]
    pieces = dict.fromkeys(tuple(one.tokens(range(one.size))) for one in known)
    shapes = {path: tuple(one.shape) for path, one in flat(params).items()}
    return Model(shapes, heads, tuple(pieces))


def _fingerprint(run: Path) -> str:
    """SHA-256 of the checkpoints of a run."""
    digest = hashlib.sha256()
    for file in sorted(path for path in (run / "checkpoints").rglob("*") if path.is_file()):
        digest.update(str(file.relative_to(run)).encode())
        with file.open("rb") as source:
            digest.update(hashlib.file_digest(source, "sha256").digest())
    return digest.hexdigest()
