"""Shared by all tests: four CPU devices, and a compile cache so that equal programs compile once for all workers."""

import os
import pathlib
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
os.environ.setdefault("ATTNLAB_CACHE", str(pathlib.Path(tempfile.gettempdir()) / "attnlab-tests-cache"))

import jax

jax.config.update("jax_compilation_cache_dir", os.path.join(os.environ["ATTNLAB_CACHE"], "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
