"""Does a change of structure change what is computed? Every small config of `configs/`, the
quickstart's variants and some settings of training: 20 steps, bit for bit.

    git worktree add EARLIER COMMIT
    python -m tests.training.first_losses --checkout EARLIER --record before.json
    python -m tests.training.first_losses --against before.json
    python -m tests.training.first_losses --against before.json --within 1e-5 --only lstm

Each is trained in a process of its own, as its file says but for the sizes of data and batches. A
record holds of each run the hash of its config without `parallel`, the losses, every array of its
last checkpoint, `metrics.jsonl`, `results.json` without seconds, and the arrays of `items.npz`;
and the ids of all candidates that the files of `experiments/` plan. Exit status 1 if anything
differs, or with `--within` if a loss differs by more than that, relative to it. Bits depend on
the machine, so both sides are recorded on one.
"""

import argparse
import gzip
import hashlib
import importlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from attnlab import config as configs

ROOT = Path(__file__).resolve().parents[2]
INPUTS = (
    Path(tempfile.gettempdir()) / "attnlab-first-losses"
)  # configs name it, so it has one place
STEPS = 20
SMALL = {
    "training.steps": STEPS,
    "training.log_every": 1,
    "training.evaluate_every": STEPS,
    "checkpoint.every": STEPS,
    "schedule.warmup": 5,
    "batch.size": 16,
    "data.examples": 400,
    "data.valid": 16,
    "data.test": 32,
    "decoding.method": "greedy",
}
DECODER = "configs/language_modelling.py:decoder"
SETTINGS = {
    "averaged in microbatches": (DECODER, ["training.ema=0.9", "training.accumulate=2"]),
    "bfloat16": (DECODER, ["training.compute=bfloat16"]),
    "low rank": (DECODER, ["lora.rank=2", "optimizer=adamw", "training.rates=norm=0.5"]),
    "adafactor": (DECODER, ["optimizer=adafactor", "optimizer.minimum_factored=16"]),
    "frozen": (DECODER, ["training.freeze=embed", "optimizer=sgd", "optimizer.momentum=0.9"]),
    "joined": ("configs/language_modelling.py:lstm", ["batch.texts=joined"]),
    "sampled": ("configs/translation.py:rnnsearch", ["system.attention.alignment=hard"]),
    "beam": ("configs/translation.py:rnnsearch", ["decoding.method=beam"]),
    "stepped": ("configs/translation.py:luong", ["schedule=stepped", "optimizer=adadelta"]),
    "linear": ("configs/translation.py:transformer", ["schedule=linear", "optimizer=adagrad"]),
}
"""Settings of training that no config has: name to config and settings."""
Case = tuple[str, str, list[str]]  # name, config, settings


def cases(folder: Path) -> Iterator[Case]:
    """Yield every case; `folder` gets the files that some of them read."""
    write_inputs(folder)
    corpus = [f"data.directory={folder}"]
    further = {
        "multi30k": corpus,
        "tatoeba": [f"data.of.directory={folder}"],
        "pretrained": ["data=text", *corpus, "batch.max_length=32"],
    }
    arguments = {
        "pretrained": [str(folder)],
        "text_to_text": ["t5", "bart"],
        "span_corruption": ["t5"],
    }
    for file in sorted((ROOT / "configs").glob("[!_]*.py")):
        systems = getattr(importlib.import_module(f"configs.{file.stem}"), "_SYSTEMS", {})
        for system in arguments.get(file.stem, systems):
            if not system.endswith(("_paper", "_base")):
                name = f"{file.stem}:{system}".replace(str(folder), "gpt2")
                yield name, f"configs/{file.name}:{system}", further.get(file.stem, [])
    for name, (config, settings) in SETTINGS.items():
        yield name, config, settings
    yield from quickstart()


def quickstart() -> Iterator[Case]:
    """Yield the variants of the quickstart."""
    experiment = importlib.import_module("experiments.quickstart")
    base = experiment.get_experiment().base.items()
    sizes = {key: value for key, value in base if key.startswith(("system", "batch"))}
    for name, own in {**experiment.ATTENTIONS, "none": experiment.NONE}.items():
        chosen = {key: own[key] for key in ("system", "system.attention") if key in own}
        texts = [f"{key}={value}" for key, value in {**chosen, **sizes, **own}.items()]
        yield f"quickstart:{name}", "configs/translation.py:rnnsearch", texts


def write_inputs(folder: Path) -> None:
    """Write pairs of sentences, a text and a model of GPT-2's family."""
    from tests.test_doc_pages import TEXT, gpt2

    words = ["ein", "Hund", "und", "zwei", "Katzen", "sehen", "den", "Ball"]
    lines = [" ".join(words[(i * k) % 8] for k in range(1, 4 + i % 5)) for i in range(200)]
    for split, text in (("train", lines), ("val", lines[:20]), ("test_2016_flickr", lines[:32])):
        for language, end in (("de", ""), ("en", " .")):
            content = "".join(f"{line}{end}\n" for line in text).encode()
            (folder / f"{split}.{language}.gz").write_bytes(gzip.compress(content))
    for split in ("train", "valid"):
        (folder / f"{split}.tsv").write_text("".join(f"{line}\t{line} .\n" for line in lines))
        (folder / f"{split}.txt").write_text(TEXT)
    (folder / "test.txt").write_text(TEXT)
    gpt2(folder)


def run_case(case: Case, checkout: Path) -> dict[str, Any]:
    """Train a case in a checkout and return its record; {"error": lines} if the command fails."""
    _, config, settings = case
    known = configs.flat(configs.load(config, settings))
    sizes = [
        f"{key}={value}" for key, value in SMALL.items() if type(known.get(key)) is type(value)
    ]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        words = [f"--config.{text}" for text in [*settings, *sizes]]
        command = ["launch.py", "train", f"--config={config}", f"--workdir={run}", *words]
        done = subprocess.run(
            [sys.executable, *command], cwd=checkout, capture_output=True, text=True
        )
        if done.returncode:
            return {"error": done.stderr.strip().splitlines()[-1:]}
        return record_of(run)


def record_of(run: Path) -> dict[str, Any]:
    """The record of a finished run."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    results = json.loads((run / "results.json").read_text())
    config = json.loads((run / "manifest.json").read_text())["config"]
    items = dict(np.load(run / "items.npz")) if (run / "items.npz").exists() else {}
    return {
        "config": configs.config_hash({key: config[key] for key in config if key != "parallel"}),
        "losses": [row["loss"] for row in rows if row["split"] == "train"],
        "metrics": hashlib.sha256("\n".join(lines).encode()).hexdigest(),
        "results": {key: value for key, value in results.items() if not key.endswith("seconds")},
        "checkpoint": {name: digest(array) for name, array in checkpoint_arrays(run)},
        "items": {name: digest(array) for name, array in sorted(items.items())},
    }


def checkpoint_arrays(run: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yield path and array of all that the last checkpoint holds."""
    import jax
    import orbax.checkpoint as ocp

    tree = ocp.StandardCheckpointer().restore(run / "checkpoints" / str(STEPS) / "state")
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        yield jax.tree_util.keystr(path, simple=True, separator="/"), np.asarray(leaf)


def digest(array: np.ndarray) -> str:
    """Dtype, shape and content of an array, as one text."""
    content = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
    return f"{array.dtype} {list(array.shape)} {hashlib.sha256(content).hexdigest()[:16]}"


PLAN = """
import pathlib, sys
from attnlab.experiments.plan.process import made

plan = made(sys.argv[1], pathlib.Path(sys.argv[2]))
print(*(candidate.id for candidate in plan.candidates))
"""


def planned(file: Path, checkout: Path) -> dict[str, Any]:
    """The ids of the candidates that an experiment plans, in a checkout."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", PLAN, f"experiments/{file.name}", folder]
        done = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1:]}
    return {"candidates": done.stdout.split()}


def outcome(before: Mapping[str, Any] | None, now: Mapping[str, Any], within: float) -> str:
    """What a record says beside an earlier one, in words; with `within` only its losses count."""
    if before is None:
        return f"failed: {now['error']}" if "error" in now else "recorded"
    if before == now:
        return "the same"
    if "losses" not in before or "losses" not in now:
        return f"{json.dumps(before)[:200]} -> {json.dumps(now)[:200]}"
    pairs = zip(before["losses"], now["losses"], strict=True)
    worst = max(abs(old - new) / abs(old) for old, new in pairs)
    if within and worst <= within:
        return "the same"
    parts = []
    for part, old in before.items():
        new = now.get(part)
        both = {**old, **new} if isinstance(old, dict) and isinstance(new, dict) else {}
        keys = [key for key in both if old.get(key) != new.get(key)]
        parts += [f"{part} ({', '.join(keys[:4])})" if keys else part] if old != new else []
    return f"other {', '.join(parts)}; losses by {worst:.1e}"


def main() -> int:
    """Record, or compare with a record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FILE", help="where to write what is measured")
    parser.add_argument("--against", metavar="FILE", help="an earlier record")
    parser.add_argument("--within", type=float, default=0.0, help="of losses; 0: every bit counts")
    parser.add_argument("--checkout", metavar="FOLDER", type=Path, default=ROOT, help="another one")
    parser.add_argument("--only", default="", help="a regular expression for names")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    chosen = parser.parse_args()
    before = json.loads(Path(chosen.against).read_text()) if chosen.against else {}
    records, failed, checkout = {}, False, chosen.checkout.resolve()
    INPUTS.mkdir(exist_ok=True)
    experiments = sorted((ROOT / "experiments").glob("[!_]*.py"))
    with ThreadPoolExecutor(chosen.jobs) as pool:
        work = {
            case[0]: pool.submit(run_case, case, checkout)
            for case in cases(INPUTS)
            if re.search(chosen.only, case[0])
        }
        work |= {
            name: pool.submit(planned, file, checkout)
            for file in experiments
            if re.search(chosen.only, name := f"plan:{file.stem}")
        }
        for name, future in work.items():
            records[name] = future.result()
            words = outcome(before.get(name), records[name], chosen.within)
            failed |= words not in ("the same", "recorded")
            print(f"{name:44s} {words}", flush=True)
    if chosen.record:
        Path(chosen.record).write_text(json.dumps(records, indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
