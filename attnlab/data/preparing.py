"""Text into shards: what `launch.py prepare` does.

Chunks of text go to processes in turn, and come back as ids in the same order; one process writes
them into shards of one length. So the folder is the same whatever the number of processes. While it
is made it has

    plan.json      what is asked for, and of which text; a folder of another plan is refused
    00000.json     beside a shard that is whole: its hashes, and where in the text the next one begins

and `index.json` at the end in their place. After a kill the shards that are there are held against
their hashes, and the text from there on is encoded.
"""

import contextlib
import dataclasses
import itertools
import json
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attnlab.data import SPLITS, encoding
from attnlab.data.documents import BadSource, Corpus, sample
from attnlab.data.encoding import Encoded
from attnlab.data.shard_folder import (
    ENDS,
    FORMAT,
    INDEX,
    VOCABULARY,
    Index,
    Shard,
    check_content,
    digest,
    hashes,
    names,
    opened,
)
from attnlab.data.vocabulary import Vocabulary
from attnlab.errors import UserError
from attnlab.records.files import write_atomic
from attnlab.records.json_kinds import Damaged, read, read_file
from attnlab.records.locks import Held, RunLock

PLAN = "plan.json"
LENGTH = 2**24  # ids of a shard
SAMPLE = 64  # MiB of text that a vocabulary is learned from


@dataclass(frozen=True)
class Asked:
    """What to make of a corpus.

    Attributes:
      corpus: the text.
      vocabulary: the arguments of `Vocabulary.train`, or a vocabulary.
      sample: MiB of text that a vocabulary is learned from.
      length: ids of a shard.
    """

    corpus: Corpus
    vocabulary: dict[str, Any] | Vocabulary
    sample: int = SAMPLE
    length: int = LENGTH

    def plan(self, source: dict[str, Any]) -> dict[str, Any]:
        """Returns the content of `plan.json`, a dict of the format, the corpus's fingerprint
        `source`, the vocabulary's hash or settings, and the shard length.
        """
        chosen = self.vocabulary
        if isinstance(chosen, Vocabulary):
            vocabulary: dict[str, Any] = {"sha256": digest(chosen)}
        else:
            vocabulary = {**chosen, "sample": self.sample}
        return {"format": FORMAT, "source": source, "vocabulary": vocabulary, "length": self.length}


@dataclass(frozen=True)
class ShardStart:
    """Where in the text a shard begins: so many ids of a chunk are in earlier shards; `characters`
    of the document that is open there are in earlier chunks; `skipped` records were left out in
    them.
    """

    chunk: int = 0
    ids: int = 0
    characters: int = 0
    skipped: int = 0


@dataclass(frozen=True)
class _Record:
    """The content of `00000.json`."""

    shard: Shard
    next: ShardStart


class Preparation(NamedTuple):
    """How far the work is: bytes of text that are read and ids that were made, by this process and
    by earlier ones.
    """

    bytes: int
    ids: int


OnChunk = Callable[[Preparation], None]
"""Is called after every chunk."""
Log = Callable[[str], None]
"""Takes a line about what is done."""


def prepare(folder: Path, job: Asked, processes: int, on_chunk: OnChunk, log: Log) -> Index:
    """Encodes the corpus of a job into shards and an index in `folder`, calls `on_chunk` after each
    chunk and returns the index; continues an unfinished folder, only checks a finished one, and
    raises `UserError` for one of another job or in use, or for bad text (and deletes its work).

    Args:
      folder: where; new, empty, or one that an earlier call has left.
      job: what to make.
      processes: that encode text; the result does not depend on it.
      on_chunk: is called after every chunk.
      log: takes a line about what is done.

    Raises:
      UserError: a folder in use or of something else, text that cannot be read, a vocabulary that
        does not fit. What is wrong with the text itself (`BadSource`) leaves no folder behind.
    """
    source = job.corpus.fingerprint()
    plan = job.plan(source)
    is_new = not folder.exists()
    finished = _finished_index(folder, plan)
    if finished is not None:
        log(f"{folder} is complete: every shard was held against its hash, nothing is left to do")
        return finished
    has_vocabulary = isinstance(job.vocabulary, Vocabulary) or (folder / PLAN).is_file()
    learned = None if has_vocabulary else _learn_vocabulary(job, log)  # before anything is written
    try:
        lock = RunLock(folder)
    except Held as error:
        raise UserError(
            f"--to={folder} is being prepared by another process; wait for it"
        ) from error
    try:
        vocabulary = _vocabulary(folder, job, plan, learned, log)
        index = _Writing(folder, job, vocabulary, source).run(processes, on_chunk, log)
    except BadSource:
        _remove(folder, is_new)
        raise
    finally:
        lock.release()
    (folder / ".lock").unlink(missing_ok=True)
    return index


def _learn_vocabulary(job: Asked, log: Log) -> Vocabulary:
    """Trains a vocabulary on a sample of the corpus and returns it, after a line to `log`."""
    assert isinstance(job.vocabulary, dict)
    log(f"learning the vocabulary from at most {job.sample} MiB of text")
    return Vocabulary.train(sample(job.corpus, job.sample * 2**20), **job.vocabulary)


def _finished_index(folder: Path, plan: dict[str, Any]) -> Index | None:
    """Returns the index of a finished folder after checking it against the plan and its hashes,
    None for an empty or unfinished one; raises `UserError` if its plan differs or it has other
    files.

    Raises:
      UserError: a folder of something else.
    """
    names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if not {name for name in names if not name.startswith(".")} - {VOCABULARY}:
        return None  # a kill may have left a vocabulary without a plan
    if (folder / INDEX).is_file():
        index = opened(folder)
        _compare(folder, dataclasses.asdict(index), plan)
        numbers = range(len(index.shards))
        check_content(folder, index, numbers, index.vocabulary["pieces"], always=True)
        return index
    saved_plan = read_file(folder / PLAN, dict, f"delete {folder}")
    if saved_plan is None:
        raise UserError(f"--to={folder} has other files in it; name a new or an empty folder")
    _compare(folder, saved_plan, plan)
    return None


def _compare(folder: Path, saved: dict[str, Any], plan: dict[str, Any]) -> None:
    """Raises `UserError`, which names what differs, if the plan or index `saved` in a folder has
    another format, source, shard length or vocabulary than `plan`.
    """
    new, old = dict(plan["vocabulary"]), dict(saved.get("vocabulary", {}))
    same_vocabulary = all(
        old.get(name, old.get("settings", {}).get(name)) == value for name, value in new.items()
    )
    differing = [
        name
        for name in ("format", "source", "length")
        if saved.get(name) != json.loads(json.dumps(plan[name]))
    ]
    differing += [] if same_vocabulary else ["vocabulary"]
    if differing:
        phrases = {"source": "text or another way to read it", "length": "length of shards"}
        differences = " and ".join(f"another {phrases.get(name, name)}" for name in differing)
        raise UserError(
            f"--to={folder} was prepared from {differences}; name another folder, or delete this one"
        )


def _vocabulary(
    folder: Path,
    job: Asked,
    plan: dict[str, Any],
    learned: Vocabulary | None,
    log: Log,
) -> Vocabulary:
    """Returns the vocabulary saved in the folder; in a new folder first saves the plan and the
    vocabulary of the job, or the `learned` one if the job has none.
    """
    chosen, path = job.vocabulary, folder / VOCABULARY
    if not (folder / PLAN).is_file():
        vocabulary = chosen if isinstance(chosen, Vocabulary) else learned
        assert vocabulary is not None
        vocabulary.save(path)
        write_atomic(folder / PLAN, json.dumps(plan))
        return vocabulary
    log(f"going on in {folder}")
    return Vocabulary.load(path)


def _remove(folder: Path, with_folder: bool) -> None:
    """Deletes the folder if `with_folder`, else only the files in it that preparation writes."""
    if with_folder:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for path in folder.iterdir():
        if (
            path.name in (PLAN, VOCABULARY, ".lock")
            or path.suffix in (".tokens", ".documents")
            or (path.suffix == ".json" and path.stem.isdigit())
        ):
            path.unlink()


class _Writing:
    """The shards of a folder, one after another."""

    def __init__(
        self, folder: Path, job: Asked, vocabulary: Vocabulary, source: dict[str, Any]
    ) -> None:
        """Stores the job and makes an empty shard of uint16 ids, or uint32 for more than 65,536
        pieces.
        """
        self.folder, self.job, self.vocabulary, self.source = (folder, job, vocabulary, source)
        self.dtype = np.dtype("<u2" if vocabulary.size <= 2**16 else "<u4")
        self.shards: list[Shard] = []
        self.place = ShardStart()
        self.ids = np.empty(job.length, self.dtype)
        self.filled = 0
        self.documents: list[np.ndarray] = []

    def run(self, processes: int, on_chunk: OnChunk, log: Log) -> Index:
        """Encodes the text that no finished shard contains, writes the remaining shards and the
        index, and returns the index; raises `BadSource` if there is no document.
        """
        self._resume(log)
        # those before are read, which is quick, and let go
        chunks = itertools.islice(self.job.corpus.chunks(), self.place.chunk, None)
        work = encoding.encode_chunks(self.job.corpus, self.folder / VOCABULARY, chunks, processes)
        with contextlib.closing(work) as results:
            for number, (chunk, encoded) in enumerate(results, self.place.chunk):
                self._add(number, encoded)
                ids_made = sum(shard.tokens for shard in self.shards) + self.filled
                on_chunk(Preparation(chunk.bytes_read, ids_made))
        if self.filled:
            self._write()
        if not self.shards:
            raise BadSource("there is no document in the text")
        return self._write_index()

    def _resume(self, log: Log) -> None:
        """Appends to `shards` those that an earlier run finished and whose hashes match, up to the
        first other shard, and sets `place` to where in the text the next shard begins.
        """
        while True:
            number = len(self.shards)
            try:
                record = read((self.folder / f"{number:05}.json").read_bytes(), _Record)
            except (OSError, Damaged):
                break
            if hashes(self.folder, number) != record.shard.sha256:
                log(f"{names(number)[0]} has changed since it was written: it is made again")
                break
            self.shards.append(record.shard)
            self.place = record.next
        if self.shards:
            log(f"{len(self.shards)} shards are there, each is as its hash says")

    def _add(self, number: int, encoded: Encoded) -> None:
        """Appends the ids and document ends of the chunk `number` to the current shard, without
        those that earlier shards contain, and writes each shard that becomes full.
        """
        index = self.place.ids if number == self.place.chunk else 0
        start = self.place
        is_new = encoded.ends > index if index else np.ones(len(encoded.ends), bool)
        ends, ended = encoded.ends[is_new], encoded.ended[is_new]
        # of a document that comes in pieces the characters count where it ends
        totals = np.cumsum(encoded.characters[is_new])
        closed = np.flatnonzero(ended)
        characters = np.diff(totals[closed], prepend=-start.characters)
        open_characters = int(totals[-1]) if len(totals) else 0
        open_characters -= int(totals[closed[-1]]) if len(closed) else -start.characters
        next_start = ShardStart(number + 1, 0, open_characters, start.skipped + encoded.skipped)
        ends, written = ends[closed], 0
        while index < len(encoded.ids):
            count = min(len(encoded.ids) - index, len(self.ids) - self.filled)
            self.ids[self.filled : self.filled + count] = encoded.ids[index : index + count]
            stop = int(np.searchsorted(ends, index + count, side="right"))
            places = ends[written:stop] - index + self.filled
            self.documents.append(np.stack([places, characters[written:stop]], axis=1).astype(ENDS))
            index, written, self.filled = index + count, stop, self.filled + count
            if self.filled == len(self.ids):
                characters_before = 0 if written else start.characters
                inside = ShardStart(number, index, characters_before, start.skipped)
                self.place = next_start if index == len(encoded.ids) else inside
                self._write()
        self.place = next_start

    def _write(self) -> None:
        """Writes the current shard's ids and document ends, and a record of its hashes and where
        the next begins, and starts an empty shard.
        """
        number, ids = len(self.shards), self.ids[: self.filled]
        documents = np.concatenate(self.documents)
        for name, content in zip(names(number), (ids, documents), strict=True):
            write_atomic(self.folder / name, content.tobytes())
        shard = Shard(
            tokens=len(ids),
            documents=len(documents),
            unknown=self.vocabulary.special.unknown(ids),
            characters=int(documents[:, 1].sum(dtype=np.int64)),
            sha256=hashes(self.folder, number),
        )
        record = dataclasses.asdict(_Record(shard, self.place))
        write_atomic(self.folder / f"{number:05}.json", json.dumps(record))
        self.shards.append(shard)
        self.filled, self.documents = 0, []

    def _write_index(self) -> Index:
        """Writes the index file, deletes the plan and the records of the shards, and returns the
        index.
        """
        special = self.vocabulary.special
        requested = self.job.vocabulary
        index = Index(
            format=FORMAT,
            dtype="uint16" if self.dtype.itemsize == 2 else "uint32",
            length=self.job.length,
            special={name: getattr(special, name) for name in ("pad", "bos", "eos", "unk")},
            vocabulary={
                "sha256": digest(self.vocabulary),
                "pieces": self.vocabulary.size,
                "settings": self.vocabulary.settings,
                "sample": None if isinstance(requested, Vocabulary) else self.job.sample,
            },
            source=self.source,
            skipped=self.place.skipped,
            shards=tuple(self.shards),
        ).sealed()
        write_atomic(self.folder / INDEX, json.dumps(dataclasses.asdict(index), indent=1))
        for number in range(len(self.shards)):
            (self.folder / f"{number:05}.json").unlink(missing_ok=True)
        (self.folder / PLAN).unlink()
        return index


def advice(folder: Path) -> str:
    """Returns a sentence with the command-line arguments that train on a prepared folder, read as
    the split that its name says or else as "train".
    """
    split = folder.name if folder.name in SPLITS else "train"
    where = {"": "shards", ".directory": folder.parent}
    where |= {} if folder.name == split else {f".{split}": folder.name}
    read = shlex.join(f"--config.data{name}={value}" for name, value in where.items())
    other_splits = " and ".join(f"'{other}'" for other in SPLITS if other != split)
    return f"""it is read as the split '{split}', with folders {other_splits} beside it, by
  train --config=configs/language_modelling.py:decoder {read} --config.batch.texts=packed"""
