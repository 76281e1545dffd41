"""The other side of `benchmarks.transformer_step`: the same training steps by torch.

    taskset -c 0,1 python -P benchmarks/torch_transformer.py          in an environment with torch; imports nothing of attnlab

Prints the least seconds of a step of each shape as lines `eager_L_d_T_B X` and, where torch.compile
works here, `compiled_L_d_T_B X`. scaled_dot_product_attention, one product for queries, keys and
values, AdamW fused where torch has it, as many threads as there are cores to run on.
"""

import os
import sys
import time
from typing import Any

import torch

SHAPES = ((2, 64, 64, 32), (2, 128, 128, 16), (4, 256, 256, 8), (6, 384, 256, 8))
HEADS, VOCABULARY = 4, 256  # as in transformer_step.py


class Block(torch.nn.Module):
    """Norm in front, causal self-attention; norm in front, GELU layer four times as wide."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(width) for _ in range(2)])
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.output = torch.nn.Linear(width, width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        """[B,T,d] to [B,T,d]."""
        rows, length, width = x.shape
        parts = self.qkv(self.norms[0](x)).split(width, dim=2)
        q, k, v = (part.view(rows, length, HEADS, -1).transpose(1, 2) for part in parts)
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(y.transpose(1, 2).reshape(x.shape))
        inner = torch.nn.functional.gelu(self.up(self.norms[1](x)), approximate="tanh")
        return x + self.down(inner)


class Model(torch.nn.Module):
    """GPT-2's form: learned positions, logits by the embedding."""

    def __init__(self, layers: int, width: int, length: int) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(VOCABULARY, width)
        self.positions = torch.nn.Embedding(length, width)
        self.blocks = torch.nn.Sequential(*(Block(width) for _ in range(layers)))
        self.top = torch.nn.LayerNorm(width)
        torch.nn.init.normal_(self.embed.weight, std=0.02)

    def forward(self, tokens: Any) -> Any:
        """[B,T] to logits [B,T,V]."""
        x = self.embed(tokens) + self.positions.weight[: tokens.shape[1]]
        return self.top(self.blocks(x)) @ self.embed.weight.T


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    for shape in SHAPES:
        name = "_".join(map(str, shape))
        for kind in ("eager", "compiled"):
            try:
                print(f"{kind}_{name} {seconds(shape, kind == 'compiled'):.6g}", flush=True)
            except Exception as error:  # torch.compile needs a compiler of C++
                if kind == "eager":
                    raise
                print(f"note: torch.compile: {str(error).splitlines()[0]}", file=sys.stderr)


def seconds(shape: tuple[int, ...], compiled: bool) -> float:
    """The least time of a step of some, after three that do not count."""
    layers, width, length, rows = shape
    model: Any = Model(layers, width, length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    run = torch.compile(model) if compiled else model
    text = torch.randint(VOCABULARY, (rows, length + 1))
    taken: list[float] = []
    while len(taken) < 8 or sum(taken[3:]) < 2.0:
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        logits = run(text[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        taken.append(time.perf_counter() - start)
    return min(taken[3:])


if __name__ == "__main__":
    main()
