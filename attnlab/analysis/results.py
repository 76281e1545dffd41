"""What a finished run shows: a table, pictures and a file."""

import contextlib
import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnlab.analysis.figures import save_curve, save_overlay
from attnlab.analysis.maps import as_shares, save_arcs, save_arrays, save_map
from attnlab.errors import UserError
from attnlab.progress import table
from attnlab.records import provenance
from attnlab.records.files import write_atomic
from attnlab.records.items import FILE, ROUNDING, Items
from attnlab.records.manifest import Manifest
from attnlab.records.measures import RECORDED, as_record, counted, units
from attnlab.records.provenance import Code
from attnlab.records.sealed import check_test_split, write_results
from attnlab.records.stream import BEFORE, Scored, read_records
from attnlab.tasks.maps import (
    CHEAP_MAPS,
    EVERY_MAP,
    Chosen,
    attention_maps,
    overlays,
    sides_of,
    stored_labels,
)
from attnlab.tasks.metrics import add_missing_statistics, failures

if TYPE_CHECKING:
    from attnlab.systems.protocol import AttentionMap
    from attnlab.tasks import AnyTask
    from attnlab.tasks.protocol import Example
    from attnlab.training.updates import Updates

FAILED = "pictures_failed.txt"  # pictures that could not be drawn, and why
PICTURED = 3  # test examples whose maps are drawn
KEPT = 8  # test examples that are kept as text with their answers
EXAMPLES = "examples.json"
ARCS = "-arcs"  # at the end of the name of such a picture
LEGIBLE = 120  # tokens on either side of a map that is drawn; a larger one is kept as an array only


def report(
    updates: "Updates",
    task: "AnyTask",
    workdir: Path,
    code: Code | None = None,
    first: bool = True,
    pictures: bool = True,
) -> bool:
    """Scores the test split with the best parameters, writes scores, answers and pictures into
    `workdir` (process 0, `first`, alone) and prints a table; returns False, with a line on stderr,
    if a metric of the user's has failed.

    The files, in this order: the scores of each example (`items.npz`, see `attnlab.records.items`;
      only if the task gives them), the answers of the system (for example `translations.txt`), the
      first examples with their answers (`examples.json`), `digests.json`, `results.json`, pictures.
      If a picture fails, the scores are kept: it is a warning, and a line of `pictures_failed.txt`.

    Args:
      updates: of the run.
      task: with the test split.
      workdir: of the run.
      code: the user's code when it was imported; None to read it now.
      first: whether this is process 0. The others, which its parameters lie over too, compute with
        it and write nothing.
      pictures: draw maps, see `draw`.

    Raises:
      UserError: `workdir` is a sweep's trial whose test split is closed, or has no checkpoint that
        can be used.
    """
    check_test_split(workdir)
    import jax

    config = updates.config
    params, step = updates.best_params(task, workdir)
    results, outputs = scores(task, params, "test")
    items = resampled(task, params, "test", outputs, results)
    if not first:
        for example in task.map_examples("test", PICTURED) if task.system.looks else ():
            _to_draw(task, params, example, CHEAP_MAPS)
        return True
    results |= {"step": step, "parameters": sum(leaf.size for leaf in jax.tree.leaves(params))}
    results |= _changed_code(code or provenance.code(config), workdir)
    measures = {RECORDED: as_record(counted(task, "test", results))}
    others = {}
    if outputs:
        others[task.outputs] = "".join(line + "\n" for line in outputs)
        records = [example.record() for example in task.map_examples("test", KEPT)]
        answered = {"outputs": task.outputs, "examples": records}
        others[EXAMPLES] = json.dumps(answered, ensure_ascii=False, indent=1) + "\n"
    if items is None:
        (workdir / FILE).unlink(missing_ok=True)
    else:
        items.write(workdir)
    text = json.dumps({**results, **measures}, indent=1) + "\n"
    write_results(workdir, text, others)
    show(f"{config.system.name} on {config.data.name}, test split", results, units(task))
    drawn = draw_all(task, params, workdir, pictures)
    few = [str(path.relative_to(workdir)) for path in drawn if path.suffix == ".png"][-3:]
    print(f"pictures: {', '.join(few)} (of {len(drawn)}) in {workdir}" if few else "pictures: none")
    print(f"numbers:  {workdir / 'results.json'}")
    if failed := failures(results):
        advice = f"correct it, and the same command with {provenance.FLAG} scores anew"
        print(f"error: {failed}; all other scores are written; {advice}", file=sys.stderr)
    return not failed


def draw_all(task: "AnyTask", params: Any, workdir: Path, pictures: bool = True) -> list[Path]:
    """Draws the attention maps of the first test examples (their arrays alone without `pictures`)
    and the loss curves into `workdir`, and returns the paths of the most useful files; a failure is
    printed as a warning and noted in `pictures_failed.txt`, not raised.

    A picture that fails is a warning on stderr and a line of `pictures_failed.txt`; without
    failures that file is removed.

    Returns:
      The most useful files.
    """
    paths: list[Path] = []
    failed: list[str] = []
    for what, drawing in (
        ("maps", lambda: pictures_of_test(task, params, workdir, pictures)),
        ("curves", lambda: [curves(workdir)]),
    ):
        try:
            paths += drawing()
        # a font, a disk or a map may fail; the scores must be kept
        except Exception as error:
            message = str(error).strip() or "no message"
            failed.append(f"{what}: {type(error).__name__}: {message}".replace("\n", " "))
            print(f"warning: pictures not drawn, {failed[-1]}", file=sys.stderr)
    note = workdir / FAILED
    if failed:
        # the disk is full; the warning was already printed
        with contextlib.suppress(UserError, OSError):
            write_atomic(note, "".join(f"{line}\n" for line in failed))
    else:
        note.unlink(missing_ok=True)
    return paths


def _changed_code(code: Code, workdir: Path) -> dict[str, Any]:
    """Returns {"changed_code": changes} if the user's code has changed since the first step of the
    run (see `provenance.summary`); {} otherwise.
    """
    manifest = Manifest.read(workdir)
    changed = provenance.summary(manifest.own_code, code) if manifest is not None else {}
    return {"changed_code": changed} if changed else {}


def scores(task: "AnyTask", params: Any, split: str) -> tuple[dict[str, Any], list[str]]:
    """Returns a pair: a dict by name of the scores of a split (some are tables) from `evaluate` and
    from decoding, with the split, its number of examples and, if there are answers, the seconds of
    decoding; and a list of the answers of the system as lines.
    """
    results = {"split": split, task.examples: task.size(split), **task.evaluate(params, split)}
    began = time.perf_counter()
    decoded, outputs = task.score(params, split)
    seconds = {"decoding_seconds": round(time.perf_counter() - began, 2)} if outputs else {}
    every = {**results, **decoded, **seconds}
    add_missing_statistics(task, split, every)
    return every, outputs


def resampled(
    task: "AnyTask", params: Any, split: str, outputs: Sequence[str], results: Mapping[str, Any]
) -> Items | None:
    """Returns the scores of each example of a split as `Items`, without measures whose total
    differs from `results` (a warning on stderr for each), or None if the task gives none or none is
    left.

    A score that does not equal the value computed from its examples is left out, with a warning on
    stderr: it could not be resampled.
    """
    items: Items | None = getattr(task, "items", lambda *_: None)(params, split, outputs)
    if items is None:
        return None
    wrong = []
    for name in items.rules:
        score, recorded = items.score(name), results.get(name, math.nan)
        if not math.isclose(score, recorded, rel_tol=ROUNDING, abs_tol=ROUNDING):
            wrong.append(name)
            print(
                f"warning: {name} is {recorded}, its examples give {score}; it is left out of"
                f" {FILE}",
                file=sys.stderr,
            )
    items = items.without(wrong)
    return items if items.rules else None


def show(title: str, results: Mapping[str, Any], unit: Mapping[str, str]) -> None:
    """Prints `results` under a title as a table, a row for each measure with its value and its unit
    (by name in `unit`) or signature; a score that is itself a table is printed separately, and the
    split is left to the title.
    """
    shown = {
        name: value
        for name, value in results.items()
        if name != "split" and not name.endswith("_signature")
    }
    beside = {name: unit.get(name, results.get(f"{name}_signature", "")) for name in shown} | {
        "decoding_seconds": "s"
    }
    rows = [
        (name, _plain(value), beside[name])
        for name, value in shown.items()
        if not isinstance(value, Mapping)
    ]
    table(title, ("measure", "value", "unit or signature"), rows)
    for name, value in shown.items():
        if isinstance(value, Mapping):
            columns = list(next(iter(value.values()), {}))
            table(
                f"\n{name}",
                (unit.get(name, ""), *columns),
                [(row, *(cells[column] for column in columns)) for row, cells in value.items()],
            )


def curves(workdir: Path, folder: Path | None = None) -> Path:
    """Draws the training and validation losses of a run, and of those it goes on from, as one curve
    in `curves.png` of `workdir`, or of `folder`, and returns its path.
    """
    files = workdir / BEFORE, workdir / "metrics.jsonl"
    records = [record for file in files for record in read_records(file, Scored)]
    series = {
        split: [(r["step"], r["loss"]) for r in records if r["split"] == split]
        for split in ("train", "valid")
    }
    path = (folder or workdir) / "curves.png"
    save_curve(path, series, title=str(workdir.name))
    return path


def pictures_of_test(
    task: "AnyTask", params: Any, workdir: Path, pictures: bool = True
) -> list[Path]:
    """Draws the attention maps of the first test examples into `workdir`/maps (only arrays if
    `pictures` is False), and returns the paths of the most useful files; [] if the system has no
    attention. A sensitivity, which may cost more than a training run, is left to `inspect`.

    Returns:
      The most useful files: maps between two sequences, or self-attention maps if there are no
        others; and the arrays.
    """
    if not task.system.looks:
        return []
    paths = []
    for number, example in enumerate(task.map_examples("test", PICTURED)):
        stem = workdir / "maps" / f"test{number}"
        drawn = draw(task, params, example, stem, "png" if pictures else "", CHEAP_MAPS)
        sides = {
            name: task.system.between(name.removesuffix(ARCS)) for name in drawn if name != "arrays"
        }
        between = [name for name, (query, key) in sides.items() if query != key]
        paths += [drawn[name] for name in (*(between or sides), "arrays")]
    return paths


def draw(
    task: "AnyTask",
    params: Any,
    example: "Example",
    stem: Path,
    kind: str = "png",
    chosen: Chosen = EVERY_MAP,
    computed: "Mapping[str, AttentionMap] | None" = None,
) -> dict[str, Path]:
    """Draws the chosen attention maps of an example as `<stem>-<map>.<kind>`, self-attention of
    texts as arcs too (none above `LEGIBLE` positions or where the `kind` is ""; else "png", "svg"
    or "pdf"), writes all as arrays to `<stem>.npz`, and returns the paths by map, and under
    "arrays".

    What lies on an image is drawn over it. Self-attention of texts is drawn as arcs too, in
    `<stem>-<map>-arcs.<kind>`. Maps of more than `LEGIBLE`
    positions are not drawn: they are unreadable, and a long text would need too much memory. The
    file of arrays also has the labels of the task: for texts "source_tokens" and "target_tokens",
    the rows of maps onto the source. A decoder's self-attention has BOS and all but the last of
    these. A second text that is read is also the target.

    A title has the kind of a map. The numbers of one that is not "exact" have no common scale: they
    are drawn as shares of the largest, which the title gives. `computed` maps are not computed again.
    """
    maps, over, gates = _to_draw(task, params, example, chosen, computed)
    paths = {}
    stem.parent.mkdir(parents=True, exist_ok=True)
    for name, map_ in over.items() if kind else ():
        paths[name] = stem.with_name(f"{stem.name}-{name.replace('/', '-')}.{kind}")
        title = f"{name}: {map_.kind}" if name in maps else name
        save_overlay(paths[name], map_.image, map_.weights, map_.rows, title=title)
    for name, map_ in maps.items() if kind else ():
        if name in over or max(map_.weights.shape[-2:]) > LEGIBLE:
            continue
        paths[name] = stem.with_name(f"{stem.name}-{name.replace('/', '-')}.{kind}")
        shares, title = as_shares(name, map_.weights, map_.kind)
        save_map(paths[name], shares, map_.columns, map_.rows, title=title)
        query, key = sides_of(task.system, name)
        if query == key and len(map_.rows) == len(map_.columns):
            paths[name + ARCS] = paths[name].with_name(paths[name].stem + ARCS + f".{kind}")
            save_arcs(paths[name + ARCS], shares, map_.columns, title=title)
    paths["arrays"] = stem.with_name(f"{stem.name}.npz")
    weights = {name: map_.weights for name, map_ in maps.items()}
    save_arrays(paths["arrays"], {**weights, **gates}, stored_labels(task, example))
    return paths


def _to_draw(
    task: "AnyTask",
    params: Any,
    example: "Example",
    chosen: Chosen,
    maps: "Mapping[str, AttentionMap] | None" = None,
) -> "tuple[Mapping[str, AttentionMap], dict[str, AttentionMap], dict[str, np.ndarray]]":
    """Computes the chosen attention maps of an example, unless they are given, those that are drawn over its image, and gates as
    arrays, each by name.
    """
    maps = attention_maps(task, params, example, chosen) if maps is None else maps
    return maps, *overlays(task, params, example, maps)


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float) else str(value)
