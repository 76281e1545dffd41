"""Golden numbers of models of images, as `golden.py` has them of language models; it runs in the same
way:

    python -m tests.weights.golden_images write [NAME ...]     golden/images/NAME.json and NAME.npz anew
    python -m tests.weights.golden_images check FOLDER         is each FOLDER/NAME loaded whole, and is the same computed?

ViT is that of `transformers`. ResNet is written here, block for block, with the names of torchvision,
which has no config of its own; its folders have that of timm. NAME.npz has images [2,H,W,C], logits
[2,C], labels, loss (mean cross-entropy), grad_norm and grad_along as in `golden.py`. Names of tensors
are those of files.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import load_file
from torch import nn

from tests.weights import golden_files, rule

torch.set_num_threads(1)
GOLDEN = Path(__file__).parent / "golden" / "images"
VIT: dict[str, Any] = {
    "hidden_size": 24,
    "intermediate_size": 35,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "image_size": [6, 9],
    "patch_size": 3,
    "num_labels": 5,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "vit": VIT,
    "vit_odd": {
        **VIT,
        **{"hidden_act": "gelu_new", "layer_norm_eps": 1e-3, "num_attention_heads": 2},
        **{"image_size": 5, "patch_size": 1, "num_channels": 1, "num_hidden_layers": 2},
    },
    "vit_unbiased": {**VIT, "qkv_bias": False, "hidden_act": "relu", "num_labels": 2},
    "resnet18": {"architecture": "resnet18", "num_classes": 5},
    "resnet50": {"architecture": "resnet50", "num_classes": 3},
}
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


def bare(name: str) -> tuple[Any, dict[str, Any]]:
    """The model of a name with whatever parameters, and its config."""
    settings = CONFIGS[name]
    if "architecture" in settings:
        return ResNet(name, settings["num_classes"]), settings
    config = transformers.ViTConfig(**settings)
    model = transformers.ViTForImageClassification._from_config(config, attn_implementation="eager")
    return model, golden_files.config_of(model)


def tensors(model: Any) -> dict[str, torch.Tensor]:
    """Parameters and running averages, by the names of files."""
    state = dict(model.named_parameters()) | {
        key: one for key, one in model.named_buffers() if "running" in key
    }
    return {filed(key): one for key, one in state.items()}


def built(name: str) -> Any:
    """The model of a name, float32, no dropout; every tensor by the rule."""
    model, _ = bare(name)
    golden_files.drawn(tensors(model.float().eval()).items())
    return model


def computed(name: str, model: Any) -> dict[str, np.ndarray]:
    """The numbers of NAME.npz."""
    settings = CONFIGS[name]
    size = settings.get("image_size", SIDE)
    height, width = size if isinstance(size, list | tuple) else (size, size)
    images = rule.uniform("images", (2, height, width, settings.get("num_channels", 3)))
    model.zero_grad()
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
        **golden_files.slopes(tensors(model).items()),
    }


def write(name: str) -> None:
    """NAME.json and NAME.npz."""
    model, (_, config) = built(name), bare(name)
    shapes = {key: list(tensor.shape) for key, tensor in tensors(model).items()}
    golden_files.store(GOLDEN, name, config, shapes, computed(name, model))


def check(folder: Path) -> bool:
    """Is a folder loaded whole, and is what was computed before computed from it?"""
    name = folder.name
    if "architecture" in CONFIGS[name]:
        model, _ = bare(name)
        model.load_state_dict(load_file(folder / "model.safetensors"), strict=True)
        left: dict[str, Any] = {}
    else:
        model, left = golden_files.loaded(transformers.ViTForImageClassification, folder)
    found, golden = computed(name, model.eval()), computed(name, built(name))
    return golden_files.same(name, left, found, golden)


if __name__ == "__main__":
    golden_files.main(CONFIGS, write, check)
