"""Which trackers (Weights & Biases, MLflow, Trackio) see a run or a sweep while it is at work, and
the processes that tell them.

The choice stands in the folder, with the id that a single run has there; so whoever goes on with it
is the same run to every tracker. A process for each tracker reads the records beside the work
(`attnlab.experiments.report.trackers.following`): the work itself is what it is without one.
"""

import argparse
import contextlib
import dataclasses
import importlib.util
import json
import os
import re
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from attnlab.errors import TRACEBACK, UserError, nearest
from attnlab.progress import patience
from attnlab.records.files import write_atomic
from attnlab.records.json_kinds import read_file

FILE = "tracking.json"
TRACKERS = ("wandb", "mlflow", "trackio")
HELP = (
    "show it live in wandb (./wandb; wandb:online), mlflow (./mlflow.db; mlflow:http://HOST:PORT),"
    " trackio, with commas between; the folder keeps the choice, until 'none'"
)
_FOLLOWING = "attnlab.experiments.report.trackers.following"
_PACKAGE = Path(__file__).resolve().parents[2]
_LONGEST = 600.0  # seconds that the last words to a tracker may take in all


@dataclasses.dataclass(frozen=True)
class Tracking:
    """The trackers of a run or a sweep, as `FILE` holds them.

    Attributes:
      to: tracker to where it keeps runs: a folder or "online"; the address of a store; "local".
      id: of a single run, in every tracker.
    """

    to: dict[str, str] = dataclasses.field(default_factory=dict)
    id: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))

    @classmethod
    def read(cls, directory: Path) -> "Tracking | None":
        """Returns what the folder of a run or a sweep says; None where it was never tracked."""
        return read_file(directory / FILE, cls, "remove it; trackers then see a new run")

    @classmethod
    def choose(cls, directory: Path, flag: str | None) -> "Tracking":
        """Returns the `Tracking` of the trackers that `flag`, the text of `--track`, names, or, if
        it is None, those stored in the folder, if any; raises `UserError` for a tracker that does
        not exist or is not installed, or an address that is wrong or has a user or a password.

        Raises:
          UserError: no such tracker or address, one that is not installed, or an address with a
            user or a password.
        """
        chosen = cls.read(directory) or cls()
        if flag is not None:
            chosen = dataclasses.replace(chosen, to=_addresses(flag))
        for name, where in chosen.to.items():
            check_installed(name, f"--track={name}")
            if re.search("^http.*@|://[^/@]*:.*@|[?&]pass", where):
                raise UserError(
                    f"--track={name}: its address has a user or a password, which are never stored;"
                    " leave them out (also of MLFLOW_TRACKING_URI), and set"
                    " MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
                )
        return chosen

    @contextlib.contextmanager
    def beside(self, directory: Path) -> Iterator[None]:
        """A context that stores the choice of trackers in `directory` (an empty one only over an
        earlier one) and, until its block ends, runs a process for each chosen tracker that sends
        it the records written to the folder; at the end of the block it waits, up to a limit, while
        they send the rest.
        """
        if self.to or (directory / FILE).exists():
            write_atomic(directory / FILE, json.dumps(dataclasses.asdict(self), indent=1) + "\n")
        with contextlib.ExitStack() as processes:
            for name, where in self.to.items():
                processes.enter_context(_tracker_process(directory, name, where))
            yield


def add_flag(parser: argparse.ArgumentParser) -> None:
    """Adds `--track`, which commands that train have."""
    parser.add_argument("--track", metavar="NAME[:WHERE],...", help=HELP)


def check_installed(name: str, flag: str) -> None:
    """Raises UserError, which begins with `flag`, unless a tracker's packages are there, without
    importing them; a folder of the name, which trackers leave, is none.
    """
    for module in (name, "sqlalchemy", "alembic") if name == "mlflow" else (name,):
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise UserError(f"{flag} needs {module}: pip install 'attnlab[{name}]'")


def _addresses(flag: str) -> dict[str, str]:
    """Returns {tracker: address where it stores runs} for the text of `--track`, such as
    "wandb,mlflow:http://host:5000", with default addresses where it has none, {} for "none"; raises
    UserError for anything else.
    """
    folder, to = Path.cwd(), dict[str, str]()
    usual = {
        "wandb": str(folder / os.environ.get("WANDB_DIR", "")),
        "mlflow": os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder / 'mlflow.db'}",
        "trackio": "local",
    }
    for word in flag.split(",") if flag != "none" else ():
        name, _, where = word.strip().partition(":")
        if name not in TRACKERS:
            raise UserError(f"--track={flag}: no tracker {name!r}; {nearest(name, TRACKERS)}")
        if where and not re.fullmatch("wandb:online|mlflow:.+://.*", word.strip()):
            usage = f"{', '.join(TRACKERS)}, wandb:online or mlflow:http://HOST:PORT"
            raise UserError(f"--track={flag}: {word}; write {usage}")
        to[name] = where or usual[name]
    return to


@contextlib.contextmanager
def _tracker_process(directory: Path, name: str, where: str) -> Iterator[None]:
    """A context that runs a process which sends the records of `directory` to the tracker `name` at
    the address `where`, prints its messages on stderr, and at the end waits until all are sent, but
    kills it after Ctrl-C or a time limit.
    """
    path = os.pathsep.join(filter(None, (str(_PACKAGE), os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", _FOLLOWING, name, where, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if os.environ.get(TRACEBACK) else subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,  # Ctrl-C is for the work
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    lines = process.stdout

    def say() -> None:
        for line in lines:
            print(line.rstrip(), file=sys.stderr)

    speaker = threading.Thread(target=say, daemon=True)
    speaker.start()
    try:
        yield
    except KeyboardInterrupt:
        process.kill()
        raise
    finally:
        process.stdin.close()  # it tells the rest and leaves
        try:
            with patience(f"telling {name} the rest"):
                process.wait(_LONGEST)
        except subprocess.TimeoutExpired:
            remedy = f"'export {directory} --to={name}' writes all of it"
            print(f"{name}: not at the end after {_LONGEST:g} s; {remedy}", file=sys.stderr)
        finally:
            process.kill()
            process.wait()
            speaker.join(1.0)
