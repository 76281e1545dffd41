"""Golden numbers of models of images, as `golden.py` has them of language models; it runs in the same
way:

    python -m tests.weights.golden_images write [NAME ...]     golden/images/NAME.json and NAME.npz anew
    python -m tests.weights.golden_images check FOLDER         is each FOLDER/NAME loaded whole, and is the same computed?

ViT is that of `transformers`. ResNet is written here, block for block, with the names of torchvision,
which has no config of its own; its folders have that of timm. NAME.npz has images [2,H,W,C], logits
[2,C], labels, loss (mean cross-entropy), grad_norm and grad_along as in `golden.py`. Names of tensors
are those of files.
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

from tests.weights import golden_files, rule

LARGE = {"resnet18": (2, 2, 2, 2), "resnet50": (3, 4, 6, 3)}
SIDE, WIDTH = (33, 40), 4  # of images for ResNets, and of their first stage
_OURS = (  # names in memory, and in files of transformers
    (r"vit\.layers\.", "vit.encoder.layer."),
    (r"attention\.(q|k|v)_proj", r"attention.attention.\1"),
    ("attention.o_proj", "attention.output.dense"),
    ("mlp.fc1", "intermediate.dense"),
    ("mlp.fc2", "output.dense"),
)
_WHOLE = {"q": "query", "k": "key", "v": "value"}


class Block(nn.Module):
    """A residual block, the stride in its 3 x 3 convolution ("v1.5")."""

    def __init__(self, inner: int, channels: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        last = inner * 4 if bottleneck else inner
        widths = [channels, inner, inner, last] if bottleneck else [channels, inner, inner]
        sizes = [(1, 1), (3, stride), (1, 1)] if bottleneck else [(3, stride), (3, 1)]
        self.count = len(sizes)
        for number, (kernel, step) in enumerate(sizes):
            one = nn.Conv2d(
                widths[number], widths[number + 1], kernel, step, kernel // 2, bias=False
            )
            setattr(self, f"conv{number + 1}", one)
            setattr(self, f"bn{number + 1}", nn.BatchNorm2d(widths[number + 1]))
        if stride != 1 or channels != last:
            self.downsample: Any = nn.Sequential(
                nn.Conv2d(channels, last, 1, stride, bias=False), nn.BatchNorm2d(last)
            )
        else:
            self.downsample = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """relu(branch + shortcut)."""
        y = x
        for number in range(1, self.count + 1):
            y = getattr(self, f"bn{number}")(getattr(self, f"conv{number}")(y))
            y = torch.relu(y) if number < self.count else y
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """The network of He et al. 2016 for ImageNet, with the names of torchvision."""

    def __init__(self, name: str, classes: int) -> None:
        super().__init__()
        bottleneck, wider = (True, 4) if name == "resnet50" else (False, 1)
        self.conv1 = nn.Conv2d(3, WIDTH, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTH)
        channels = WIDTH
        for stage, blocks in enumerate(LARGE[name]):
            row = []
            for number in range(blocks):
                stride = 2 if stage and not number else 1
                row.append(Block(WIDTH * 2**stage, channels, stride, bottleneck))
                channels = WIDTH * 2**stage * wider
            setattr(self, f"layer{stage + 1}", nn.Sequential(*row))
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images [B,C,H,W] to logits."""
        x = torch.relu(self.bn1(self.conv1(x)))
        x = nn.functional.max_pool2d(x, 3, 2, 1)
        for stage in range(1, 5):
            x = getattr(self, f"layer{stage}")(x)
        return self.fc(x.mean(dim=(2, 3)))


def filed(key: str) -> str:
    """The name that a tensor in memory has in a file."""
    for mine, theirs in _OURS:
        key = re.sub(mine, theirs, key)
    return re.sub(
        r"attention\.attention\.([qkv])\.", lambda at: f"attention.attention.{_WHOLE[at[1]]}.", key
    )


def built(golden: dict[str, Any]) -> Any:
    """The model of a NAME.json."""
    if "architecture" in golden["config"]:
        return ResNet(golden["config"]["architecture"], golden["config"]["num_classes"])
    return golden_files.built(golden)


def loaded(folder: Path) -> Any:
    """The model of a folder; nothing may be left over."""
    config = json.loads((folder / "config.json").read_text())
    if "architecture" not in config:
        return golden_files.loaded(folder)
    model = built({"config": config})
    model.load_state_dict(load_file(folder / "model.safetensors"), strict=True)
    return model


def tensors(model: Any) -> dict[str, torch.Tensor]:
    """Parameters and running averages, by the names of files."""
    averages = {key: array for key, array in model.named_buffers() if "running" in key}
    state = {**dict(model.named_parameters()), **averages}
    return {filed(key): tensor for key, tensor in state.items()}


def computed(model: Any, config: dict[str, Any]) -> dict[str, np.ndarray]:
    """The numbers of NAME.npz, without those of gradients."""
    size = config.get("image_size", SIDE)
    height, width = size if isinstance(size, list | tuple) else (size, size)
    images = rule.uniform("images", (2, height, width, config.get("num_channels", 3)))
    read = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
    logits = model(read)
    logits = getattr(logits, "logits", logits)
    labels = torch.tensor([1, 0])
    loss = nn.functional.cross_entropy(logits, labels)
    loss.backward()
    return {
        "images": images,
        "logits": logits.detach().numpy(),
        "labels": labels.numpy(),
        "loss": np.float64(loss.item()),
    }


if __name__ == "__main__":
    golden_files.main("images", computed, tensors, built, loaded)
