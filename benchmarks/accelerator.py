"""What does an accelerator make of attnlab: is it right there, and how fast?

    python -m benchmarks.accelerator --wheels        on a machine with a network
    python -m benchmarks.accelerator                 on the accelerator, without one
    python -m benchmarks.accelerator --tiny          all parts on any machine, small

Made for one H100 and at most eight minutes (`--seconds`: no part begins later). After each row
`accelerator.md` and `accelerator.json` in `--out` have the tables so far, so that a run that is cut
leaves what it has measured. A part that fails leaves its error there. The parts:

    precision   a float32 product against float64 for each `training.precision`: whether TF32 was on
    attention   every kernel against plain in float32, causal: the largest error of values and of
                gradients as a share of the largest number, and ms, forward and backward
    gpt2        GPT-2 with 124 million parameters, bfloat16, T = 1,024: tokens a second, the share
                of the peak, (6 N + 12 L d T) tokens/s / peak (`--peak` in TFLOP/s), the most
                memory, and host wait: 1 - a step on one resident batch / a step of the loop
    mixers      a decoder of two such layers with each mixer, bfloat16: a step and tokens a second
    decoding    GPT-2 by greedy search with a cache: tokens a second for one prompt and for many
    stacked     32 seeds of the quickstart's multihead as one program, and one after another
"""

import argparse
import functools
import importlib.metadata
import io
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attnlab import config as configs
from attnlab.errors import UserError
from attnlab.experiments.define import load_experiment, text
from attnlab.progress import Progress
from attnlab.records.files import timestamp, write_atomic
from attnlab.records.manifest import code_revision
from attnlab.records.stream import read_records
from attnlab.training.run import start_jax
from benchmarks import rounds, stacking
from benchmarks.kernels import attention, turns

PEAKS = {"H100": 989, "H200": 989, "A100": 312, "TPU v4": 275, "TPU v5 lite": 197, "TPU v5": 459}
"""TFLOP/s of bfloat16 products without sparsity, by the vendors' data sheets (SXM cards of
NVIDIA's); the first name that a kind of device contains."""
MIXERS = ("multihead", "gated_delta_net", "mamba", "mlstm", "rwkv7")
Rows = Iterator[tuple[Any, ...]]


class Sizes:
    """What is measured: of GPT-2 and the like, or `tiny`."""

    def __init__(self, tiny: bool, rows: int) -> None:
        self.rows = 2 if tiny else rows
        self.length = 32 if tiny else 1024
        self.width, self.heads, self.layers = (32, 2, 1) if tiny else (768, 12, 12)
        self.words, self.vocabulary = (50, 100) if tiny else (2000, 50_257)  # drawn, all
        self.product = 64 if tiny else 4096
        self.looks = ((1, 32, 2, 8),) if tiny else ((8, 1024, 12, 64), (2, 4096, 12, 64))
        self.mixer_layers = 1 if tiny else 2
        self.steps, self.logged = (6, 2) if tiny else (60, 10)
        self.prompts, self.new = ((1, 2), 4) if tiny else ((1, 32), 128)
        self.seeds, self.alone, self.stacked_steps = (2, 1, 3) if tiny else (32, 4, 100)
        self.enough = 0.0 if tiny else 1.0  # seconds of measuring a kernel


def main() -> None:
    """Measure the parts asked for; `UserError` where there is no accelerator."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("accelerator"), help="of the tables")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seconds", type=float, default=480.0, help="no part begins later")
    parser.add_argument("--rows", type=int, default=16, help="of GPT-2's batch")
    parser.add_argument("--peak", type=float, help="TFLOP/s of bfloat16 products")
    parser.add_argument("--tiny", action="store_true", help="small, on any machine")
    parser.add_argument("--wheels", action="store_true", help="which wheels to bring, and how")
    chosen = parser.parse_args()
    if chosen.wheels:
        print("\n".join(wheels()))
        return
    began = time.monotonic()
    device = found_device(chosen.tiny)
    start_jax()
    peaks = (value for name, value in PEAKS.items() if name in device.device_kind)
    peak = 1e12 * (chosen.peak or next(peaks, float("nan")))
    sizes = Sizes(chosen.tiny, chosen.rows)
    report = Report(chosen.out, about(device, chosen.tiny, peak))
    for name in chosen.parts:
        if time.monotonic() - began > chosen.seconds:
            report.add(name, ("left out",), [(f"{chosen.seconds:.0f} s were over",)])
            continue
        columns, part = PARTS[name]
        report.run(name, columns, functools.partial(part, sizes, peak))
    print(f"{time.monotonic() - began:.0f} s in all; {chosen.out / 'accelerator.md'}")


def wheels() -> list[str]:
    """How to bring what is needed to a machine with the same Python and without a network."""
    version = importlib.metadata.version("jax")
    return [
        "# here, in the clone: jax, jaxlib, jax-cuda12-*, nvidia-*-cu12, flax, ...; a TPU: '.[tpu]'",
        f"pip download --only-binary=:all: --dest=wheels '.[cuda]' jax=={version} setuptools",
        "# there, in the same clone, with the folder beside it",
        "pip install --no-index --find-links=wheels '.[cuda]'",
        "python -m benchmarks.accelerator",
    ]


def found_device(tiny: bool) -> Any:
    """The first device; `UserError` where it is a processor, and that is not asked for."""
    import jax

    device = jax.devices()[0]
    if device.platform == "cpu" and not tiny:
        raise UserError("no accelerator: JAX computes on the processor alone; try --tiny")
    return device


def about(device: Any, tiny: bool, peak: float) -> dict[str, Any]:
    """Where and of what this is measured."""
    import jax

    return {
        "time": timestamp(),
        "device": f"{len(jax.devices())} x {device.device_kind}",
        "jax": jax.__version__,
        "commit": (code_revision() or {}).get("revision", "unknown"),
        "peak": peak,
        "tiny": tiny,
    }


class Report:
    """The tables so far, in a folder, and where they were measured."""

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        self.folder, self.about = folder, about
        self.tables: dict[str, dict[str, Any]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def run(self, name: str, columns: Sequence[str], part: Callable[[], Rows]) -> None:
        """Measure a part, and write what it has measured if it fails."""
        began, rows = time.monotonic(), []
        try:
            for row in part():
                rows.append(row)
                self.add(name, columns, rows)
        except Exception as error:
            rows.append((f"failed: {one_line(error)}", *[""] * (len(columns) - 1)))
        self.add(name, columns, rows, time.monotonic() - began)
        print(self.text(name), flush=True)

    def add(
        self, name: str, columns: Sequence[str], rows: Sequence[Any], seconds: float = 0.0
    ) -> None:
        """Write all tables, with the rows of this one."""
        self.tables[name] = {"columns": columns, "rows": list(rows), "seconds": round(seconds, 1)}
        texts = [", ".join(f"{key} {value}" for key, value in self.about.items())]
        texts += map(self.text, self.tables)
        write_atomic(self.folder / "accelerator.md", "\n".join(texts))
        everything = json.dumps({**self.about, "tables": self.tables}, indent=1)
        write_atomic(self.folder / "accelerator.json", everything + "\n")

    def text(self, name: str) -> str:
        """One table in Markdown."""
        table = self.tables[name]
        lines = [table["columns"], ["---"] * len(table["columns"]), *table["rows"]]
        cells = ("| " + " | ".join(map(shown, line)) + " |" for line in lines)
        return "\n".join(["", f"### {name} ({table['seconds']:.0f} s)", "", *cells, ""])


def one_line(error: Exception) -> str:
    """An error in a cell."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:200].replace("|", "/")


def shown(value: Any) -> str:
    """A cell."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def precision(sizes: Sizes, peak: float) -> Rows:
    """A product of float32 matrices in each precision against float64 on the host."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    left, right = (rng.normal(size=(sizes.product,) * 2).astype(np.float32) for _ in range(2))
    exact = left[:64].astype(np.float64) @ right
    for name in ("float32", "tensorfloat32", "bfloat16"):
        with jax.default_matmul_precision(name):
            program = jax.jit(jnp.matmul).lower(left, right).compile()
        given = jax.device_put((left, right))
        error = np.abs(np.asarray(program(*given))[:64] - exact).max() / np.abs(exact).max()
        seconds = turns({"product": (program, given)}, 5, sizes.enough)["product"]
        kind = "full float32" if error < 2e-5 else "TF32 or bfloat16"
        yield name, kind, float(error), 2e-12 * sizes.product**3 / seconds


def looks(sizes: Sizes, peak: float) -> Rows:
    """Every kernel on the same numbers, in float32 in two precisions and in bfloat16; at the second
    shape plain alone in float32.
    """
    import jax

    kernels = ["plain", "blockwise", "xla", "auto"]
    for number, (batch, length, heads, size) in enumerate(sizes.looks):
        shape = (batch, heads, length, size)
        given = [jax.random.normal(jax.random.key(seed), shape) for seed in range(4)]
        expected = None
        for dtype, asked in (("float32", "float32"), ("float32", "bfloat16"), ("bfloat16", "-")):
            arrays = [x.astype(dtype) for x in given]
            names = [*kernels, "cudnn"] if dtype == "bfloat16" else kernels[: 1 if number else 4]
            for kernel in names:
                case = (f"{batch}x{length}, {heads} heads of {size}", dtype, asked, kernel)
                try:
                    with jax.default_matmul_precision("bfloat16" if asked == "-" else asked):
                        program = jax.jit(differentiated(kernel)).lower(*arrays).compile()
                    outputs = [np.asarray(x, np.float32) for x in program(*arrays)]
                except (UserError, RuntimeError, NotImplementedError) as error:
                    yield *case, "", "", one_line(error)
                    continue
                expected = expected or outputs
                errors = [
                    float(np.abs(x - y).max() / np.abs(y).max())
                    for x, y in zip(outputs, expected, strict=True)
                ]
                taken = turns({kernel: (program, arrays)}, 5, sizes.enough)[kernel]
                yield *case, errors[0], max(errors[1:]), 1e3 * taken


def differentiated(kernel: str) -> Callable[..., Any]:
    """The context of a kernel, causal, and the gradients of q, k and v for that of the context."""
    import jax

    def both(q: Any, k: Any, v: Any, grad: Any) -> Any:
        context, back = jax.vjp(attention(kernel, causal=True), q, k, v)
        return context, *back(grad.astype(context.dtype))

    return both


def language_model(sizes: Sizes, layers: int, folder: Path, mixer: str = "multihead") -> Any:
    """A run of a decoder in GPT-2's form on drawn words, one text a row, ready to begin."""
    from attnlab.tasks import TASKS
    from attnlab.training.run import Run

    rng = np.random.default_rng(0)
    for split, count in (("train", 8 * sizes.rows), ("valid", sizes.rows)):
        words = rng.integers(sizes.words, size=(count, sizes.length - 1))  # and an end
        lines = [" ".join(f"w{number}" for number in row) for row in words]
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n")
    config = configs.load(
        "configs/language_modelling.py:decoder",
        [
            *("data=text", f"data.directory={folder}", "batch.texts=apart"),
            *(f"batch.size={sizes.rows}", f"batch.max_length={sizes.length}"),
            f"vocabulary.reserved={sizes.vocabulary - sizes.words - 4}",
            *(f"system.width={sizes.width}", f"system.hidden={4 * sizes.width}"),
            *(f"system.layers={layers}", f"system.attention={mixer}"),
            *([f"system.attention.heads={sizes.heads}"] if mixer == "multihead" else []),
            *("system.dropout=0.0", "training.compute=bfloat16", "parallel.devices=1"),
            *(f"training.steps={sizes.steps}", f"training.log_every={sizes.logged}"),
            *("training.evaluate_every=0", f"training.evaluate_rows={sizes.rows}"),
            *("checkpoint.every=0", "checkpoint.keep=1"),
            *("decoding.method=greedy", "decoding.max_ratio=0.0"),
            *(f"decoding.max_extra={sizes.new}", "schedule=constant", "schedule.warmup=1"),
        ],
    )
    return Run.prepare(TASKS.resolve(config.task), config, folder / "run", ("train", "valid"))


def resident(run: Any, steps: int) -> tuple[float, int]:
    """Seconds of a step on one batch that stays on the device, over `steps` of them in a row; and
    the number of parameters.
    """
    import jax

    place, state = run.devices, run.updates.first_states(run.task)(run.config.seed)
    count = sum(leaf.size for leaf in jax.tree.leaves(state.params))
    state, batch = place.place(state), jax.device_put(place.feed(run.batches(0)))
    step = place.compile(run.updates.step(run.task), state, batch)
    for repeats in (2, steps):  # the first ones do not count
        began = time.perf_counter()
        for _ in range(repeats):
            state, sums = step(state, batch)
        jax.block_until_ready((state, sums))
        seconds = (time.perf_counter() - began) / repeats
    return seconds, count


def gpt2(sizes: Sizes, peak: float) -> Rows:
    """A training step alone, and in the loop."""
    import jax

    from attnlab.training.session import Interrupt, Session

    with tempfile.TemporaryDirectory() as folder:
        run = language_model(sizes, sizes.layers, Path(folder))
        alone, count = resident(run, sizes.logged)
        flops = 6 * count + 12 * sizes.layers * sizes.width * sizes.length
        tokens = sizes.rows * sizes.length
        yield from rates("a resident batch", alone, tokens, flops / peak)
        yield "parameters", count
        (Path(folder) / "run").mkdir()
        with Interrupt() as interrupt:
            quiet = Progress(sizes.steps, every=sizes.steps, stream=io.StringIO())
            run.fit(Session(quiet, interrupt, time.perf_counter()))
        records = list(read_records(Path(folder) / "run" / "timing.jsonl"))
        taken = [record["step_seconds"] for record in records if "step_seconds" in record]
        loop = statistics.fmean(taken[len(taken) // 2 :])
        yield from rates("the loop", loop, tokens, flops / peak)
        yield "host wait", 1 - alone / loop
        memory = jax.devices()[0].memory_stats() or {}
        yield "most memory in use, GiB", memory.get("peak_bytes_in_use", float("nan")) / 2**30


def rates(what: str, seconds: float, tokens: int, of_peak: float) -> Rows:
    """Of a step of so many seconds."""
    yield f"{what}: ms a step", 1e3 * seconds
    yield f"{what}: tokens/s", tokens / seconds
    yield f"{what}: share of the peak", of_peak * tokens / seconds


def mixers(sizes: Sizes, peak: float) -> Rows:
    """The same decoder with each mixer."""
    for name in MIXERS:
        try:
            with tempfile.TemporaryDirectory() as folder:
                run = language_model(sizes, sizes.mixer_layers, Path(folder), name)
                seconds, count = resident(run, sizes.logged)
            yield name, count, 1e3 * seconds, sizes.rows * sizes.length / seconds
        except (UserError, RuntimeError) as error:
            yield name, one_line(error), "", ""


def decoding(sizes: Sizes, peak: float) -> Rows:
    """Greedy search after prompts of as many tokens as are written."""
    import jax

    with tempfile.TemporaryDirectory() as folder:
        run = language_model(sizes, sizes.layers, Path(folder))
        params = jax.device_put(run.updates.first_states(run.task)(0).params)
        for count in sizes.prompts:
            prompts = [" ".join(["w1"] * sizes.new)] * count
            for _ in range(2):  # the first compiles
                began = time.perf_counter()
                answers = run.task.respond(params, prompts)
                seconds = time.perf_counter() - began
            written = sum(len(answer[0].text.split()) - sizes.new for answer in answers)
            yield count, written, written / seconds, 1e3 * seconds * count / max(written, 1)


def stacked(sizes: Sizes, peak: float) -> Rows:
    """Seeds of the quickstart's multihead, the programs in the cache before."""
    from attnlab.tasks import TASKS

    chosen = {
        **load_experiment("experiments/quickstart.py").base,
        "system.attention": "multihead",
        "system.attention.heads": 4,
    }
    chosen |= {"training.steps": sizes.stacked_steps, "training.evaluate_every": 0}
    chosen |= {"checkpoint.every": 0, "training.log_every": 1, "schedule.warmup": 1}
    overrides = [f"{name}={text(value)}" for name, value in chosen.items()]
    config = configs.load("configs/translation.py:rnnsearch", overrides)
    task = TASKS.resolve(config.task).load(config, None, ("train", "valid"))
    seeded = [configs.prepare(config, [f"seed={seed}"]) for seed in range(sizes.seeds)]
    figures = {}
    for name, way, count in (
        ("one after another", stacking.one_after_another, sizes.alone),
        ("stacked", stacking.stacked, sizes.seeds),
    ):
        stacking.timed(way, seeded[: 1 if way is stacking.one_after_another else count], task)
        times = stacking.timed(way, seeded[:count], task)
        figures[name] = times["step_seconds"] / count
        yield name, count, times["step_seconds"], times["seconds"], figures[name]
    yield "times sooner", "", "", "", figures["one after another"] / figures["stacked"]


PARTS: Mapping[str, tuple[Sequence[str], Callable[[Sizes, float], Rows]]] = {
    "precision": (("asked", "was", "error", "TFLOP/s"), precision),
    "attention": (("look", "dtype", "precision", "kernel", "values", "gradients", "ms"), looks),
    "gpt2": (("figure", "value"), gpt2),
    "mixers": (("mixer", "parameters", "ms a step", "tokens/s"), mixers),
    "decoding": (("prompts", "tokens", "tokens/s", "ms a token of one prompt"), decoding),
    "stacked": (("way", "seeds", "s in steps", "s in all", "s in steps a seed"), stacked),
}


if __name__ == "__main__":
    rounds.main(main)
