"""XLA flags that compile fast and run slowly, for tests and for the processes they start."""

import importlib.metadata

# A flag that XLA does not know ends the process: try it with the jaxlib that you allow.
_KNOWN = importlib.metadata.version("jaxlib").startswith("0.10.")
_OLDER = " --xla_cpu_use_fusion_emitters=false"  # they compile small programs in half the time
_WHOLE = " --xla_cpu_parallel_codegen_split_count=1"  # not in 32 parts: in two thirds of the time
# Devices wait for each other; on a machine that does other things they may, longer than the 40 s
# after which XLA ends the process: the limit of a test is what ends a test.
_PATIENT = " --xla_cpu_collective_call_terminate_timeout_seconds=600"
FAST = f"--xla_backend_optimization_level=0{_OLDER + _WHOLE + _PATIENT if _KNOWN else ''}"

SAME_ROUNDING = {"xla_cpu_use_fusion_emitters": True} if _KNOWN else {}
"""Options of `jax.jit` for two programs that are compared to the last bit: with the older emitters
what a number is fused with may depend on what else the program hands out.
"""
