"""How much memory a run takes: its state, by shapes alone, and its compiled step."""

from typing import Any

import jax

from attnlab.training.step import TrainState


def count(tree: Any) -> int:
    """Returns how many numbers the arrays of a tree have together."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def megabytes(size: float) -> str:
    """Writes a number of bytes: "1,059.0 MB", "0.025 MB"."""
    return f"{size / 1e6:,.{1 if size >= 1e6 else 3}f} MB"


def state_sizes(state: TrainState) -> dict[str, str]:
    """Returns the memory that a training state takes, as text such as "1.5 MB", by the names of its
    parts: "parameters", "optimizer" and, where there is one, "moving average".
    """
    parts = {"parameters": state.params, "optimizer": state.opt_state, "moving average": state.ema}
    return {
        name: megabytes(sum(leaf.size * leaf.dtype.itemsize for leaf in leaves))
        for name, part in parts.items()
        if (leaves := jax.tree.leaves(part))
    }


def program_sizes(program: object) -> dict[str, str]:
    """Returns the memory that a compiled program takes on one device, as text such as "1.5 MB":
    "activations" (what it computes on its way) and "peak" (with state and batch); {} if it is not
    compiled or does not say.
    """
    stats = program.memory_analysis() if isinstance(program, jax.stages.Compiled) else None
    if stats is None:
        return {}
    lasting = stats.argument_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes
    space = stats.temp_size_in_bytes
    return {"activations": megabytes(space), "peak": megabytes(lasting + space)}
