"""`score RUN`: how likely texts are under a trained model, token by token; which of several
candidates is likeliest; tasks of the evaluation harness. RUN is a run, or the folder of a language
model as `transformers` writes it.
"""

import argparse
import contextlib
import hashlib
import io
import itertools
import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.commands import session, streams
from attnlab.commands.generate import check_output, on_one_line, read_lines
from attnlab.data.json_files import parse_json
from attnlab.errors import UserError, nearest
from attnlab.flags import add_number
from attnlab.progress import Progress, table
from attnlab.records.files import AppendOnly, csv_text, drop_torn_line, write_atomic

if TYPE_CHECKING:
    from attnlab.api.trained import Run

Record = dict[str, Any]
FORMS = (".jsonl", ".csv", ".parquet")
_BATCHES = 16  # of texts between two writes
_HEADER = b"attnlab score "  # begins what --out leaves until it is whole
_BESIDE = {"text": (), "target": ("source",), "choices": ("source", "answer")}
_EXPECTED = "expected text, or source and target, or choices (with source, answer)"
_OF_TEXTS, _OF_TASKS = ("window", "stride", "no_end"), ("include", "shots", "limit")
_OF_RUNS = ("ensemble", "config", "accept_changed_code")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `score` to its parser, such as the texts or the tasks of lm-eval to score,
    how many tokens are read at once, the output file, `--ensemble` and `--accept-changed-code`.
    """
    add = parser.add_argument
    help = "a text (several: each with the flag); with --target what stands before that"
    add("--text", metavar="TEXT", action="append", help=help)
    add("--target", metavar="TEXT", help="the text that follows: log P(target | text)")
    form = "with text, with source and target, or with source, choices and answer"
    help = f"texts or 'source TAB target', one a line; .jsonl: objects {form} (from 0)"
    add("--file", metavar="FILE", help=help)
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
    """Scores the texts of `--text` or `--file` by a model, prints log P of each or writes them to
    `--out`, then prints a summary; resumes a stopped command with `--out`; with `--tasks` runs
    lm-eval instead; returns 0.

    Returns:
      0.

    Raises:
      UserError: no run, nothing or too much to score, a text with no tokens.
    """
    session.folder_of(arguments)
    given = [name for name in ("text", "file", "tasks") if getattr(arguments, name) is not None]
    if len(given) != 1 or (arguments.target is not None and given != ["text"]):
        raise UserError("score: give --text (and --target), --file or --tasks, one of them")
    tasks = given == ["tasks"]
    _refuse(arguments, _OF_TEXTS if tasks else _OF_TASKS, f"{'not ' * tasks}with --tasks")
    if _foreign(arguments):
        _refuse(arguments, _OF_RUNS, f"for runs; {arguments.workdir} is a folder of transformers")
    if arguments.out:
        check_output(Path(arguments.out), "--out")
    if tasks:
        return _harness(arguments)
    form = Path(arguments.out).suffix if arguments.out else FORMS[0]
    if form not in FORMS:
        raise UserError(f"--out={arguments.out} cannot be written: end it with {FORMS}")
    records = list(_records(arguments))
    results = _scored(_open_model(arguments), records, arguments)
    if arguments.out:
        write_atomic(arguments.out, _as_file(results, form))
        _journal(arguments).unlink()
    if arguments.text or not arguments.out:
        streams.reconfigure(encoding="utf-8", errors="strict")
        for record in results:
            print(f"{record['log_prob']:.6f}\t{on_one_line(record['text'])}")
    lines = [*_summary(results)]
    if arguments.text and len(results) > 1:
        second, first = sorted(results, key=lambda record: record["log_prob"])[-2:]
        by = first["log_prob"] - second["log_prob"]
        lines.append(f"text {first['line']} is the likeliest, by {by:.4f} nats")
    for line in lines:
        print(line, file=sys.stdout if arguments.out else sys.stderr)
    return 0


def _refuse(arguments: argparse.Namespace, names: Sequence[str], use: str) -> None:
    """Raises `UserError` for the first of these flags that is given, with what it is for."""
    for name in names:
        value = getattr(arguments, name)
        if value is not None and value is not False:
            raise UserError(f"score: --{name.replace('_', '-')} is {use}; leave it out")


def _foreign(arguments: argparse.Namespace) -> bool:
    """Returns whether RUN is a folder of `transformers`."""
    return Path(arguments.workdir, "config.json").is_file()


def _open_model(arguments: argparse.Namespace) -> "Run":
    """Starts jax and returns the model of `--workdir` as a `Run` with its parameters loaded, from a
    trained run (with `--ensemble`) or a folder of `transformers`.
    """
    if not _foreign(arguments):
        return session.open_run(session.stored_run(arguments))
    session.start_jax()
    from attnlab.api.pretrained import load_pretrained

    overrides = dict(change.split("=", 1) for change in arguments.overrides)
    return load_pretrained(arguments.workdir, overrides)


def _records(arguments: argparse.Namespace) -> Iterator[Record]:
    """Yields a dict for each text of `--text` or `--file`: "line", "source" (the text before it, or
    ""), "text", and for candidates "choice" and "answer"; raises `UserError` for an invalid line.
    """
    lines = arguments.text if arguments.file is None else read_lines(arguments.file)
    if not lines:
        raise UserError(f"{arguments.file} holds no texts")
    for number, line in enumerate(lines, start=1):
        where, (source, tab, target) = f"{arguments.file}, line {number}", line.partition("\t")
        given: Any = {"source": source, "target": target} if tab else {"text": line}
        if arguments.file is None:
            where, given = "--text", {"source": line, "target": arguments.target}
            given = {"text": line} if arguments.target is None else given
        elif arguments.file.endswith(".jsonl"):
            given = parse_json(line, where)
        held = given if isinstance(given, dict) else {}
        _check_keys(held, where)
        texts = held.get("choices", [held.get("text", held.get("target"))])
        texts = texts if isinstance(texts, list) else []
        before, answer = held.get("source", ""), held.get("answer")
        kinds = [isinstance(text, str) and text.strip() for text in texts]
        if not kinds or not all(kinds) or not isinstance(before, str):
            raise UserError(f"{where}: no tokens to score; {_EXPECTED}")
        if answer is not None and (type(answer) is not int or not 0 <= answer < len(texts)):
            raise UserError(f"{where}: answer={answer!r}; expected 0 to {len(texts) - 1}")
        for choice, text in enumerate(texts):
            numbers = {"choice": choice, "answer": answer} if "choices" in held else {}
            yield {"line": number, "source": before, "text": text, **numbers}


def _check_keys(held: Record, where: str) -> None:
    """Raises `UserError`, which begins with `where`, if a key of `held` (the JSON object of one
    input line) is unknown or does not go with its other keys.
    """
    keys = {*_BESIDE, *itertools.chain(*_BESIDE.values())}
    for key in sorted(held.keys() - keys):
        raise UserError(f"{where}: unknown key {key!r}; {nearest(key, keys)}")
    kind = next((name for name in _BESIDE if name in held), None)
    if kind and (others := held.keys() - {kind, *_BESIDE[kind]}):
        raise UserError(f"{where}: {min(others)!r} does not go with {kind!r}; {_EXPECTED}")


def _journal(arguments: argparse.Namespace) -> Path:
    return Path(f"{arguments.out}.part")


def _read_journal(journal: AppendOnly, header: bytes) -> list[Record]:
    """Returns the results that a stopped command has written to the journal after this `header`;
    after another header, or if damaged, begins the file anew and returns []; raises `UserError` for
    a file that no such command has written.
    """
    path = journal.path
    content = path.read_bytes() if path.exists() else b""
    if content[: len(_HEADER)] != _HEADER[: len(content)]:
        raise UserError(f"{path} is there, and not what a stopped 'score' leaves; move it away")
    first, *lines = content.rpartition(b"\n")[0].split(b"\n")
    if first == header:
        with contextlib.suppress(ValueError):  # damaged
            results = [json.loads(line) for line in lines]
            drop_torn_line(path)
            return results
    path.unlink(missing_ok=True)
    journal.append(header + b"\n")
    return []


def _scored(
    trained: "Run", records: Sequence[Record], arguments: argparse.Namespace
) -> list[Record]:
    """Returns the records with their scores by the model added, and shows progress; with `--out`
    writes each batch of results to a journal, and begins after those that a stopped command has
    left there.
    """
    options = {"window": arguments.window, "stride": arguments.stride, "end": not arguments.no_end}
    results: list[Record] = []
    journal = AppendOnly(_journal(arguments)) if arguments.out else None
    if journal is not None:
        from attnlab.training.orbax_steps import fingerprint
        from attnlab.training.trained import leaves_by_path

        # of all members of an ensemble
        weights = {k: fingerprint(x, True) for k, x in leaves_by_path(trained.params).items()}
        model = [str(trained.workdir.resolve()), trained.step, repr(trained.config), weights]
        learned = Path(arguments.workdir, "tokenizer.json")  # of a folder of `transformers`
        tokenizer = learned.read_text() if learned.is_file() else None
        content = json.dumps([model, options, records, tokenizer]).encode()
        results = _read_journal(journal, _HEADER + hashlib.sha256(content).hexdigest().encode())
    size = _BATCHES * trained.task.at_once
    long = len(records) - len(results) > size
    progress = Progress(len(records), start=len(results), unit="text")
    with progress if long else contextlib.nullcontext():
        for begin in range(len(results), len(records), size):
            part = records[begin : begin + size]
            try:
                scores = trained.score([(x["source"], x["text"]) for x in part], **options)
            except UserError:
                if journal is not None:
                    journal.path.unlink(missing_ok=True)
                raise
            scored = zip(part, scores, strict=True)
            results += [{**record, **score.record()} for record, score in scored]
            if journal is not None:
                lines = [json.dumps(x) + "\n" for x in results[begin:]]
                journal.append("".join(lines).encode())
                journal.sync()
            if long:
                progress.update(len(results))
    return results


def _as_file(results: Sequence[Record], form: str) -> bytes:
    """Returns scored records as the bytes of a file in the format `form`, ".jsonl", ".csv" (lists
    as JSON) or ".parquet".
    """
    if form == ".jsonl":
        return "".join(json.dumps(x, ensure_ascii=False) + "\n" for x in results).encode()
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
    return csv_text([names, *rows]).encode()


def _summary(results: Sequence[Record]) -> Iterator[str]:
    """Yields lines of text on scored records: one, if there are texts that are no candidates, with
    their mean loss and perplexity (and bits per byte where known), one if any have unknown tokens,
    and two, if candidates have answers, with how often the likeliest candidate (in all, and per
    byte) is the answer.
    """
    if texts := [record for record in results if "choice" not in record]:
        tokens, nats = sum(len(x["tokens"]) for x in texts), -sum(x["log_prob"] for x in texts)
        line = f"{len(texts):,} text{'s' * (len(texts) > 1)}, {tokens:,} tokens:"
        line += f" {nats / tokens:.4f} nats per token"
        line += f", perplexity {math.exp(min(nats / tokens, 700)):.4g} per token"
        if all(record["bits_per_byte"] is not None for record in texts):
            bits = nats / math.log(2) / sum(record["bytes"] for record in texts)
            line += f", {bits:.4f} bits per byte"
        yield line
    if unknown := sum(record["bits_per_byte"] is None for record in results):
        yield (
            f"tokens unknown to the vocabulary in {unknown:,} of {len(results):,} texts: they cost"
            " little whatever they stand for, so there are no bits per byte"
        )
    asked = [record for record in results if record.get("answer") is not None]
    groups = [list(group) for _, group in itertools.groupby(asked, key=lambda x: x["line"])]
    for power, name in enumerate(("likeliest", "likeliest per byte")):
        best = [max(group, key=lambda x: x["log_prob"] / x["bytes"] ** power) for group in groups]
        if right := [record["choice"] == record["answer"] for record in best]:
            yield f"the {name} candidate is right in {sum(right):,} of {len(right):,} questions"


def _harness(arguments: argparse.Namespace) -> int:
    """Runs the tasks of lm-eval that `--tasks` names on the model, prints a table of their scores,
    writes all results as JSON to `--out` if it is given, and returns 0.
    """
    trained, names = _open_model(arguments), arguments.tasks.split(",")
    from attnlab.api import harness

    options = {"num_fewshot": arguments.shots, "limit": arguments.limit}
    results = harness.evaluate(trained, names, arguments.include, **options)
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
