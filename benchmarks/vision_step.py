"""How fast are a residual network and a Vision Transformer trained here, beside the same in torch?

    taskset -c 0,1 python -m benchmarks.vision_step --rounds=5 \\
        --versus="PYTHON_WITH_TORCH -P benchmarks/torch_vision.py"

One training step on 128 images of 32 x 32: ResNet-20 of width 16 (batch norm with running averages,
SGD with momentum) and a ViT of 4 layers (patches of 4, width 64, 4 heads, GELU layers of 256,
AdamW). Float32, channels last on both sides. A row of the table for each: the least milliseconds of a
step over all rounds, which alternate. Both sides use the cores that they may run on.
"""

import argparse
import sys
from typing import Any

from attnlab.progress import table
from attnlab.training.run import start_jax
from benchmarks import rounds
from benchmarks.transformer_step import least

ROWS, SIDE, CLASSES = 128, 32, 10  # as in torch_vision.py
SYSTEMS: dict[str, dict[str, Any]] = {
    "resnet": {"name": "resnet", "depth": 20, "width": 16, "shortcut": "project"},
    "vit": {
        "name": "vit",
        **{"patch": 4, "width": 64, "layers": 4, "hidden": 256, "dropout": 0.0},
        "positions": {"name": "learned", "length": 65},
        "attention": {"name": "multihead", "heads": 4, "bias": True},
    },
}


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--versus", metavar="COMMAND", help="prints lines 'resnet X' and 'vit X'")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side")
    parser.add_argument("--figures", action="store_true", help="print ours as lines 'name value'")
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args()
    if chosen.figures:
        for name in SYSTEMS:
            print(f"{name} {least(*training(name)):.6g}", flush=True)
        return
    about = rounds.machine()
    commands = {"attnlab": f"{sys.executable} -m benchmarks.vision_step --figures"}
    if chosen.versus:
        commands["torch"] = chosen.versus
    figures = rounds.alternate(commands, "vit", chosen.rounds)
    rows = []
    for name in SYSTEMS:
        ours = min(figures["attnlab"][name])
        theirs = min(figures.get("torch", {}).get(name, [float("nan")]))
        rows.append((name, round(1e3 * ours, 1), round(1e3 * theirs, 1), round(theirs / ours, 2)))
    title = f"a training step; {chosen.rounds} rounds, {about['cores']} cores"
    columns = ("system", "ms", "torch, ms", "times the speed")
    table(f"{title}, load before {about['load_before']}", columns, rows)
    rounds.save(chosen.json, {"figures": figures, **about})


def training(name: str) -> tuple[Any, Any, Any]:
    """The compiled training step, its first state and a batch."""
    start_jax()
    import jax
    import jax.numpy as jnp
    import optax

    from attnlab.config.registry import made
    from attnlab.layers.norms import STATISTICS
    from attnlab.systems import SYSTEMS as TABLE
    from attnlab.training.step import first_state, make_step

    system = made(TABLE, SYSTEMS[name])(classes=CLASSES)
    key = jax.random.key(0)
    images = jax.random.normal(key, (ROWS, SIDE, SIDE, 3))
    batch = {"image": images, "label": jax.random.randint(key, (ROWS,), 0, CLASSES)}

    def loss(params: Any, batch: Any, key: Any) -> Any:
        logits, seen = system.apply({"params": params}, batch["image"], mutable=[STATISTICS])
        each = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
        return each.sum(), {"statistics": seen[STATISTICS]} if STATISTICS in seen else {}

    params = jax.jit(system.init)(key, images)["params"]
    optimizer = optax.sgd(0.1, momentum=0.9) if name == "resnet" else optax.adamw(1e-3)
    state = first_state(params, optimizer, 0.0)
    step = jax.jit(make_step(loss, lambda _: jnp.float32(ROWS), optimizer), donate_argnums=0)
    return step, state, batch


if __name__ == "__main__":
    rounds.main(main)
