"""The other side of `benchmarks.vision_step`: the same training steps by torch.

    taskset -c 0,1 python -P benchmarks/torch_vision.py               in an environment with torch; imports nothing of attnlab

Prints the least seconds of a step as lines `resnet X` and `vit X`. Images and kernels channels last,
scaled_dot_product_attention, one product for queries, keys and values, optimizers fused where torch
has them, as many threads as there are cores to run on; on an NVIDIA GPU if torch sees one.
"""

import os
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

ROWS, SIDE, CLASSES = 128, 32, 10  # as in vision_step.py
WIDTH, LAYERS, HEADS, PATCH = 64, 4, 4, 4


class Residual(nn.Module):
    """Two convolutions with batch norm, and a shortcut, projected where shapes differ."""

    def __init__(self, before: int, features: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(before, features, 3, stride, 1, bias=False),
            nn.BatchNorm2d(features),
            nn.ReLU(),
            nn.Conv2d(features, features, 3, 1, 1, bias=False),
            nn.BatchNorm2d(features),
        )
        self.short: nn.Module = nn.Identity()
        if before != features:
            projection = nn.Conv2d(before, features, 1, stride, bias=False)
            self.short = nn.Sequential(projection, nn.BatchNorm2d(features))

    def forward(self, x: Any) -> Any:
        """[B,C,H,W] to [B,C',H/s,W/s]."""
        return torch.relu(self.branch(x) + self.short(x))


def resnet() -> nn.Module:
    """ResNet-20 of width 16 for images of 32 x 32."""
    blocks: list[nn.Module] = []
    before = 16
    for stage, features in enumerate((16, 32, 64)):
        for number in range(3):
            blocks.append(Residual(before, features, 2 if stage and not number else 1))
            before = features
    stem = (nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    top = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES))
    return nn.Sequential(*stem, *blocks, *top)


class Layer(nn.Module):
    """Norm in front, self-attention; norm in front, GELU layer four times as wide."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(2)])
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        """[B,T,d] to [B,T,d]."""
        rows, length, width = x.shape
        parts = self.qkv(self.norms[0](x)).split(width, dim=2)
        q, k, v = (part.view(rows, length, HEADS, -1).transpose(1, 2) for part in parts)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.output(y.transpose(1, 2).reshape(x.shape))
        return x + self.down(nn.functional.gelu(self.up(self.norms[1](x))))


class ViT(nn.Module):
    """A class token, learned positions, patches by a strided convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.first = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (SIDE // PATCH) ** 2 + 1, WIDTH))
        self.layers = nn.Sequential(*(Layer() for _ in range(LAYERS)))
        self.top, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, images: Any) -> Any:
        """[B,3,H,W] to logits [B,C]."""
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], dim=1) + self.positions
        return self.out(self.top(self.layers(x))[:, 0])


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    print(f"resnet {seconds(resnet(), lambda p: torch.optim.SGD(p, 0.1, 0.9, fused=True)):.6g}")
    print(f"vit {seconds(ViT(), lambda p: torch.optim.AdamW(p, 1e-3, fused=True)):.6g}", flush=True)


def seconds(model: nn.Module, made: Callable[[Any], Any]) -> float:
    """The least time of a step of some, after three that do not count."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = model.to(device, memory_format=torch.channels_last)
    optimizer = made(model.parameters())
    images = torch.randn(ROWS, 3, SIDE, SIDE).to(device, memory_format=torch.channels_last)
    labels = torch.randint(CLASSES, (ROWS,)).to(device)
    taken: list[float] = []
    while len(taken) < 8 or sum(taken[3:]) < 2.0:
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - start)
    return min(taken[3:])


if __name__ == "__main__":
    main()
