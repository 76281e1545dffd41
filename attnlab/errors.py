"""The one exception a user ever sees, the near names that make it useful, and the place where a
user's own code went wrong; and notes.
"""

import contextlib
import difflib
import errno
import functools
import importlib
import importlib.util
import os
import pathlib
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any

TRACEBACK = "ATTNLAB_TRACEBACK"
"""The environment variable that asks for the traceback of an error beside its line."""

_PACKAGE = pathlib.Path(__file__).parent
_LIBRARY = pathlib.Path(sysconfig.get_paths()["stdlib"])
# where the modules and files lie that a command has named: a user's own
_folders: set[pathlib.Path] = set()
_named: set[str] = set()  # first parts of the names of these modules, which may be installed
RENAMED = {
    "attnlab.attention": {"so_far": "history", "no_looks": "initial_history"},
    "attnlab.systems": {
        "_transition": "transition",
        "_generate": "generate",
        "_mixed": "a part of generate",
    },
    "attnlab.tasks": {
        "map_labels": "stored_labels",
        "load_data": "a Dataset in loads, whose load reads it",
        "Axis": "the list of its labels, with stored_labels for the file of maps",
        "Maps": "a mapping of AttentionMap, see attnlab.tasks.maps",
    },
}
"""What users' code of earlier versions may say in the protocols of a room, and what it is called now."""
_MERGED = """
attention.scores similarities cosine distances positive qk_norm
attention.scores linear general location
attention.scores perceptrons additive concat coverage location_aware source_only
attention.alignments relatives scalable sigmoid softpick top_k
attention.alignments sequential monotonic selective stick_breaking temporal
attention.alignments losses doubly_stochastic reinforce
attention.mechanisms head_variants differential gated talking_heads
attention.mechanisms single key_value
attention.positions absolute learned sinusoidal
attention.positions relative alibi shaw t5 transformer_xl
attention.positions rope rope_scaling
attention view order
attention.kernels blocks block
attention.kernels passes elementwise normalised
attention.kernels gathered windows
attention.visibility rule bands
attention.visibility sparse global_tokens random_blocks sparse_transformer
layers dense heads precision
layers readers stacked sentences
layers convolution short_convolution
layers initial initializers
layers norms gated_norm
layers history token_shift
layers.backbones protocol cnn
layers.recurrence chunks pairs triangular
layers.gates pooled squeeze_excitation eca cbam coordinate
mixers loops steps tape
mixers passing recurrent convolution average
mixers delta_rule delta_net delta_product gated_delta_net gated_delta_product kda
mixers decaying retention gated_linear hgrn mamba
mixers ttt ttt_linear ttt_mlp
mixers whole fourier nystrom
mixers performer kernelised
systems.recurrent pooling bilstm_pooling attention_pooling self_attentive
systems.recurrent short_spans attention_lm
systems.vision classifiers convolutional perceptron
tasks pairs translation text_to_text pronunciation ensemble
tasks auxiliary decisions
tasks classification choices
tasks images image_classification
training updates drawing
training journal stopping
decoding steps hypotheses
decoding sampling greedy
decoding beam scoring
decoding metrics rouge
data blocks crops
data tagged conll
data denoising masking corruption
data generated_pairs copying dates spelling
data generated_texts associations lookup markers entailment
data grammar agreement
data dataset longer none
data json_files json_lines sealed
data.readers records tables
data.diagnostics computing list_ops states
data.diagnostics recall copies
data.images annotated labelled
data.images regions boxed segmented
data.images files folder
data.images painted shapes translated
data.images texts captioned questions
analysis figures curves overlays
analysis heads induction
"""
"""A room, a module of it, and what the parts of that were called when each was a module."""
MOVED = {
    "attnlab.attention.so_far": "attnlab.attention.mechanisms.heads",
    "attnlab.attention.history": "attnlab.attention.mechanisms.heads",
    "attnlab.attention.cards": "attnlab.layers.cards",
    "attnlab.attention.alignments.softmax": "attnlab.attention.alignments.protocol",
    "attnlab.attention.scores.products": "attnlab.attention.scores.protocol",
    **{
        f"attnlab.{room}.{old}": f"attnlab.{room}.{new}"
        for room, new, *olds in map(str.split, _MERGED.strip().splitlines())
        for old in olds
    },
    "attnlab.attention.alignments.controls": "in attnlab.attention.alignments.relatives and .local",
    "attnlab.attention.kernels.choice": "attnlab.attention.kernels.plain",
    "attnlab.layers.cells": "attnlab.layers.recurrent, and its GRULayer StatefulGRULayer",
    "attnlab.systems.recurrent.ngram_rnn": "in attnlab.systems.recurrent.short_spans, and its Past LateParts",
    "attnlab.tasks.looks": "attnlab.tasks.maps",
    "token_scores": "Task.ratios, of which Task.averaged makes the scores",
    "asking": "said by the arguments weights= and history= themselves",
    "attnlab.training.interrupt": "attnlab.training.session",
    "attnlab.attention.view.standing": "token_positions",
    "attnlab.data.readers.json_text": "attnlab.data.json_files",
    "attnlab.data.images.decoded": "attnlab.data.readers.images",
    "attnlab.data.images.tfds": "attnlab.data.tfds",
    "attnlab.data.diagnostics.drawing": "attnlab.data.generated, or attnlab.data.asked",
    "attnlab.config.values": "attnlab.config.resolve",
    "attnlab.training.turns": "attnlab.training.stacked",
    "attnlab.training.storage_errors": "attnlab.training.orbax_steps",
    "attnlab.tasks.looking": "attnlab.tasks.localisation",
    "attnlab.tasks.output_bias": "attnlab.tasks.tokens",
    "attnlab.tasks.shown": "attnlab.tasks.protocol",
    "attnlab.experiments.plan.client": "attnlab.experiments.run.planning",
    "Look": "AttentionInputs, of tasks attnlab.systems.protocol.AttentionMap",
    **dict.fromkeys(
        [f"attnlab.data.{name}" for name in ("joined", "of_length", "one_side", "prefixed")],
        "attnlab.data.of_pairs",
    ),
    "attnlab.data.corpus.VocabularySettings": "attnlab.data.learned.VocabularySettings",
    "attnlab.data.generated.Generated": "attnlab.data.generated.Sized",
}
"""What it may import of ours, and what that is called now; said where a module of ours is imported."""

_LONGEST = 400  # characters of another's message: those of compilers go on for pages


_CONTROLS = dict.fromkeys(range(128, 160), 0xFFFD) | {127: 0x2421}
_CONTROLS |= {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}


class UserError(Exception):
    """Something the user can mend: `launch.py` prints it as one line on stderr and exits with 2.

    The message names what is wrong, where, and the nearest valid choice. It is folded to one line.
    """

    def __str__(self) -> str:
        return visible(" ".join(super().__str__().split()))


def visible(text: str) -> str:
    """Returns a text for a terminal or a page, with control characters replaced by signs that stand
    for them ("␛"); ends of lines and tabs stay.
    """
    return text.translate(_CONTROLS)


def nearest(word: str, choices: Iterable[str]) -> str:
    """Returns a hint for the end of an error message: the up to three choices most similar to
    `word`, all choices if none is similar, or that there is nothing to choose from.

    Returns "did you mean 'a' or 'b'?" where something is close, else "choose from: a, b, c".
    """
    ordered = sorted(choices)
    close = difflib.get_close_matches(word, ordered, n=3, cutoff=0.6)
    if close and not word.replace(".", "").isdecimal():  # digits in common make no number similar
        return "did you mean " + " or ".join(repr(name) for name in close) + "?"
    return f"choose from: {few(ordered, 60)}" if ordered else "there is nothing to choose from"


def few(names: Sequence[str], most: int = 3, between: str = ", ") -> str:
    """Returns the first `most` of these names joined by `between`, and how many more there are."""
    suffix = f" and {len(names) - most} more" if len(names) > most else ""
    return between.join(names[:most]) + suffix


def at_least(least: int, name: str, /, **fields: float) -> None:
    """Raises `UserError` if a field of the component `name` is smaller than `least`."""
    for field, value in fields.items():
        if value < least:
            raise UserError(f"{name}: {field}={value}, must be at least {least}")


def optional_package(name: str, who: str, extra: str) -> Any:
    """Imports and returns the package `name`, which is installed with the `extra` of this one;
    raises `UserError`, which begins with `who` needs it, if it is absent.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"{who}: pip install 'attnlab[{extra}]'") from error


@contextlib.contextmanager
def users_code() -> Iterator[None]:
    """A context that first forgets all registered modules and files, then turns an exception which
    passed through the user's own code, `sys.exit` included, into a `UserError` with file, line and
    class of the error; others pass.

    Ctrl-C passes, and so does a reader who has gone, and whatever came through no line of the
    user's: that is a slip of ours. The user's are the modules and files named inside (`own_module`,
    `own_file`) and what lies beside them.
    """
    _folders.clear()
    _named.clear()
    try:
        yield
    except (UserError, KeyboardInterrupt, BrokenPipeError):
        raise
    except BaseException as error:
        where = users_line(error)
        if not where:
            raise
        raise UserError(f"{where}: {reason(error)} ({TRACEBACK}=1 shows the traceback)") from error


def own_module(name: str) -> None:
    """Registers the top package of a dotted path, and the folder that contains it, as the user's
    own code, even where it is installed; attnlab itself is ignored.
    """
    top = name.partition(".")[0]
    if top == __name__.partition(".")[0]:
        return
    _named.add(top)
    with contextlib.suppress(Exception):  # there may be none, or one without a file
        origin = pathlib.Path(importlib.util.find_spec(top).origin)  # type: ignore[union-attr, arg-type]
        _folders.add(origin.parent.parent if origin.name == "__init__.py" else origin.parent)


def own_file(path: pathlib.Path) -> None:
    """Registers the folder of a config or experiment file, and the current folder, as the user's
    own code, unless the file is shipped with attnlab.
    """
    if path.absolute().parent in (_PACKAGE.parent / "configs", _PACKAGE.parent / "experiments"):
        return
    _folders.update((path.absolute().parent, pathlib.Path.cwd()))


def users_line(error: BaseException) -> str:
    """Returns the innermost line of the user's own code in the traceback of an exception, else of
    its causes, as "file.py:12" (of a syntax error in that code, the line with the error); "" if
    there is none.
    """
    place, cause = "", error.__cause__
    for frame, line in traceback.walk_tb(error.__traceback__):
        if _is_users(frame.f_code.co_filename, str(frame.f_globals.get("__name__"))):
            place = f"{short(frame.f_code.co_filename)}:{line}"
    if isinstance(error, SyntaxError) and error.lineno and _is_users(error.filename or "<", ""):
        place = f"{short(str(error.filename))}:{error.lineno}"
    return place or (users_line(cause) if cause is not None else "")


def reason(error: BaseException) -> str:
    """Returns "class: text" of an error (the class alone without text, the text alone of a
    `UserError`), the text cut to its first paragraph and `_LONGEST` characters, with the new name
    appended where it mentions an old one of `RENAMED` or `MOVED`.
    """
    if isinstance(error, SyntaxError):
        text = error.msg  # the rest of it says where
    elif isinstance(error, SystemExit):
        text = f"{error}, which would end the command; raise an error instead"
    else:
        text = str(error).strip().partition("\n\n")[0]
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    if _asks_for_ours(error):
        names = {old: new for room in RENAMED.values() for old, new in room.items()}
        names |= MOVED if isinstance(error, ImportError) else {}
        renamed = {old: new for old, new in names.items() if _says(text, old)}
        text += "".join(f"; {old} is now {new}" for old, new in renamed.items())
    if isinstance(error, UserError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _says(message: str, old: str) -> bool:
    """Whether a message of Python's has an old name, or a dotted one as a name from its module."""
    module, _, name = old.rpartition(".")
    return f"'{old}'" in message or (bool(module) and f"'{name}' from '{module}'" in message)


def _asks_for_ours(error: BaseException) -> bool:
    """Returns whether an error may be about a name of this package: an import from it, an attribute
    of an object of it (or of a class derived from its), or any TypeError.
    """
    if isinstance(error, ImportError):
        modules = [str(error.name)]
    elif isinstance(error, AttributeError):
        place = error.obj if isinstance(error.obj, type) else type(error.obj)
        modules = [base.__module__ for base in place.__mro__]
        modules += [error.obj.__name__] if isinstance(error.obj, ModuleType) else []
    else:
        return isinstance(error, TypeError)
    return any(f"{module}.".startswith(f"{_PACKAGE.name}.") for module in modules)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yields an error, then its cause or context, then the cause of that, and so on."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def show_traceback(error: BaseException) -> None:
    """Print the traceback of an error, its cause's before it, where the environment asks for it."""
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)


def short(file: str) -> str:
    """Returns the path of a file relative to the current folder if the file is below it, else as it
    is.
    """
    with contextlib.suppress(ValueError, OSError):
        return str(pathlib.Path(file).relative_to(pathlib.Path.cwd()))
    return file


def _is_users(file: str, module: str) -> bool:
    """Returns whether a file is the user's own code: below a registered folder, or, if installed,
    of a registered package (by the name `module`).
    """
    path = pathlib.Path(file).absolute()
    if file.startswith("<") or _PACKAGE in path.parents:
        return False
    if _LIBRARY in path.parents or not {"site-packages", "dist-packages"}.isdisjoint(path.parts):
        return module.partition(".")[0] in _named
    return not _folders.isdisjoint(path.parents)


def one_line(error: UserError | OSError) -> str:
    """Returns an error as one line of text; for an OSError the reason, the files and, for a full
    disk or a limit reached, what to do.
    """
    if isinstance(error, UserError):
        return str(error)
    why = error.strerror or str(error) or type(error).__name__
    remedy = {
        **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "; free some space and run again"),
        errno.EFBIG: "; raise the limit on the size of files ('ulimit -f') and run again",
        errno.EMFILE: "; raise the limit on open files ('ulimit -n') and run again",
    }.get(error.errno or 0, "")
    names = (error.filename, error.filename2)
    files = " and ".join(str(name) for name in names if name is not None)
    return visible(" ".join(f"{why}{': ' if files else ''}{files}{remedy}".split()))


@functools.cache
def note(text: str) -> None:
    """Prints a line to stderr, once for a process."""
    print(f"note: {text}", file=sys.stderr)
