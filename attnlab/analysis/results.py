"""What a finished run shows: a table, pictures and a file."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from attnlab.analysis.maps import save_arrays, save_curve, save_map
from attnlab.files import write_atomic
from attnlab.progress import table
from attnlab.training.records import read_records
from attnlab.training.sealed import check_test_split

PICTURED = 3  # test sentences whose alignment is drawn


def report(config: ConfigDict, task: Any, workdir: Path) -> None:
    """Score the test split with the best parameters; print a table, write pictures, `translations.txt` and, last, `results.json`.

    Raises:
      UserError: `workdir` is a sweep's trial whose test split is closed, or has no checkpoint that can be used.
    """
    check_test_split(workdir)
    import jax

    from attnlab.training.loop import best_params

    params, step = best_params(config, task, workdir)
    results, translations = scores(task, params, "test")
    results |= {"step": step, "parameters": sum(leaf.size for leaf in jax.tree.leaves(params))}
    write_atomic(workdir / "translations.txt", "".join(line + "\n" for line in translations))
    pictures = [curves(workdir), *alignments(task, params, workdir)]
    write_atomic(workdir / "results.json", json.dumps(results, indent=1) + "\n")  # last: where it is, everything is
    show(f"{config.system.name} on {config.data.name}, test split", results)
    print(f"pictures: {', '.join(str(path) for path in pictures)}")
    print(f"numbers:  {workdir / 'results.json'}")


def scores(task: Any, params: Any, split: str) -> tuple[dict[str, Any], list[str]]:
    """Teacher-forced and free-running scores of a split, and its translations."""
    results = {"split": split, "sentences": len(task.data.pairs[split]), **task.evaluate(params, split)}
    began = time.perf_counter()
    texts, translations = task.score(params, split)
    return {**results, **texts, "decoding_seconds": round(time.perf_counter() - began, 2)}, translations


def show(title: str, results: dict[str, Any]) -> None:
    """Print results as a table, one row a measure."""
    units = {"loss": "nats per target token", "accuracy": "next token, teacher-forced", "exact": "share of sentences right as a whole"}
    units |= {"bleu": results.get("bleu_signature", ""), "chrf": results.get("chrf_signature", ""), "decoding_seconds": "s"}
    rows = [(name, value, units.get(name, "")) for name, value in results.items() if not name.endswith("_signature")]
    table(title, ("measure", "value", "unit or signature"), [(name, _plain(value), unit) for name, value, unit in rows])


def curves(workdir: Path) -> Path:
    """Draw the losses of `metrics.jsonl`."""
    records = read_records(workdir / "metrics.jsonl")
    series = {split: [(r["step"], r["loss"]) for r in records if r["split"] == split] for split in ("train", "valid")}
    path = workdir / "curves.png"
    save_curve(path, series, title=str(workdir.name))
    return path


def alignments(task: Any, params: Any, workdir: Path) -> list[Path]:
    """Draw where the system looks in the source for the first test sentences; nothing where it does not look."""
    if not task.system.needs:
        return []
    paths = []
    for number, (source, target) in enumerate(task.data.pairs["test"][:PICTURED]):
        for name, path in draw(task, params, source, target, workdir / "maps" / f"test{number}").items():
            if name == "arrays" or task.system.between(name) == ("target", "source"):
                paths.append(path)
    return paths


def draw(task: Any, params: Any, source: str, target: str, stem: Path) -> dict[str, Path]:
    """Draw every map of a pair as `<stem>-<map>.png` and keep all as arrays in `<stem>.npz`; the files by map, and "arrays".

    The arrays' "target_tokens" are the rows of maps onto the source; a decoder's self-attention has BOS and all but the last of them.
    """
    maps, tokens = task.maps(params, source, target)
    paths = {}
    stem.parent.mkdir(parents=True, exist_ok=True)
    for name, one in maps.items():
        paths[name] = stem.with_name(f"{stem.name}-{name.replace('/', '-')}.png")
        save_map(paths[name], one.weights, tokens[one.key], tokens[one.query], title=name)
    paths["arrays"] = stem.with_name(f"{stem.name}.npz")
    save_arrays(paths["arrays"], {name: one.weights for name, one in maps.items()}, tokens["source"], tokens["target"])
    return paths


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float) else str(value)
