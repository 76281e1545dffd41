"""How much memory does `launch.py prepare` take for a text of so many megabytes, and how long?

    python -m benchmarks.preparing --megabytes=1000 --vocabulary=bpe --size=8000

Writes lines of made-up words (50,000 of them, frequent ones more often) to a folder of its own, turns
them into shards, and adds up, four times a second, the proportional memory (Pss, Linux) of the
command and of all processes it starts.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from attnlab.progress import table
from benchmarks import rounds

WORDS, LINE, MIB = 50_000, 20, 2**20


def main() -> None:
    """Print a row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--vocabulary", default="bpe")
    parser.add_argument("--size", type=int, default=8000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        write(text, chosen.megabytes * 1_000_000)
        began = time.perf_counter()
        command = [sys.executable, "launch.py", "prepare", f"--to={folder}/shards"]
        command += [f"--from={text}", f"--vocabulary={chosen.vocabulary}", f"--size={chosen.size}"]
        command += [f"--processes={chosen.processes}"]
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        most = 0
        while running.poll() is None:
            most = max(most, sum(map(memory, family(running.pid))))
            time.sleep(0.25)
        seconds = time.perf_counter() - began
        if running.returncode:
            sys.exit(running.returncode)
    columns = ("text, MB", "vocabulary", "processes", "peak memory, MiB", "seconds", "MB a second")
    speed = chosen.megabytes / seconds
    row = (
        *(chosen.megabytes, chosen.vocabulary, chosen.processes),
        *(round(most / MIB), round(seconds, 1), round(speed, 2)),
    )
    table("prepare", columns, [row])
    rounds.save(chosen.json, {"rows": [dict(zip(columns, row, strict=True))]})


def write(path: Path, size: int) -> None:
    """At least `size` bytes of lines of made-up words."""
    draw = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    words = ["".join(draw.choice(letters, draw.integers(2, 10))) for _ in range(WORDS)]
    with path.open("w") as file:
        written = 0
        while written < size:
            ranks = np.minimum(draw.zipf(1.3, 20_000) - 1, WORDS - 1)
            lines = [
                " ".join(words[rank] for rank in ranks[at : at + LINE])
                for at in range(0, len(ranks), LINE)
            ]
            written += file.write("\n".join(lines) + "\n")


def family(pid: int) -> list[int]:
    """A process and all that it has started, as far as they still run."""
    pids = [pid]
    for member in pids:
        try:
            children = Path(f"/proc/{member}/task/{member}/children").read_text().split()
        except OSError:
            continue
        pids += map(int, children)
    return pids


def memory(pid: int) -> int:
    """The bytes of a process, shared pages divided among those that share them; 0 once it has
    ended.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


if __name__ == "__main__":
    main()
