"""A page in a headless Chromium: what a script in it returns, and its errors."""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

CHROMIUM = os.environ.get("CHROME") or shutil.which("chromium") or ""
_DRIVE = Path(__file__).with_name("drive.js").read_text(encoding="utf-8")


def run_in_page(path: Path, body: str, fragment: str = "", *, at_once: bool = False) -> Any:
    """Opens a copy of a page at 1400 x 900 pixels, runs the body of a function in it after those of
    `drive.js`, and returns its value; AssertionError with the errors of the page.

    Args:
      path: of the page; the copy is written beside it.
      body: JavaScript with `return`.
      fragment: of the address, from "#" on.
      at_once: the body runs in real time before the page has loaded, and cannot wait; otherwise
        time passes as fast as the page works.
    """
    copy, text = path.with_name("driven.html"), path.read_text(encoding="utf-8")
    call = f"write((() => {{{body}}})())" if at_once else f"runLater(async () => {{{body}}})"
    text = text.replace("<head>", f"<head><script>{_DRIVE}</script>", 1)
    copy.write_text(f"{text}<script>{call};</script>", encoding="utf-8")  # the parser moves it
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    flags += ["--window-size=1400,900", f"--user-data-dir={path.with_name('profile')}"]
    flags += ["--virtual-time-budget=30000"] * (not at_once)
    command = [CHROMIUM, *flags, f"{copy.as_uri()}{fragment}"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True).stdout
    (outcome,) = re.findall('<pre id="outcome">(.*?)</pre>', shown, re.DOTALL)
    value, errors = json.loads(html.unescape(outcome))
    assert not errors, errors
    return value
