"""Chunks of text to ids, in several processes, in the order of the chunks.

Chunk i goes to process i mod n, which has the next one at hand while it works on one. What is in
flight does not grow with the text. A process ends when its pipe closes, so none outlives the one
that feeds it, however that ends.
"""

import collections
import itertools
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Generator, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attnlab.data.documents import BadSource, Chunk, Corpus, pieces
from attnlab.data.vocabulary import TOKENIZER, Vocabulary
from attnlab.errors import UserError

_AHEAD = 2  # chunks that a process has at a time


class Encoded(NamedTuple):
    """The ids of a chunk, EOS behind every document that ends in it.

    Attributes:
      ids: [N] uint16 or uint32.
      ends: [P] int64, where each piece of a document ends.
      ended: [P] bool, whether the document ends there.
      characters: [P] int64, as the vocabulary sees them, the end of a document one of them.
      skipped: records without text.
    """

    ids: np.ndarray
    ends: np.ndarray
    ended: np.ndarray
    characters: np.ndarray
    skipped: int


class Encoder:
    """Chunks of a corpus to ids."""

    def __init__(self, corpus: Corpus, vocabulary: Vocabulary) -> None:
        """Stores the corpus and the vocabulary; ids are uint16, or uint32 for more than 65,536
        pieces.
        """
        self._corpus, self._vocabulary = corpus, vocabulary
        self._dtype = np.dtype("<u2" if vocabulary.size <= 2**16 else "<u4")
        self._cache: dict[str, list[int]] = {}

    def __call__(self, chunk: Chunk) -> Encoded:
        """Encodes a chunk as `Encoded`: ids with EOS after each document that ends there, of each
        piece of text its end, whether a document ends and its characters, and the number of skipped
        records; raises `BadSource` for text that cannot be read or contains EOS.
        """
        documents, skipped = pieces(self._corpus, chunk)
        texts = [text for text, _ in documents]
        ended = np.array([ends for _, ends in documents], bool)
        ids = list(self._vocabulary.encode_stream(texts, cache=self._cache))
        lengths = np.array([len(tokens) for tokens in ids], np.int64) + ended
        ends = np.cumsum(lengths)
        flat = np.full(int(lengths.sum()), self._vocabulary.special.eos, self._dtype)
        if len(ids):
            real = np.ones(len(flat), bool)
            real[ends[ended] - 1] = False
            flat[real] = joined = np.concatenate(ids)
            self._check(joined, chunk)
        return Encoded(flat, ends, ended, self._characters(texts, ended), skipped)

    def _check(self, ids: np.ndarray, chunk: Chunk) -> None:
        """Raises `BadSource`, which names the file of the chunk, if the ids that the tokenizer made
        of ordinary text contain the EOS id.
        """
        if (ids == self._vocabulary.special.eos).any():
            raise BadSource(
                f"{self._corpus.files[chunk.file]}: the tokenizer makes its end of text (id"
                f" {self._vocabulary.special.eos}) of ordinary text; choose another tokenizer"
            )

    def _characters(self, texts: list[str], ended: np.ndarray) -> np.ndarray:
        """Returns the number of normalized characters of each text, plus one for its end (where
        `ended`) or for the blank that it is cut behind, unless blanks are characters.
        """
        lengths = np.array([len(self._vocabulary.normalize(text)) for text in texts], np.int64)
        with_blanks = self._vocabulary.settings["kind"] in ("char", TOKENIZER)
        return lengths + (ended if with_blanks else 1)


def encode_chunks(
    corpus: Corpus, vocabulary: Path, chunks: Iterator[Chunk], processes: int
) -> Generator[tuple[Chunk, Encoded]]:
    """Encodes chunks of a corpus with the vocabulary saved at a path and yields each chunk with its
    ids (`Encoded`), in the order of the chunks; with `processes` above 1, in as many child
    processes.

    Args:
      corpus: from which the chunks are.
      vocabulary: path of the saved vocabulary.
      chunks: what is encoded, in order.
      processes: 1 for this process, more for as many child processes.

    Raises:
      UserError: see `Encoder`; a process was killed.
    """
    if processes == 1:
        encode = Encoder(corpus, Vocabulary.load(vocabulary))
        for chunk in chunks:
            yield chunk, encode(chunk)
        return
    workers = [_Worker(corpus, vocabulary) for _ in range(processes)]
    try:
        waiting: collections.deque[tuple[Chunk, _Worker]] = collections.deque()
        next_workers = itertools.cycle(workers)
        for chunk in chunks:
            worker = next(next_workers)
            worker.send(chunk)
            waiting.append((chunk, worker))
            if len(waiting) == _AHEAD * processes:
                first, worker = waiting.popleft()
                yield first, worker.receive()
        while waiting:
            first, worker = waiting.popleft()
            yield first, worker.receive()
    finally:
        for worker in workers:
            worker.stop()


class _Worker:
    """A process that encodes chunks, and the pipe to it."""

    def __init__(self, corpus: Corpus, vocabulary: Path) -> None:
        """Starts a child process that encodes the chunks it receives through a pipe."""
        context = multiprocessing.get_context("spawn")
        self._pipe, child = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(child, corpus, vocabulary), daemon=True
        )
        self._process.start()
        child.close()

    def send(self, chunk: Chunk) -> None:
        """Sends the child process a chunk; raises `UserError` if the process was killed."""
        try:
            self._pipe.send(chunk)
        except OSError as error:
            raise self._killed_error() from error

    def receive(self) -> Encoded:
        """Receives and returns the `Encoded` of the oldest chunk sent and not yet returned; raises
        the error that it caused in the child process, or `UserError` if the process was killed.
        """
        try:
            result: Encoded | Exception = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise self._killed_error() from error
        if isinstance(result, Exception):
            raise result
        return result

    def stop(self) -> None:
        """Closes the pipe, upon which the child process ends, and kills it if it runs 5 s later."""
        self._pipe.close()
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _killed_error(self) -> UserError:
        """Waits up to 5 s for the killed process to end and returns (does not raise) a `UserError`
        with its exit code.
        """
        self._process.join(timeout=5)
        return UserError(
            f"a process that encodes text was killed (exit code {self._process.exitcode}), for want"
            " of memory perhaps; run the command again, it goes on; --processes=N takes fewer"
        )


def _serve(pipe: Connection, corpus: Corpus, vocabulary: Path) -> None:
    """Runs in the child process: loads the vocabulary from its path, encodes each chunk of the
    corpus that comes through the pipe and sends back its ids or the error, until the pipe closes.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the process that feeds this one
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # this process is one of as many as are wanted
    received: queue.SimpleQueue[Chunk] = queue.SimpleQueue()

    def receive() -> None:
        """Moves chunks from the pipe into a queue in a thread of its own, so that neither end
        blocks the other; ends the process when the pipe closes.
        """
        try:
            while True:
                received.put(pipe.recv())
        except (EOFError, OSError):
            os._exit(0)

    threading.Thread(target=receive, daemon=True).start()
    encode = Encoder(corpus, Vocabulary.load(vocabulary))
    while True:
        result: Encoded | Exception
        try:
            result = encode(received.get())
        except Exception as error:
            result = error
        try:
            pipe.send(result)
        except OSError:
            return
