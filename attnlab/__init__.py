"""attnlab: every attention mechanism behind one signature, trained, measured and compared with JAX
and Flax.

In Python (see `docs/python.md`): `load` a trained run, make a `mechanism` for arrays. What is bad
input raises `UserError`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from attnlab.errors import UserError

if TYPE_CHECKING:
    from attnlab.api.arrays import mechanism as mechanism
    from attnlab.api.pretrained import load_pretrained as load_pretrained
    from attnlab.api.pretrained import save_pretrained as save_pretrained
    from attnlab.api.trained import Map as Map
    from attnlab.api.trained import Run as Run
    from attnlab.api.trained import load as load
    from attnlab.api.training import begin as begin
    from attnlab.api.training import sweep as sweep
    from attnlab.api.training import train as train

__version__ = "0.1.0"
# imported on first use: these need jax
_MODULES = {
    **dict.fromkeys(("Map", "Run", "load"), "trained"),
    **dict.fromkeys(("begin", "sweep", "train"), "training"),
    **dict.fromkeys(("load_pretrained", "save_pretrained"), "pretrained"),
    "mechanism": "arrays",
}
__all__ = [*_MODULES, "UserError"]


if not TYPE_CHECKING:  # a checker of types knows the names above, and no others

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        importlib.import_module("attnlab.training.programs").start_jax()  # as commands do
        value = getattr(importlib.import_module(f"attnlab.api.{_MODULES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
