"""`digests.json`: the SHA-256 of a run's records as they were when its test split was scored, so that
a report can say which of them are no longer what the run left.

It is written before `results.json`, the last record of a run. This guards against mixed-up copies
and edits by hand, not against somebody who edits this file too.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from attnlab.records.files import write_atomic
from attnlab.records.items import FILE as ITEMS
from attnlab.records.json_kinds import read_file

FILE, RESULTS = "digests.json", "results.json"
_KEPT = (ITEMS, "metrics.jsonl", "valid.json")


def write_results(workdir: Path, results: str, texts: Mapping[str, str] | None = None) -> None:
    """Writes into a run's folder the files `texts` (text by file name), then `digests.json` with
    the SHA-256 of each of the run's records that exists, by file name, and last `results.json` with
    the text `results`.

    Args:
      workdir: of the run; its other records are there.
      results: the text of `results.json`.
      texts: those of the further files, by name.
    """
    texts = texts or {}
    for name, text in texts.items():
        write_atomic(workdir / name, text)
    digests = {name: _digest(workdir / name) for name in (*_KEPT, *texts)}
    digests[RESULTS] = hashlib.sha256(results.encode()).hexdigest()
    present = {name: digest for name, digest in digests.items() if digest}
    write_atomic(workdir / FILE, json.dumps(present, indent=1) + "\n")
    write_atomic(workdir / RESULTS, results)


def altered_records(workdir: Path) -> list[str] | None:
    """Returns the file names of a run's records whose SHA-256 differs from that in its
    `digests.json`, lost files included, or None if that file does not exist (a run not scored, or
    of an older version).

    Raises:
      UserError: `digests.json` is damaged.
    """
    remedy = "put back a good copy, it says what the run left"
    recorded = read_file(workdir / FILE, dict[str, str], remedy)
    if recorded is None:
        return None
    return [name for name, digest in recorded.items() if _digest(workdir / name) != digest]


def _digest(path: Path) -> str:
    """Returns the SHA-256 of a file's bytes in hex, "" if there is no such file."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except (FileNotFoundError, IsADirectoryError):
        return ""
