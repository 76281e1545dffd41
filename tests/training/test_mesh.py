"""Arrays lie on a mesh as rules on their paths say, and a step on divided parameters is that of one
device, with no more communication than gathering each of them.
"""

import dataclasses
import math
import random
import re
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from attnlab import config as configs
from attnlab.decoding.rows import OnRows
from attnlab.errors import UserError
from attnlab.tasks import TASKS
from attnlab.training import mesh
from attnlab.training.checkpoints import Checkpoints
from attnlab.training.journal import shapes_of
from attnlab.training.mesh import Layout
from attnlab.training.parallel import MeshBackend, PmapBackend, backend
from attnlab.training.settings import Parallel
from attnlab.training.updates import Updates
from tests.sampling import rounds
from tests.training.kill_resume import command, every

DECODER = [
    *("data.examples=64", "data.valid=16", "data.test=16", "batch.size=8", "seed=3"),
    *("system.width=32", "system.layers=1", "system.hidden=64", "training.clip=0.5"),
    *("training.steps=6", "schedule.warmup=1", "optimizer=sgd", "system.dropout=0.1"),
]
LM, SMALL = "language_modelling:decoder", ["optimizer=sgd", "schedule.peak=0.05"]
COLLECTIVE = re.compile(
    r"= \(?\w+\[([\d,]*)\].*? (all-gather|all-reduce|all-to-all)(?:-start)?\(.*?op_name=\"(.*?)\""
)


def rules_first(path: str, shape: tuple[int, ...]) -> tuple[str | None, ...] | None:
    """Divides the first dimension of kernels."""
    return ("fsdp",) if path.endswith("kernel") else None


def layout(**settings: Any) -> Layout:
    return Layout.of(Parallel(**settings), jax.devices())


@pytest.mark.parametrize(
    ("shape", "rules", "expected"),
    [
        ((128, 256), (), (None, "fsdp")),
        ((256, 256), (), (None, "fsdp")),
        ((1023, 64), (), (None, "fsdp")),
        ((1023, 63), (), ()),  # no dimension that 4 divides
        ((16383,), (), ()),  # small
        ((), (), ()),
        ((64, 256), ("kernel=fsdp@0",), ("fsdp",)),
        ((4, 4), ("kernel=fsdp@-1",), (None, "fsdp")),
        ((64, 6), ("kernel=fsdp@-1",), ()),  # does not fit, and small
        ((512, 64), (f"{__name__}:rules_first",), ("fsdp",)),
        ((128, 512), ("bias=fsdp@0", "kernel$=fsdp@0"), ("fsdp",)),
    ],
)
def test_rules_say_where_an_array_lies(
    shape: tuple[int, ...], rules: tuple[str, ...], expected: tuple[str | None, ...]
) -> None:
    assert layout(fsdp=4, rules=rules).axes("params/layer_0/kernel", shape) == expected
    assert layout(fsdp=4, rules=rules).axes("remembered", shape) == ("rows",)  # an array alone


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"fsdp": 3}, "fsdp=3 do not multiply to 4 devices; fsdp may be 1, 2, 4"),
        ({"rules": ("kernel=fsdp@0",)}, "rules says how fsdp divides arrays; set parallel.fsdp"),
        ({"tensor": 2}, "config.parallel.tensor=2: not yet"),
        ({"data": 0}, "config.parallel.data=0: expected -1"),
        ({"fsdp": 2, "backend": "pmap"}, "fsdp=2 divides the state, and parallel.backend=pmap"),
        ({"fsdp": 2, "rules": ("kernel",)}, "'kernel' is neither 'REGEX=AXIS@DIMENSION'"),
        ({"fsdp": 2, "rules": ("kernel=fdsp@0",)}, "axis 'fdsp' .*did you mean 'fsdp'"),
        ({"fsdp": 2, "rules": ("(=fsdp@0",)}, "is no regular expression"),
    ],
)
def test_what_does_not_fit_is_one_line(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words) as error:
        layout(**settings)
    assert "\n" not in str(error.value)


def test_rules_are_compared_with_the_arrays() -> None:
    state = {"params": {"kernel": np.zeros((6, 3))}}
    for rule, words in (
        ("kernle=fsdp@0", "'kernle=fsdp@0' is of no array; paths end in kernel"),
        ("kernel=fsdp@1", r"params/kernel has the shape \[6, 3\], which .* does not divide"),
    ):
        with pytest.raises(UserError, match=words):
            layout(fsdp=2, rules=(rule,)).check_rules(state)


def test_auto_is_pmap_while_the_state_is_copied() -> None:
    assert [type(backend(Parallel(fsdp=n))) for n in (1, 2)] == [PmapBackend, MeshBackend]


TREE = {
    "kernel": np.random.default_rng(0).normal(size=(64, 512)).astype(np.float32),
    "half": np.asarray(jax.numpy.arange(2**15, dtype="bfloat16").reshape(4, -1)),
    "bias": np.float32([0.0, -0.0, np.inf]),
    "remembered": np.arange(16) % 3 == 0,
}
SIZES = [(1, 4), (1, 2), (2, 2)]
MESHES = [Layout.of(Parallel(data=a, fsdp=b), jax.devices()[: a * b]) for a, b in SIZES]


def lying(layout: Layout | None, tree: Any) -> Any:
    """TREE, or its shapes, as it lies on a mesh."""
    move = mesh.place if tree is TREE else lambda leaf, at: leaf.update(sharding=at)
    return tree if layout is None else jax.tree.map(move, tree, layout.shardings(tree))


@pytest.mark.parametrize("reads", [None, *MESHES])
@pytest.mark.parametrize("writes", [None, *MESHES])
def test_any_devices_read_what_others_wrote(writes: Any, reads: Any, tmp_path: Path) -> None:
    like = lying(reads, jax.eval_shape(lambda: TREE))
    with closing(Checkpoints(tmp_path, 1)) as checkpoints:
        checkpoints.save(7, lying(writes, TREE), {})
        restored = checkpoints.restore(like)
    for name, leaf in restored.tree.items():
        assert leaf.dtype == TREE[name].dtype and np.asarray(leaf).tobytes() == TREE[name].tobytes()
        assert not mesh.on_mesh(like[name]) or leaf.sharding == like[name].sharding


def test_every_damage_of_a_shard_is_noticed(tmp_path: Path) -> None:
    """A flipped bit, a lost half or the loss of a file with parts of arrays, one at a time; what is
    not noticed is in bytes that nobody reads.
    """
    arrays, like = (lying(MESHES[0], tree) for tree in (TREE, jax.eval_shape(lambda: TREE)))
    with closing(Checkpoints(tmp_path / "whole", 2)) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, arrays, {})
    rng, warnings, harmless = random.Random(0), list[str](), 0
    for number in range(rounds(4, 60)):
        folder = Path(shutil.copytree(tmp_path / "whole", tmp_path / str(number)))
        parts = [file for file in (folder / "2/state").rglob("d/*") if file.stat().st_size > 2**12]
        file, content = (actual := rng.choice(sorted(parts))), bytearray(actual.read_bytes())
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        file.write_bytes(content[: (0, len(content) // 2, len(content))[number % 3]])
        with closing(Checkpoints(folder, 2, warn=warnings.append)) as checkpoints:
            restored = checkpoints.restore(like)
        assert restored is not None and (folder / "damaged-2").is_dir() == (restored.step == 1)
        harmless += restored.step == 2
        jax.tree.map(np.testing.assert_array_equal, restored.tree, TREE)
    assert len(warnings) + harmless == rounds(4, 60) and harmless <= rounds(4, 60) // 10


@pytest.mark.parametrize(("rows", "of_a_device"), [(8, 2), (6, 6)])
def test_rows_are_dealt_if_the_devices_divide_them(rows: int, of_a_device: int) -> None:
    divided = {"w": lying(MESHES[0], TREE)["kernel"]}
    batch = {"x": np.random.default_rng(1).normal(size=(rows, 64)), "scale": np.float32(2)}
    program = OnRows(lambda params, batch: batch["scale"] * batch["x"] @ params["w"])
    result = program(divided, batch)
    assert result.sharding.shard_shape(result.shape) == (of_a_device, 512)
    np.testing.assert_allclose(result, program({"w": TREE["kernel"]}, batch), atol=1e-4)


def after_steps(
    parallel: Parallel, name: str, settings: list[str]
) -> tuple[list[float], Any, Any, Any]:
    """Losses of five steps, the parameters after them, the program, and the first parameters."""
    _, file, _, *given = command(name, "mesh", 1, Path())
    flags = [flag.removeprefix("--config.") for flag in given] if settings is SMALL else DECODER
    config = configs.load(file.removeprefix("--config="), [*flags, *settings])
    task = TASKS.resolve(config.task).load(config, None, ("train", "valid"))
    devices = backend(parallel)
    layout = devices.layout if devices.count > 1 else None
    updates = dataclasses.replace(Updates.of(config), layout=layout)
    state = devices.place(updates.first_states(task)(config.seed))
    born = jax.tree.map(jax.numpy.copy, state.params)
    step, batches, losses = updates.step(task), task.batches(4), []
    programs: dict[Any, Any] = {}
    for number in range(5):
        fed, shapes = devices.feed(batches(number)), shapes_of(batches(number))
        program = programs[shapes] = programs.get(shapes) or devices.compile(step, state, fed)
        state, sums = program(state, fed)
        losses.append(float(devices.fetch(sums)["loss"]))
    scores = task.evaluate(updates.trained.merge(devices.arrays(state.averaged)), "valid")
    return [*losses, scores["loss"]], devices.fetch(state.params), program, born


@pytest.mark.parametrize(
    ("name", "axes", "settings"),
    [
        (LM, {"fsdp": 4}, []),
        (LM, {"data": 2, "fsdp": 2}, ["training.accumulate=2", "training.ema=0.9"]),
        (LM, {"fsdp": 4}, ["system.scan=true", "system.layers=3", "system.dropout=0"]),
        pytest.param(LM, {"fsdp": 2, "devices": 2}, ["lora.rank=2"], marks=pytest.mark.full),
        pytest.param(LM, {"fsdp": 4}, ["training.compute=bfloat16"], marks=pytest.mark.full),
        *(pytest.param(name, {"fsdp": 4}, SMALL, marks=pytest.mark.full) for name in every()),
    ],
)
def test_divided_parameters_are_trained_as_on_one_device(
    name: str, axes: dict[str, int], settings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mesh, "LEAST", 256)
    one, params, _, first = after_steps(Parallel(backend="mesh", devices=1), name, settings)
    losses, actual, program, born = after_steps(Parallel(**axes), name, settings)
    close = 2e-2 if "bfloat16" in str(settings) else 1e-5
    np.testing.assert_allclose(losses, one, rtol=close)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=close), actual, params)
    jax.tree.map(np.testing.assert_array_equal, born, first)
    divided = sum(not leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(born))
    assert divided > 0
    if settings not in (SMALL, ["lora.rank=2"]):
        scans, actual = "scan" in str(settings), COLLECTIVE.findall(program.as_text())
        gathers = [path for _, kind, path in actual if kind == "all-gather"]
        assert len(gathers) == divided - scans * 2 * 6  # the loop has those of one of 3 layers
        assert scans == any("Decoder" in path and "while/body" in path for path in gathers)
        sizes = [math.prod(map(int, shape.split(","))) for shape, _, _ in actual if shape]
        assert max(sizes) < 8 * 41 * 24  # rows x tokens x the smaller of width and vocabulary
        assert "all-to-all" not in {kind for _, kind, _ in actual}
