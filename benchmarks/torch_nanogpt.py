"""The other side of `configs/language_modelling.py:nanogpt_paper`: the same recipe in torch.

    python -P benchmarks/torch_nanogpt.py FOLDER --seeds=0,1,2          in an environment with torch; imports nothing of attnlab

The setting that the README of Karpathy's nanoGPT gives for a CPU: 4 layers, 4 heads, width 128,
context 64, batches of 12 crops at random places of train.txt, 2,000 updates by AdamW (rate 1e-3,
100 updates of warm-up, cosine to 1e-4, b2 0.99, decay 0.1 of all that has two axes, gradient norm
1), no dropout, no biases, tied embeddings, N(0, 0.02^2), the last matrix of every residual branch
divided by sqrt(2 L). Prints for each seed the loss of valid.txt in pieces of 64 characters, each
read from nothing (`valid_S X`), the mean over 20 random batches of them as in nanoGPT (`crops_S X`),
and the seconds of the updates (`seconds_S X`).

`--batches=lanes` takes the text in 12 lanes from begin to end instead, as attnlab does where texts
are joined.
"""

import argparse
import math
import os
import time
from pathlib import Path
from typing import Any

import torch

LAYERS, HEADS, WIDTH, CONTEXT, ROWS, STEPS = 4, 4, 128, 64, 12, 2000
PEAK, FLOOR, WARMUP = 1e-3, 1e-4, 100


class Norm(torch.nn.Module):
    """A layer norm without a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Any) -> Any:
        """[B,T,d] to [B,T,d]."""
        return torch.nn.functional.layer_norm(x, (WIDTH,), self.weight, None, 1e-5)


class Block(torch.nn.Module):
    """Norm in front, causal self-attention; norm in front, GELU layer four times as wide."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Norm(), Norm()
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.output = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = torch.nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Any) -> Any:
        """[B,T,d] to [B,T,d]."""
        rows, length, _ = x.shape
        parts = self.qkv(self.first(x)).split(WIDTH, dim=2)
        q, k, v = (part.view(rows, length, HEADS, -1).transpose(1, 2) for part in parts)
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(y.transpose(1, 2).reshape(x.shape))
        return x + self.down(torch.nn.functional.gelu(self.up(self.second(x))))


class Model(torch.nn.Module):
    """The language model, its matrices drawn."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(vocabulary, WIDTH)
        self.positions = torch.nn.Embedding(CONTEXT, WIDTH)
        self.blocks = torch.nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.top = Norm()
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                last = name.endswith(("output.weight", "down.weight"))
                torch.nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * LAYERS) if last else 0.02)

    def forward(self, tokens: Any, target: Any) -> Any:
        """Tokens and the next ones, [B,T] each, to the mean loss in nats."""
        x = self.embed(tokens) + self.positions.weight[: tokens.shape[1]]
        logits = self.top(self.blocks(x)) @ self.embed.weight.T
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def rate(step: int) -> float:
    """The learning rate of an update, counted from 0."""
    if step < WARMUP:
        return PEAK * (step + 1) / (WARMUP + 1)
    done = (step - WARMUP) / (STEPS - WARMUP)
    return FLOOR + 0.5 * (1 + math.cos(math.pi * done)) * (PEAK - FLOOR)


def crops(text: Any, draw: Any) -> tuple[Any, Any]:
    """A batch of pieces at random places, and the same one character later."""
    at = torch.randint(len(text) - CONTEXT, (ROWS,), generator=draw).tolist()
    return (
        torch.stack([text[i : i + CONTEXT] for i in at]),
        torch.stack([text[i + 1 : i + CONTEXT + 1] for i in at]),
    )


def lanes(text: Any, step: int) -> tuple[Any, Any]:
    """The batch of a step where the text is cut into lanes that are read in turn."""
    long = (len(text) - 1) // ROWS
    lane = torch.arange(ROWS)[:, None] * long
    at = lane + (step % (long // CONTEXT)) * CONTEXT + torch.arange(CONTEXT)
    return text[at], text[at + 1]


@torch.no_grad()
def whole(model: Any, text: Any) -> float:
    """The loss of a text in pieces that are each read from nothing."""
    count = (len(text) - 1) // CONTEXT
    x, y = (text[i : i + count * CONTEXT].view(count, CONTEXT) for i in (0, 1))
    losses = [model(a, b).item() * len(a) for a, b in zip(x.split(64), y.split(64), strict=True)]
    return sum(losses) / count


def trained(train: Any, vocabulary: int, seed: int, batches: str) -> tuple[Any, float]:
    """A model after all updates, and their seconds."""
    torch.manual_seed(seed)
    draw = torch.Generator().manual_seed(seed + 1337)
    model: Any = Model(vocabulary)
    groups = [
        {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=PEAK, betas=(0.9, 0.99), fused=True)
    begin = time.perf_counter()
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        loss = model(*(crops(train, draw) if batches == "crops" else lanes(train, step)))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return model, time.perf_counter() - begin


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="with train.txt and valid.txt")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--batches", choices=("crops", "lanes"), default="crops")
    chosen = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    texts = [(chosen.folder / f"{name}.txt").read_text("utf-8") for name in ("train", "valid")]
    signs = {sign: number for number, sign in enumerate(sorted(set("".join(texts))))}
    train, valid = (torch.tensor([signs[sign] for sign in text]) for text in texts)
    for seed in map(int, chosen.seeds.split(",")):
        model, seconds = trained(train, len(signs), seed, chosen.batches)
        draw = torch.Generator().manual_seed(0)
        with torch.no_grad():
            mean = sum(model(*crops(valid, draw)).item() for _ in range(20)) / 20
        print(f"valid_{seed} {whole(model, valid):.6g}")
        print(f"crops_{seed} {mean:.6g}")
        print(f"seconds_{seed} {seconds:.6g}", flush=True)


if __name__ == "__main__":
    main()
