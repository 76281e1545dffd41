"""`score RUN`: how likely texts are under a trained model, token by token; which of several
candidates is likeliest; tasks of the evaluation harness. RUN is a run, or the folder of a language
model as `transformers` writes it.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import math
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnlab.commands import session
from attnlab.commands.generate import check_output, read_lines
from attnlab.data.readers.json_text import parse_json
from attnlab.errors import UserError
from attnlab.flags import add_number
from attnlab.progress import Progress, table
from attnlab.records.csv_text import as_csv
from attnlab.records.files import AppendOnly, drop_torn_line, write_atomic

if TYPE_CHECKING:
    from attnlab.api.trained import Run

Record = dict[str, Any]
FORMS = (".jsonl", ".csv", ".parquet")
_BATCHES = 16  # of texts between two writes
_SHOWN = 48  # characters of a text in the table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is scored, how long texts are read, and where the scores go."""
    add = parser.add_argument
    add("run", nargs="?", metavar="RUN", help="the run, as --workdir names it")
    add("--text", metavar="TEXT", help="one text; with --target what stands before that")
    add("--target", metavar="TEXT", help="the text that follows: log P(target | text)")
    add(
        "--file",
        metavar="FILE",
        help="texts, one a line, or 'source TAB target'; in .jsonl objects with text, with source"
        " and target, or with source, choices and answer (the number of the right one, from 0)",
    )
    add("--out", metavar="FILE", help="each token and its score, as .jsonl, .csv or .parquet")
    add_number(parser, "--window", 1, 2**24, "tokens that are read at once, of longer texts")
    add_number(parser, "--stride", 1, 2**24, "tokens that each further window scores")
    add("--no-end", action="store_true", help="texts may go on: their ends are not scored")
    add("--tasks", metavar="NAME,...", help="tasks of the harness lm-eval, in place of texts")
    add("--include", metavar="FOLDER", help="a folder with tasks of yours, for --tasks")
    add_number(parser, "--shots", 0, 2**16, "examples before each question, for --tasks")
    add_number(parser, "--limit", 1, 2**31, "questions of each task, for --tasks")
    session.add_ensemble(parser)
    session.add_acceptance(parser)


def run(arguments: argparse.Namespace) -> int:
    """Score, print a summary, and write `--out`; stopped, the same command goes on.

    Returns:
      0.

    Raises:
      UserError: no run, nothing or too much to score, a text with no tokens.
    """
    if arguments.run and arguments.workdir:
        raise UserError(f"score: {arguments.run} and --workdir name a run twice; leave one out")
    arguments.workdir = arguments.run or arguments.workdir
    given = [name for name in ("text", "file", "tasks") if getattr(arguments, name) is not None]
    if len(given) != 1:
        raise UserError("score: give one of --text=TEXT, --file=FILE and --tasks=NAME,...")
    if arguments.target is not None and given != ["text"]:
        raise UserError("score: --target goes with --text; in a file it stands beside its source")
    out = Path(arguments.out or "scores.jsonl")
    if arguments.out:
        check_output(out)
        if given != ["tasks"] and out.suffix not in FORMS:
            raise UserError(f"--out={out}: expected a name that ends with {', '.join(FORMS)}")
        if out.suffix == ".parquet" and find_spec("pyarrow") is None:
            raise UserError(f"--out={out} needs pyarrow: pip install 'attnlab[parquet]'")
    if arguments.tasks:
        return _harness(arguments)
    records = [*_records(arguments)]
    results = _scored(_opened(arguments), records, arguments)
    if arguments.out:
        write_atomic(out, _written(results, out.suffix))
        Path(f"{out}.part").unlink()
    _show(results, table_too=not arguments.out)
    return 0


def _opened(arguments: argparse.Namespace) -> Run:
    """The run, or the model in a folder of `transformers`."""
    folder = Path(arguments.workdir or "")
    if not arguments.workdir or not (folder / "config.json").is_file():
        return session.open_run(session.stored_run(arguments))
    session.start_jax()
    from attnlab.api.pretrained import load_pretrained

    return load_pretrained(folder, dict(change.split("=", 1) for change in arguments.overrides))


def _records(arguments: argparse.Namespace) -> Iterator[Record]:
    """Every text as {"text"}, {"source", "target"} or {"source", "choices", "answer"}."""
    lines, kind = [arguments.text], ""
    if arguments.file:
        lines, kind = read_lines(arguments.file), Path(arguments.file).suffix
    if not lines:
        raise UserError(f"{arguments.file} holds no texts")
    for number, line in enumerate(lines, start=1):
        where = f"{arguments.file}, line {number}" if arguments.file else "--text"
        source, tab, target = line.partition("\t") if arguments.file else (line, "", "")
        given = {"source": source, "target": target} if tab else {"text": line}
        if arguments.target is not None:
            given = {"source": line, "target": arguments.target}
        if kind == ".jsonl":
            given = parse_json(line, where)
        yield _checked(given, where)


def _checked(given: Any, where: str) -> Record:
    """What of a line is scored; `UserError` where it is nothing."""
    kinds = (("source", "choices"), ("source", "target"), ("text",))
    held = given if isinstance(given, dict) else {}
    names = next((names for names in kinds if held.keys() >= {*names}), None)
    if names is None:
        raise UserError(f"{where}: expected text, or source and target, or source and choices")
    record = {name: held[name] for name in names}
    texts = [*record.values()]
    if names[-1] == "choices":
        texts = held["choices"] if isinstance(held["choices"], list) else []
        record["answer"] = held.get("answer")
        if record["answer"] not in (None, *range(len(texts))):
            raise UserError(f"{where}: answer={record['answer']!r}; expected 0 to {len(texts) - 1}")
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise UserError(f"{where}: {names[-1]} has no tokens to score; leave the line out")
    return record


def _scored(trained: Run, records: Sequence[Record], arguments: argparse.Namespace) -> list[Record]:
    """The records with their scores; of `--out` those that a stopped command has left come first."""
    options = {"window": arguments.window, "stride": arguments.stride}
    model = [str(trained.workdir.resolve()), trained.step, repr(trained.config)]
    content = json.dumps([model, options, arguments.no_end, records])
    header = json.dumps(hashlib.sha256(content.encode()).hexdigest())
    journal = AppendOnly(f"{arguments.out}.part") if arguments.out else None
    lines = [header]
    if journal is not None:
        drop_torn_line(journal.path)
        lines = journal.path.read_text().splitlines() if journal.path.is_file() else []
        if lines[:1] != [header]:
            write_atomic(journal.path, f"{header}\n")
            lines = [header]
    results: list[Record] = [json.loads(line) for line in lines[1:]]
    size = _BATCHES * trained.task.at_once
    with Progress(len(records), start=len(results), unit="text") as progress:
        for begin in range(len(results), len(records), size):
            part = records[begin : begin + size]
            results += _scored_part(trained, part, not arguments.no_end, options)
            if journal is not None:
                lines = [json.dumps(record) + "\n" for record in results[begin:]]
                journal.append("".join(lines).encode())
                journal.sync()
            progress.update(len(results))
    return results


def _scored_part(
    trained: Run, records: Sequence[Record], end: bool, options: dict[str, Any]
) -> list[Record]:
    """The records with their scores; the ends of candidates that follow a text do not count."""
    made = []
    asked = [record for record in records if "choices" in record]
    pairs = [(record["source"], text) for record in asked for text in record["choices"]]
    of_choices = iter(trained.score(pairs, end=end and hasattr(trained.task, "encoded"), **options))
    texts = [r.get("text") or (r["source"], r["target"]) for r in records if "choices" not in r]
    of_texts = iter(trained.score(texts, end=end, **options))
    for record in records:
        if "choices" in record:
            log_probs = [next(of_choices).log_prob for _ in record["choices"]]
            lengths = [len(text.encode()) for text in record["choices"]]
            best = int(np.argmax(log_probs)), int(np.argmax(np.divide(log_probs, lengths)))
            scores = {"likeliest": best[0], "likeliest_per_byte": best[1], "log_probs": log_probs}
        else:
            score = next(of_texts)
            names = ("log_prob", "perplexity", "bits_per_byte", "bytes", "tokens")
            scores = {name: getattr(score, name) for name in names}
            scores |= {name: getattr(score, name).tolist() for name in ("offsets", "log_probs")}
        made.append({**record, **scores})
    return made


def _written(results: Sequence[Record], form: str) -> bytes:
    """The content of a file of results; lists are JSON in CSV."""
    if form == ".jsonl":
        return "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in results).encode()
    names = list(dict.fromkeys(name for record in results for name in record))
    columns = {name: [record.get(name) for record in results] for name in names}
    if form == ".parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table(columns), buffer := io.BytesIO())
        return buffer.getvalue()
    rows = [
        [json.dumps(x, ensure_ascii=False) if isinstance(x, list) else x for x in row]
        for row in zip(*columns.values(), strict=True)
    ]
    return as_csv([names, *rows]).encode()


def _show(results: Sequence[Record], table_too: bool) -> None:
    """A line for every text and every candidate, and the whole in a line or two."""
    texts = [record for record in results if "choices" not in record]
    asked = [record for record in results if "choices" in record]
    names = ("log_prob", "perplexity", "bits_per_byte")
    rows = [[*(r[name] for name in names), r.get("text", r.get("target"))[:_SHOWN]] for r in texts]
    for record in asked:
        candidates = zip(record["log_probs"], record["choices"], strict=True)
        for at, (log_prob, text) in enumerate(candidates):
            mark = "*" if at == record["likeliest"] else " "
            rows.append([log_prob, None, None, f"{mark} {text[:_SHOWN]}"])
    if table_too:
        heads = ["log P", "perplexity", "bits/byte", "text"]
        table("log P in nats, perplexity per token", heads, rows, numbers={0, 1, 2})
    if texts:
        tokens, nats = sum(len(r["tokens"]) for r in texts), -sum(r["log_prob"] for r in texts)
        known = all(record["bits_per_byte"] is not None for record in texts)
        bits = nats / math.log(2) / sum(record["bytes"] for record in texts)
        print(
            f"{len(texts):,} texts, {tokens:,} tokens: {nats / tokens:.4f} nats per token, perplexity"
            f" {math.exp(min(nats / tokens, 700)):.4g} per token"
            + (f", {bits:.4f} bits per byte" if known else "")
        )
    if answered := [record for record in asked if record["answer"] is not None]:
        right = [
            np.mean([record[name] == record["answer"] for record in answered])
            for name in ("likeliest", "likeliest_per_byte")
        ]
        print(
            f"{len(answered):,} questions: the likeliest candidate is right in {right[0]:.4f}, the"
            f" likeliest per byte in {right[1]:.4f}"
        )


def _harness(arguments: argparse.Namespace) -> int:
    """Run tasks of `lm-eval`, print what it finds, and write all of it as JSON to `--out`."""
    if find_spec("lm_eval") is None:
        raise UserError("--tasks needs lm-eval: pip install 'attnlab[harness]'")
    trained = _opened(arguments)
    from attnlab.api import harness

    options = {"num_fewshot": arguments.shots, "limit": arguments.limit}
    results = harness.evaluate(trained, arguments.tasks.split(","), arguments.include, **options)
    rows = [
        [task, measure.partition(",")[0], value]
        for task, measures in results["results"].items()
        for measure, value in measures.items()
        if isinstance(value, float)
    ]
    table("tasks of lm-eval", ["task", "measure", "value"], rows)
    if arguments.out:
        write_atomic(arguments.out, json.dumps(results, default=str, indent=1) + "\n")
    return 0
