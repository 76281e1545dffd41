"""XLA flags that compile fast and run slowly, for tests and for the processes they start."""

from __future__ import annotations

import importlib.metadata

_OLDER_EMITTERS = (
    " --xla_cpu_use_fusion_emitters=false"  # they compile small programs in half the time
    if importlib.metadata.version("jaxlib").startswith("0.10.")
    else ""  # a flag that XLA does not know ends the process; try it with the jaxlib you allow
)
FAST = f"--xla_backend_optimization_level=0{_OLDER_EMITTERS}"
