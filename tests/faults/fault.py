"""What a seeded fault is: one text of one file of the package put in place of another, and who
should notice.

Faults are plain data, in list/**/*.txt. A list in list/FOLDER/ is about attnlab/FOLDER and
tests/FOLDER; one in list/ itself is about all of attnlab/ and tests/.

    = word text               from here on `word` stands for the text at the start of a test
    == file                   the faults that follow are in this file below attnlab/, or the list's folder of it
    @ what is wrong           a fault begins
    - old                     what stands there exactly once, a piece of a line or several lines
    + new                     what is put in its place
    ? test | test             who should notice, the likeliest first: "file" below tests/ or the list's folder of it, or "file: words",
                              the tests of it whose ids have all the words
    ! reason                  only where no test can be expected to notice: why
    # remark
"""

import dataclasses
import hashlib
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "attnlab"
TESTS = Path("tests")
LISTS = ROOT / "tests" / "faults" / "list"

# Asked last, where the tests that a fault names let it pass: all tests of its room. Elsewhere it is
# the test file that mirrors the source.
_PROMISES = "facts memories conformance"
_ATTENTION = {
    "scores": "scores score_facts facts",
    "alignments": "alignments alignment_families reinforce facts",
    "positions": "positions position_facts trees_and_grids facts",
    "visibility": "visibility facts",
    "mechanisms": _PROMISES,
    "view.py": f"view visibility {_PROMISES}",
    "kernels": f"kernels {_PROMISES}",
    "needs.py": "protocol composition weights_and_history",
    "protocol.py": f"protocol composition {_PROMISES}",
}
WHOLE = {
    f"attention/{room}": tuple(f"attention/test_{name}.py" for name in names.split())
    for room, names in _ATTENTION.items()
}
WHOLE["layers/dense.py"] = ("layers/test_dense.py", *WHOLE["attention/mechanisms"])


class Stale(Exception):
    """A fault that no longer fits the code it is about."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """One mistake; see the head of this file.

    Attributes:
      file: below attnlab/.
      what: the mistake in words.
      old, new: the text and what takes its place.
      tests: who should notice.
      survives: why nobody can; empty for a fault that must be caught.
    """

    file: str
    what: str
    old: str
    new: str
    tests: tuple[str, ...]
    survives: str = ""

    @property
    def name(self) -> str:
        """Its name, unique."""
        return f"{self.file}: {self.what}"

    @property
    def room(self) -> str:
        """The part of the package it is in; attention has parts of its own."""
        first, *rest = self.file.split("/")
        return f"{first}/{rest[0]}" if first == "attention" else first

    @property
    def module(self) -> str:
        """The module it changes."""
        name = self.file.removesuffix(".py").replace("/", ".")
        return f"attnlab.{name}".removesuffix(".__init__")

    def source(self) -> str:
        """The whole file with the mistake in it.

        Raises:
          Stale: the old text is not there exactly once, or the new one is no Python.
        """
        text = (SOURCES / self.file).read_text()
        if (times := text.count(self.old)) != 1:
            raise Stale(
                f"the old text stands {times} times in {self.file}, must be once: {self.old!r}"
            )
        changed = text.replace(self.old, self.new)
        try:
            compile(changed, self.file, "exec", dont_inherit=True)
        except SyntaxError as error:
            raise Stale(f"with the new text {self.file} is no Python: {error}") from error
        return changed

    def stages(self, everything: bool = False) -> tuple[str, ...]:
        """The tests to run, one choice after the other until one fails; with `everything` the tests
        of the whole folder and of all folders come last.
        """
        folder, _, name = self.file.rpartition("/")
        mirror = Path(folder, f"test_{name.removesuffix('.py').strip('_')}.py")
        rest = WHOLE.get(self.room, (str(mirror),) if (ROOT / TESTS / mirror).is_file() else ())
        if everything:
            rest = (*rest, *([folder.partition("/")[0]] if folder else []), ".")
        return (*self.tests, *(tests for tests in rest if tests not in self.tests))

    def digest(self) -> str:
        """Changes whenever the fault, the file it is in, or its tests' names do."""
        return hashlib.sha256("\0".join((self.source(), *self.tests)).encode()).hexdigest()[:16]


def read(path: Path) -> list[Fault]:
    """The faults of one list."""
    below = f"{path.parent.relative_to(LISTS)}/" if path.is_relative_to(LISTS) else ""
    below = below.removeprefix("./")
    words: dict[str, str] = {}
    faults: list[Fault] = []
    file = ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        sign, _, text = line.partition(" ")
        match sign:
            case "" | "#":
                pass
            case "=":
                words[text.partition(" ")[0]] = text.partition(" ")[2]
            case "==":
                file = f"{below}{text}"
            case "@":
                faults.append(Fault(file, text, "", "", ()))
            case "-" | "+" | "?" | "!":
                faults[-1] = _with_line(faults[-1], sign, text, words, below)
            case _:
                raise ValueError(
                    f"{path}:{number}: a line begins with {sign!r}; see tests/faults/fault.py for"
                    " the signs"
                )
    trim = dataclasses.replace
    return [trim(x, old=x.old.removesuffix("\n"), new=x.new.removesuffix("\n")) for x in faults]


def _with_line(fault: Fault, sign: str, text: str, words: dict[str, str], below: str) -> Fault:
    """A fault with one more line."""
    if sign == "-":
        return dataclasses.replace(fault, old=f"{fault.old}{text}\n")
    if sign == "+":
        return dataclasses.replace(fault, new=f"{fault.new}{text}\n")
    if sign == "!":
        return dataclasses.replace(fault, survives=text)
    choices = (choice.strip().partition(" ") for choice in text.split(" | "))
    tests = (f"{below}{words.get(first, first)} {rest}".strip() for first, _, rest in choices)
    return dataclasses.replace(fault, tests=tuple(tests))


def parse_choice(tests: str) -> tuple[str, tuple[str, ...]]:
    """ "file: words" to the path from the root, and the words."""
    file, _, words = tests.partition(":")
    return str(TESTS / file.strip()), tuple(words.split())


def selects(words: tuple[str, ...], test: str) -> bool:
    """Whether a test id has all the words, none of them as a piece of a longer run of letters."""
    return all(
        re.search(f"{_edge(word[0], '<!')}{re.escape(word)}{_edge(word[-1], '!')}", test)
        for word in words
    )


def _edge(letter: str, how: str) -> str:
    return f"(?{how}[a-zA-Z])" if letter.isalpha() else ""
