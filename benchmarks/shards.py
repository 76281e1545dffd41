"""How fast does training read shards, and in how much memory are they made?

    python -m benchmarks.shards                          # reading, tokens a second of one core
    python -m benchmarks.shards --prepare=1 --processes=2   # making them of 1 GB of text

Reading: batches of documents of 300 tokens on average, in memory of the process and of its own
(without pages of the files, which the system takes back when it wants them). Making: made-up text,
words by Zipf's law over 200,000, in lines; seconds, and the most memory that the command and its
processes had at a time, pages that they share counted in each.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from attnlab.data.blocks import Blocks
from attnlab.data.documents import Corpus
from attnlab.data.preparing import Asked, prepare
from attnlab.data.shard_folder import opened
from attnlab.data.shards import Stored
from attnlab.data.streams import Lanes
from attnlab.progress import table
from benchmarks import rounds

SHAPES = ((64, 128), (16, 512), (64, 1024))
KINDS = 200_000  # different words


def main() -> None:
    """Measure and print one of the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=50_000_000)
    parser.add_argument("--seconds", type=float, default=3.0, help="of every measurement")
    parser.add_argument("--prepare", type=float, metavar="GB", help="make shards of so much text")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--folder", help="where the text and the shards go; they are removed")
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args()
    about = rounds.machine()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
        where = Path(name)
        if chosen.prepare:
            columns = ("GB of text", "processes", "seconds", "CPU s", "MB/s a CPU s", "most MiB")
            rows = [making(where, chosen.prepare, chosen.processes)]
            title = "shards made"
        else:
            columns = ("batches", "rows", "tokens", "M tokens/s", "own MiB before", "after")
            rows = reading(where, chosen.tokens, chosen.seconds)
            title = f"shards of {chosen.tokens:,} tokens read by one core"
    table(f"{title}; {about['cores']} cores, load before {about['load_before']}", columns, rows)
    rounds.save(
        chosen.json, {"rows": [dict(zip(columns, row, strict=True)) for row in rows], **about}
    )


def reading(where: Path, tokens: int, seconds: float) -> list[tuple[Any, ...]]:
    """A row for every way to read and every shape."""
    ids = _shards(where, tokens)
    rows = []
    for size, length in SHAPES:
        batches: dict[str, Callable[[int], Any]] = {
            "packed, shuffled": Blocks(ids.ids, size=size, length=length, seed=0),
            "joined": Lanes(ids.ids, size=size, length=length),
        }
        for name, source in batches.items():
            before = _own_memory()
            rate = _rate(source, seconds) * size * length / 1e6
            rows.append((name, size, length, round(rate, 1), before, _own_memory()))
    return rows


def _rate(batches: Callable[[int], Any], seconds: float) -> float:
    """Batches for each second of the processor, of as many as take `seconds`; the first ones,
    which bring the files into memory, do not count.
    """
    for step in range(20):
        batches(step)
    began, step = time.process_time(), 20
    while time.process_time() - began < seconds:
        batches(step)
        step += 1
    return (step - 20) / (time.process_time() - began)


def _shards(where: Path, tokens: int) -> Stored:
    """A folder of made-up ids: one that `prepare` has made of a line, with other ids in it."""
    text = where / "text.txt"
    rng = np.random.default_rng(0)
    length = 2**22
    lengths = rng.geometric(1 / 300, size=tokens // 300)
    with open(text, "w") as file:
        for count in lengths.tolist():
            file.write("a " * (count - 1) + "\n")
    learned = {"kind": "word", "size": 10, "min_frequency": 1, "lowercase": False}
    folder = where / "shards"
    prepare(folder, Asked(Corpus((text,)), learned, 1, length), 1, _silent, _silent)
    for number, path in enumerate(sorted(folder.glob("*.tokens"))):
        ids = np.fromfile(path, "<u2")
        other = np.random.default_rng(number).integers(3, 2**16, len(ids)).astype("<u2")
        np.where(ids == 2, ids, other).astype("<u2").tofile(path)
    index = opened(folder)
    return Stored(folder, index, 0, index.total("documents"))


def _silent(message: object) -> None:
    pass


def making(where: Path, size: float, processes: int) -> tuple[Any, ...]:
    """A row for the command `prepare` on made-up text of so many GB."""
    text = where / "text.txt"
    _written(text, int(size * 1e9))
    command = [sys.executable, "launch.py", "prepare", f"--to={where / 'shards'}"]
    command += [f"--from={text}", "--size=32000", f"--processes={processes}"]
    began, bytes_, used = time.perf_counter(), [0], [0.0]
    done = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def watch() -> None:
        while done.poll() is None:
            memory, spent = _of_tree(done.pid)
            bytes_[0], used[0] = max(bytes_[0], memory), max(used[0], spent)
            time.sleep(0.1)

    thread = threading.Thread(target=watch)
    thread.start()
    if done.wait():
        raise RuntimeError(f"exit code {done.returncode} of {' '.join(command)}")
    seconds = time.perf_counter() - began
    thread.join()
    index = json.loads((where / "shards" / "index.json").read_text())
    assert index["source"]["files"][0]["bytes"] == text.stat().st_size
    rate = text.stat().st_size / 1e6 / used[0]
    return (size, processes, round(seconds, 1), round(used[0], 1), round(rate, 1), bytes_[0] >> 20)


def _written(path: Path, size: int) -> None:
    """Made-up text of at least so many bytes, a hundred lines at a time."""
    rng = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgkqjxz"))
    words = ["".join(rng.choice(letters, rng.integers(2, 11))) for _ in range(KINDS)]
    shares = 1.0 / np.arange(1, KINDS + 1)
    bounds = np.cumsum(shares / shares.sum())
    with open(path, "w") as file:
        while file.tell() < size:
            numbers = np.searchsorted(bounds, rng.random(200_000)).clip(max=KINDS - 1).tolist()
            for begin in range(0, len(numbers), 20):
                file.write(" ".join([words[n] for n in numbers[begin : begin + 20]]) + "\n")


def _of_tree(process: int) -> tuple[int, float]:
    """Resident bytes and processor seconds of a process and of those it has started."""
    memory, seconds = 0, 0.0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if process in (int(folder.name), int(fields[1])):  # itself, or its child
            memory += int(fields[21]) * os.sysconf("SC_PAGESIZE")
            seconds += (int(fields[11]) + int(fields[12])) / 100
    return memory, seconds


def _own_memory() -> int:
    """MiB of memory that are no pages of files."""
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) >> 10


if __name__ == "__main__":
    rounds.main(main)
