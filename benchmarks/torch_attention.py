"""The other side of `benchmarks.kernels --versus`: torch's scaled_dot_product_attention, forward
and backward, at the same shapes.

    python -P benchmarks/torch_attention.py          in an environment with torch; imports nothing of attnlab

Prints the median seconds of each shape as lines `layer_B_T_H_D X` (projections of queries, keys,
values and output around it, gradients of input and weights) and `core_B_T_H_D X` (the attention
alone), eager, with torch's own number of threads.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

SHAPES = ((32, 64, 4, 16), (16, 128, 4, 32), (8, 256, 4, 64), (1, 2048, 8, 64))  # as in kernels.py


def main() -> None:
    """Measure and print."""
    attention = torch.nn.functional.scaled_dot_product_attention
    for batch, length, heads, size in SHAPES:
        width = heads * size
        x = torch.randn(batch, length, width, requires_grad=True)
        kernels = [(torch.randn(width, width) / width**0.5).requires_grad_() for _ in range(4)]
        q, k, v = (torch.randn(batch, heads, length, size, requires_grad=True) for _ in range(3))

        def layer(
            x: Any = x, kernels: Any = kernels, split: Any = (batch, length, heads, size)
        ) -> None:
            q, k, v = (
                torch.nn.functional.linear(x, w).view(split).transpose(1, 2) for w in kernels[:3]
            )
            y = torch.nn.functional.linear(
                attention(q, k, v).transpose(1, 2).reshape(x.shape), kernels[3]
            )
            torch.autograd.grad((y * x.detach()).sum(), [x, *kernels])

        def core(q: Any = q, k: Any = k, v: Any = v) -> None:
            torch.autograd.grad((attention(q, k, v) * v.detach()).sum(), [q, k, v])

        for name, function in (("layer", layer), ("core", core)):
            print(f"{name}_{batch}_{length}_{heads}_{size} {seconds(function):.6g}", flush=True)


def seconds(function: Callable[[], None]) -> float:
    """The median of some runs after two that do not count: about a second of them, at least
    five.
    """
    function()
    function()
    taken: list[float] = []
    while len(taken) < 5 or sum(taken) < 1.0:
        start = time.perf_counter()
        function()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


if __name__ == "__main__":
    main()
