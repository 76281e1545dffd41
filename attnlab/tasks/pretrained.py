"""What a task whose training begins with the weights of a model from elsewhere says of them."""

from __future__ import annotations

from pathlib import Path

import jax
from ml_collections import ConfigDict

from attnlab import weights
from attnlab.tasks.protocol import Params


class Pretrained:
    """The part of `attnlab.tasks.base.Task` that knows of `config.pretrained`."""

    config: ConfigDict

    def init(self, key: jax.Array) -> Params:
        """Fresh float32 parameters."""
        raise NotImplementedError

    @property
    def pretrained(self) -> Path | None:
        """The folder of weights that training begins with; None if they are drawn. Configs of
        earlier versions do not say.
        """
        folder = self.config.get("pretrained", {}).get("folder", "")
        return Path(folder).expanduser() if folder else None

    def check_pretrained(self) -> dict[str, str]:
        """Whether the tensors that training begins with are those that the system needs, by their
        names and shapes; their fingerprint, {} where weights are drawn or the folder has gone.

        Raises:
          UserError: a folder of which nothing is known, tensors that are missing, too many or of
            another shape.
        """
        if self.pretrained is None or not self.pretrained.exists():
            return {}
        shapes = jax.eval_shape(self.init, jax.random.key(0))
        weights.check(self.pretrained, shapes)
        return {"pretrained": weights.fingerprint(self.pretrained)}

    def begun(self, params: Params) -> Params:
        """What training begins with, given drawn parameters: those of `pretrained`, if there is
        one; `UserError` as `check_pretrained`.
        """
        return params if self.pretrained is None else weights.parameters(self.pretrained, params)
