"""`prepare --to=FOLDER --from=FILES`: text of any size as shards of ids, which training reads from
disk; the same command again goes on where it was stopped.
"""

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.errors import UserError
from attnlab.flags import add_flags, add_number
from attnlab.progress import Progress
from attnlab.records.files import check_folder

if TYPE_CHECKING:
    from attnlab.data.preparing import Preparation
    from attnlab.data.vocabulary import Vocabulary

EPILOG = """\
examples:
  prepare --to=corpus/train --from='text/*.txt.gz' --vocabulary=bpe --size=32000
  prepare --to=corpus/valid --from=valid.jsonl --field=text --vocabulary=corpus/train
  prepare --to=corpus/train --from=books.parquet --tokenizer=models/gpt2"""
FILES = (
    "plain text, .jsonl, .csv or .tsv (all may be .gz, .xz or .zst), .parquet, .arrow, patterns"
    " in quotes, or the folder of a prepared set of TensorFlow Datasets"
)
LEARNED = (
    "learn one: bpe, word, spaced, char; or take that of a folder of shards, or of a trained run"
    " (default: bpe)"
)
_MIB = 2**20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `prepare` to its parser, such as the text to read, the vocabulary, the
    output folder, the shard length and the number of processes.
    """
    parser.epilog = EPILOG
    add_flags(parser, {"--to=FOLDER": "where the shards go"}, type=Path, required=True)
    options = {"dest": "files", "nargs": "+", "action": "extend", "required": True}
    add_flags(parser, {"--from=FILE": FILES}, **options)
    meaning = "what a document of plain text is (default: line)"
    parser.add_argument("--documents", choices=("line", "file"), default="line", help=meaning)
    meaning = "the field or column that has the text, of all but plain text"
    parser.add_argument("--field", default="text", help=meaning)
    parser.add_argument("--split", default="train", help="of a set of TensorFlow Datasets")
    either = parser.add_mutually_exclusive_group()
    add_flags(either, {"--vocabulary=KIND|PATH": LEARNED}, default="bpe")
    meaning = "a tokenizer.json, or the folder of a pretrained model that has one"
    add_flags(either, {"--tokenizer=PATH": meaning})
    add_number(parser, "--size", 1, 10**7, "most pieces (default: 8000)")
    add_number(parser, "--min_frequency", 1, 10**9, "pieces seen less often are left out")
    add_flags(parser, {"--lowercase": "all texts are lower-cased"})
    meaning = "ids that are no text, for tasks that need some: masked language modelling needs one"
    add_number(parser, "--reserved", 0, 2**16, meaning)
    meaning = "how much text a vocabulary is learned from, taken from everywhere (default: 64)"
    add_number(parser, "--sample", 1, 2**20, meaning, metavar="MIB")
    meaning = "ids of a shard (default: 16,777,216)"
    add_number(parser, "--length", 1, 2**31, meaning, default=2**24)
    add_number(parser, "--processes", 1, 1024, "that make ids of text (default: one a core)")


def run(arguments: argparse.Namespace) -> int:
    """Reads the texts of `--from`, writes them as shards of ids to `--to`, and prints counts and
    how to train on them; resumes an interrupted preparation; returns 0.

    Returns:
      0.

    Raises:
      UserError: text that cannot be read, a vocabulary that does not fit, a folder in use.
    """
    from attnlab.data.documents import Corpus, find
    from attnlab.data.preparing import SAMPLE, Asked, advice, prepare

    folder = Path(os.path.abspath(arguments.to.expanduser()))
    check_folder("--to", folder)
    corpus = Corpus(find(arguments.files), arguments.documents, arguments.field, arguments.split)
    sample = SAMPLE if arguments.sample is None else arguments.sample
    request = Asked(corpus, _vocabulary(arguments), sample, arguments.length)
    processes = arguments.processes or len(os.sched_getaffinity(0))
    total = sum(corpus.sizes)
    with Progress(max(1, total // _MIB), every=max(1, total // _MIB // 50), unit="MiB") as progress:
        progress.note(f"looking through {total / _MIB:,.1f} MiB in {len(corpus.files)} files")
        index = prepare(folder, request, processes, _Pace(progress), progress.note)
    tokens, unknown = index.total("tokens"), index.total("unknown")
    skipped = f", {index.skipped:,} records without text left out" if index.skipped else ""
    print(
        f"{folder}: {index.total('documents'):,} documents, {tokens:,} tokens"
        f" ({unknown / tokens:.2%} unknown), {index.dtype}, {len(index.shards)} shards{skipped}"
    )
    print(advice(folder))
    return 0


class _Pace:
    """Progress by the amount of text read since this command began."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._before = time.perf_counter(), -1, 0

    def __call__(self, state: "Preparation") -> None:
        """Updates the progress bar with the MiB of text read so far and the pace since its last
        update, if at least one MiB more has been read since; the first call only stores where this
        command began.
        """
        now = time.perf_counter()
        mib = state.bytes // _MIB
        began, first, ids = self._before
        if first < 0:  # the time before belongs to an earlier command, or the start of processes
            self._before = now, mib, state.ids
        elif mib > first:
            seconds = now - began
            self._before = now, mib, state.ids
            self._progress.update(
                min(mib, self._progress.total),
                tokens_per_second=(state.ids - ids) / seconds,
                step_seconds=seconds / (mib - first),
            )


def _vocabulary(arguments: argparse.Namespace) -> "dict[str, object] | Vocabulary":
    """Returns the vocabulary that the flags choose: a dict of settings to learn one, or a loaded
    `Vocabulary`; raises `UserError` if that is not found, or comes with flags for learning.
    """
    from attnlab.data.shard_folder import INDEX, VOCABULARY
    from attnlab.data.vocabulary import KINDS, TOKENIZER, Vocabulary

    if arguments.tokenizer is None and arguments.vocabulary in KINDS:
        return {
            "kind": arguments.vocabulary,
            "size": 8000 if arguments.size is None else arguments.size,
            "min_frequency": 2 if arguments.min_frequency is None else arguments.min_frequency,
            "lowercase": arguments.lowercase,
            **({"reserved": arguments.reserved} if arguments.reserved else {}),
        }
    learning = ("size", "min_frequency", "sample", "lowercase", "reserved")
    unused = [f"--{name}" for name in learning if getattr(arguments, name) not in (None, False)]
    if unused:
        raise UserError(f"{unused[0]} is for a vocabulary that is learned; leave it out")
    if arguments.tokenizer is not None:
        return Vocabulary.train([], TOKENIZER, file=arguments.tokenizer)
    path = Path(arguments.vocabulary).expanduser()
    candidates = (path / VOCABULARY, path / "vocabulary" / "shared.json", path)
    file = next((candidate for candidate in candidates if candidate.is_file()), None)
    if file is None:
        reason = (
            f"a folder without {INDEX} and {VOCABULARY}" if path.is_dir() else "no kind, no folder"
        )
        raise UserError(
            f"--vocabulary={arguments.vocabulary} is {reason}; write one of {', '.join(KINDS)}, or a"
            " folder that 'prepare' or 'train' has made"
        )
    return Vocabulary.load(file)
