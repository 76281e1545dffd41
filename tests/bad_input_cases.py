"""What the tests of bad input share: the command as a user runs it, a folder before and after, a
tiny run, and the cases in tables.

Every case names the essential words of its one line: what is wrong, where, and the nearest choice.
"""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from tests.commands.tiny import CommandResult, run_command, train, under
from tests.flags import FAST

ROOT = Path(__file__).parents[1]
STEPS = 12  # of the tiny run
LIMIT = 32  # its batch.max_length
LONG = "ein satz " + "und noch einer " * 5  # longer than that
RNNSEARCH = "--config=configs/translation.py:rnnsearch"
TRANSFORMER = "--config=configs/translation.py:transformer"
SYSTEM = ("encoder", "decoder", "embedding", "maxout")


def environment() -> dict[str, str]:
    """That of a user on a machine with four devices, without what a test runner adds."""
    kept = {key: one for key, one in os.environ.items() if not key.startswith(("PYTEST", "XLA_"))}
    flags = f"--xla_force_host_platform_device_count=4 {FAST}"
    return kept | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}


def launch(*argv: str | bytes, stdin: bytes = b"", start: bool = False) -> CommandResult:
    """`launch.py ...` from the repository root: in this process, which takes a tenth of the time,
    or with `start` as a user starts it, and so wherever that makes a difference.
    """
    words = [one for one in argv if isinstance(one, str)]
    if not (start or len(words) < len(argv)):
        with mock.patch.object(sys, "argv", ["launch.py", *words]), contextlib.chdir(ROOT):
            return run_command(words, stdin)
    done = subprocess.run(
        [sys.executable, "launch.py", *argv],
        input=stdin,
        capture_output=True,
        cwd=ROOT,
        env=environment(),
        timeout=300,
        check=False,
    )
    return CommandResult(done.returncode, done.stdout.decode(), done.stderr.decode())


def refused(done: CommandResult, *words: str, begun: bool = False) -> str:
    """The one line on stderr, which has all `words`; with `begun` there is progress before it, else
    nothing.

    Raises:
      AssertionError: exit code other than 2, more than the one line, results on stdout, a word is
        not there.
    """
    *before, line = done.err.splitlines() or [""]
    assert (done.code, done.out) == (2, ""), done
    assert line.startswith("launch.py: error: ") and "Traceback" not in done.err, done.err
    assert begun or not before, done.err
    assert not any("error" in one or "Error" in one for one in before), done.err
    missing = [word for word in words if word not in line]
    assert not missing, f"{missing} not in: {line}"
    return line


def contents(folder: Path) -> dict[str, str]:
    """Every folder, link and file below, files by the digest of their bytes; all but `.lock`, which
    says who held it last.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_file() and name != ".lock":
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif path.is_dir():
            found[name] = "folder"
    return found


def check_kept(
    run: Path,
    *command: str | bytes,
    words: tuple[str, ...],
    begun: bool = False,
    start: bool = False,
) -> str:
    """The line of a command that is refused and leaves the run as it was."""
    before = contents(run)
    line = refused(launch(*command, start=start), *words, begun=begun)
    assert contents(run) == before
    return line


def write_text(folder: Path, long: int = 2) -> Path:
    """Parallel files of three splits, with `long` training pairs above the limit; all targets are
    alike, so a model soon writes them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", 48), ("valid", 8), ("test", 1)):
        source = [f"satz {i % 5} und {i % 7}" for i in range(count)]
        if split == "train":
            source[:long] = [LONG] * long
        (folder / f"{split}.de").write_text("".join(line + "\n" for line in source))
        (folder / f"{split}.en").write_text(
            "".join("a" * (12 + i % 5) + "\n" for i in range(count))
        )
    return folder


def settings(data: Path, workdir: Path) -> list[str]:
    """The flags of a run of seconds on the files in `data`."""
    values = [
        *under("system", **dict.fromkeys(SYSTEM, 8)),
        *("data=files", f"data.directory={data}", "schedule.warmup=6", "checkpoint.every=4"),
        *under("batch", size=16, buckets=LIMIT, max_length=LIMIT),
        *under("training", steps=STEPS, log_every=1, evaluate_every=6),
        *under("decoding", method="greedy", max_ratio=0.5, max_extra=2, batch=8),
        "parallel.devices=1",
    ]
    return train("translation.py:rnnsearch", workdir, *values)[1:]


def rewrite_config(workdir: Path, key: str, value: Any) -> None:
    """Make the run in `workdir` one of another config: `key` and the hash that goes with it."""
    from attnlab.config.tree import config_hash, from_dict, to_dict
    from tests.experiments.synthetic import edit

    config = from_dict(json.loads((workdir / "manifest.json").read_text())["config"])
    config.update_from_flattened_dict({key: value})
    edit(workdir / "manifest.json", config=to_dict(config), config_hash=config_hash(config))


def truncate(path: Path) -> None:
    """Cut a file in half."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    """Flip one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


# --- the cases ---

HEADS = ["width=128 is not divisible by heads=3", "heads could be 1 or 2 or 4"]

CONFIGS: Mapping[str, tuple[str, list[str]]] = {
    "no config": ("", ["no --config given", "--config=configs/translation.py", "list configs"]),
    "a folder as config": ("--config=configs", ["'configs' is a folder", "did you mean 'configs/"]),
    "unknown argument of the config": (
        "--config=configs/translation.py:rnsearch",
        ["no system 'rnsearch'", "did you mean 'rnnsearch'"],
    ),
    "misspelt override": (
        f"{RNNSEARCH} training.stesp=3",
        ["config.training.stesp: no such key", "did you mean 'training.steps'"],
    ),
    "indivisible heads": (f"{TRANSFORMER} system.encoder_attention.heads=3", HEADS),
    "unknown mechanism": (
        f"{RNNSEARCH} system.attention=singel",
        ["config.system.attention: unknown mechanism 'singel'", "did you mean 'single'?"],
    ),
    "shared tables without a shared vocabulary": (
        f"{TRANSFORMER} system.share=all vocabulary.shared=false",
        ["share='all' needs one vocabulary", "vocabulary.shared=true or share='output'"],
    ),
    "batch not divisible by accumulate": (
        f"{RNNSEARCH} batch.size=30 training.accumulate=4 parallel.devices=1 data.examples=64",
        ["batch.size=30 is not divisible by 4", "devices x training.accumulate", "take 28 or 32"],
    ),
}
"""`train` with a bad config: its flag and overrides, and the words of its line."""


DATA: Mapping[str, tuple[Callable[[Path], object], list[str]]] = {
    "missing folder": (
        lambda folder: folder.rename(folder.with_name("txt")),
        ["cannot find {data}/train.de", "the folder {data} cannot be read", "did you mean 'txt'?"],
    ),
    "all sentences too long": (
        lambda folder: write_text(folder, long=48),
        [
            "no sentence pair is within config.batch.max_length=32",
            "of 48 pairs",
            f"the shortest has {len(LONG.strip()) + 1} tokens",
        ],
    ),
}
"""`train` on bad files: what is done to good ones, and the words of its line ({data} is their folder)."""

GENERATE: Sequence[tuple[list[str], bytes, list[str]]] = [
    ([], b"satz 1\nsatz \xff\n", ["stdin, line 2: not UTF-8 (byte 6)"]),
    (["--input={folder}/latin.txt"], b"", ["{folder}/latin.txt, line 1: not UTF-8 (byte 2)"]),
    (["--input={folder}/latn.txt"], b"", ["cannot read {folder}/latn.txt", "did you mean 'latin"]),
    (["--input={folder}"], b"", ["cannot read {folder}: Is a directory"]),
    (["--output={folder}/absent/out.txt"], b"satz 1\n", ["there is no folder {folder}/absent"]),
    (["--output={folder}"], b"satz 1\n", ["{folder} is a folder; name a file"]),
    (["--config.decoding.method=beem"], b"satz 1\n", ["decoding.method='beem'", "mean 'beam'?"]),
]
"""`generate` with a trained run: flags, stdin, and the words of its line ({folder} holds latin.txt)."""

INSPECT: Sequence[tuple[list[str], list[str]]] = [
    ([], ["--text=TEXT", "--file=FILE"]),
    (["--source= "], ["--source= is empty", "write a value"]),
    (["--pairs={folder}/pairs", "--target=aa"], ["--target goes with --text"]),
    (["--pairs={folder}/pairs"], ["{folder}/pairs, line 2", "expected 'source' or 'source TAB"]),
    (["--pairs={folder}/pair"], ["cannot read {folder}/pair", "did you mean 'pairs'?"]),
    (["--pairs=-"], ["holds no pairs"]),
    (["--source=a", "--pairs=b"], ["give either --text=TEXT"]),
    (["--pairs={folder}/blank"], ["{folder}/blank, line 1", "expected 'source'"]),
    (["--source=satz 1", "--output={folder}/pairs"], ["--output={folder}/pairs", "not a folder"]),
]
"""`inspect` with a trained run: flags, and the words of its line ({folder} holds pairs)."""
