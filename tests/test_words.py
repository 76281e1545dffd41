"""Names say what they hold: words that could mean anything do not come back."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BANNED = {
    "one": "the thing it is: row, name, path, member",
    "found": "what was looked for: matches, lengths, manifest",
    "kept": "what is left: selected, remaining, keep_mask",
    "known": "what is known: names, cache, prompt",
    "said": "message, setting, label",
    "told": "a verb phrase: apply_norm, one_line, read_json",
    "lies": "sharding, on_mesh",
    "own": "whose it is: users_code, local",
    "which": "trained, index, bucket",
    "how": "options, method",
    "there": "real, present",
    "spoken": "format_shapes, text",
}
"""A name, and what to write in its place."""
VAGUE = {
    "wanted": "expected, requested_names",
    "seen": "visited, moments, visible",
    "what": "problem, kind",
    "those": "selected, texts",
    "these": "selected, texts",
    "here": "this_machine, positions",
    "again": "second_hash",
    "mine": "local",
    "theirs": "tensor, remote",
    "rest": "remainder, remaining",
    "more": "suffix, padding, keywords",
}
"""The same, in the rooms that were read for it."""
UNREAD = ("experiments/", "commands/", "analysis/", "api/", "pages/", "progress.py", "errors.py")
ALLOWED = {  # names that users write or read
    "one": ("attention/visibility/patterns.py", "layers/by_layer.py", "define/experiment.py"),
    "found": ("report/verdict.py",),  # in report.json
    "kept": ("data/", "tasks/protocol.py", "weights/fitting.py", "trackers/"),  # files of a run
    "known": ("tasks/tagging.py",),  # tags that training has
    "own": ("attention/mixer.py", "data/", "report/statistics/"),  # yes or no
}


def names_in(file: Path) -> Iterator[tuple[str, int]]:
    """What a file binds: variables, parameters, functions, classes; and the lines."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id.strip("_"), node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg.strip("_"), node.lineno
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name.strip("_"), node.lineno


@pytest.mark.quick
def test_names_say_what_they_hold() -> None:
    words, allowed = BANNED | VAGUE, ALLOWED | dict.fromkeys(VAGUE, UNREAD)
    wrong = [
        f"{file.relative_to(ROOT)}:{line}: {name}; write {words[name]}"
        for file in sorted((ROOT / "attnlab").rglob("*.py"))
        for name, line in names_in(file)
        if name in words and not any(part in str(file) for part in allowed.get(name, ()))
    ]
    assert not wrong, "\n".join(wrong)
