"""The page of a sweep at work: `status.html`, which a browser reads anew while it is open."""

import time
from collections.abc import Iterator
from pathlib import Path

from attnlab.experiments.report.contents import gather
from attnlab.experiments.report.page import page
from attnlab.experiments.run import SILENT_AT_FIRST, Seen
from attnlab.records.files import write_atomic
from attnlab.records.locks import is_elsewhere, is_held

EVERY = 10
"""Seconds between two pages, and between two readings of a browser."""
ALONE = 60.0
"""Seconds without a launcher or a trial at work after which nobody is taken to go on."""
_SHARE = 20  # times as long as the making of a page is the time to the next one, at least


def keep_page(directory: Path) -> Iterator[str]:
    """Writes the report so far to `status.html` in the folder of a sweep, `EVERY` seconds or more
    apart, and yields one line of text on its extent each time, until it is complete, or no process
    holds it and its trials have settled or had no work for `ALONE` seconds.
    """
    over, busy = False, time.monotonic()
    while not over:
        began = time.monotonic()
        contents = gather(directory)
        settled = all(record.seen.settled for record in contents.records.wanted)
        held = is_held(directory)
        if held or any(_at_work(record.seen, directory) for record in contents.records.trials):
            busy = began
        left = settled or began - busy > ALONE
        over = contents.records.complete or (left and not held)
        anew = "" if over else f'<meta http-equiv="refresh" content="{EVERY}">\n'
        text = page(contents).replace("<title>", f"{anew}<title>", 1)
        write_atomic(directory / "status.html", text)
        yield contents.extent
        time.sleep(0 if over else max(EVERY, _SHARE * (time.monotonic() - began)))


def _at_work(seen: Seen, directory: Path) -> bool:
    """Returns whether a process of this machine works on a trial, or one of another machine has
    taken it and written something lately.
    """
    lately = (seen.age(time.time()) or 0.0) < SILENT_AT_FIRST
    return seen.state == "running" or (lately and is_elsewhere(seen.trial.workdir(directory)))
