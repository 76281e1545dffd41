"""What a user's own Python does wrong is one line that names the slot, the file and the line: every
table, every kind of breakage.
"""

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from attnlab import processes
from attnlab.errors import UserError
from tests.commands.tiny import refused, run_command

TRANSFORMER, RNNSEARCH = "configs/translation.py:transformer", "configs/translation.py:rnnsearch"

SLOTS = {
    "mechanism": (RNNSEARCH, "system.attention", ()),
    "score": (RNNSEARCH, "system.attention.score", ()),
    "alignment": (RNNSEARCH, "system.attention.alignment", ()),
    "position scheme": (TRANSFORMER, "system.positions", ()),
    "rope scaling": (
        TRANSFORMER,
        "system.encoder_attention.positions.scaling",
        ("system.encoder_attention.positions=rope",),
    ),
    "visibility": (TRANSFORMER, "system.decoder_visibility", ()),
    "system": (RNNSEARCH, "system", ()),
    "task": (RNNSEARCH, "task", ()),
    "data source": (RNNSEARCH, "data", ()),
    "optimizer": (RNNSEARCH, "optimizer", ()),
    "schedule": (RNNSEARCH, "schedule", ()),
}
"""What a dotted path may stand for: the config, the slot, and what else is to be set so that there is one."""

BREAKAGES = {
    "syntax": ("\ndef f(:\n", "own.py:2: SyntaxError: "),
    "indentation": ("def f():\nreturn 1\n", "own.py:2: IndentationError: "),
    "raises": ("\n\n1 / 0\n", "own.py:3: ZeroDivisionError: division by zero"),
    "exits": ("import sys\nsys.exit(0)\n", "own.py:2: SystemExit: 0"),
    "exits silently": ("\nexit()\n", "own.py:2: SystemExit"),
    "raises inside what it imports": ("import inner\n", "inner.py:2: KeyError: 'nothing'"),
    "syntax inside what it imports": ("import inner_syntax\n", "inner_syntax.py:1: SyntaxError: "),
    "exits inside what it imports": ("import inner_exit\n", "inner_exit.py:3: SystemExit: 1"),
    "imports what is not there": (
        "\nimport nowhere_at_all\n",
        "own.py:2: ModuleNotFoundError: No module named 'nowhere_at_all'",
    ),
    "base": ("class Stop(BaseException): pass\nraise Stop('now')\n", "own.py:2: Stop: now"),
    "not UTF-8": ("x = '\udce4'\n", "own.py"),
    "no such attribute": ("Thin = 3\n", "has no attribute 'Thing' (own.py); did you mean 'Thin'?"),
    "a number": ("Thing = 3\n", "this is of type int (own.py)"),
    "a module": ("import math as Thing\n", "this is the module math"),
    "a string": ("Thing = 'Multihead'\n", "this is of type str (own.py)"),
}
"""What is wrong with the module, and what its line says of it."""

OF_CLASSES = ("mechanism", "score", "alignment", "position scheme", "rope scaling", "system")
INNER = {
    "inner.py": "\n{}['nothing']\n",
    "inner_syntax.py": "x = = 2\n",
    "inner_exit.py": "import sys\n\nsys.exit(1)\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's folder, which the test stands in; what is imported from it is forgotten
    afterwards.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        sys,
        "path",
        [entry for entry in sys.path if not Path(entry).is_relative_to(tmp_path.parent)],
    )
    for name, text in INNER.items():
        (tmp_path / name).write_text(text)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith(("own", "inner")):
            del sys.modules[name]


def trained(config: str, *overrides: str) -> str:
    """The one line of a `train` that is refused and writes nothing."""
    before = sorted(Path().iterdir())
    flags = [f"--config.{one}" for one in overrides]
    line = refused("train", f"--config={config}", "--workdir=run", *flags)
    assert [path for path in sorted(Path().iterdir()) if path.name != "__pycache__"] == [
        one for one in before if one.name != "__pycache__"
    ]
    return line


@pytest.mark.quick
@pytest.mark.parametrize(("kind", "breakage"), list(itertools.product(SLOTS, BREAKAGES)))
def test_a_broken_module_is_one_line(kind: str, breakage: str, folder: Path) -> None:
    text, words = BREAKAGES[breakage]
    (folder / "own.py").write_bytes(text.encode("utf-8", "surrogateescape"))
    config, slot, others = SLOTS[kind]
    line = trained(config, *others, f"{slot}=own:Thing")
    assert f"{kind} 'own:Thing'" in line or f"{slot}=own:Thing" in line
    assert words in line
    assert slot == "task" or f"config.{slot}" in line, line


@pytest.mark.parametrize("kind", SLOTS)
def test_a_module_that_is_not_there_names_the_searched_folder(kind: str, folder: Path) -> None:
    config, slot, others = SLOTS[kind]
    line = trained(config, *others, f"{slot}=own_elsewhere:Thing")
    assert (
        f"{kind} 'own_elsewhere:Thing': cannot import 'own_elsewhere': No module named"
        " 'own_elsewhere'; looked for it" in line
    )
    assert str(folder) in line


@pytest.mark.parametrize("kind", OF_CLASSES)
@pytest.mark.parametrize("text", ["class Thing:\n    pass\n", "def Thing():\n    pass\n"])
def test_what_is_derived_from_nothing_is_told_the_base(kind: str, text: str, folder: Path) -> None:
    (folder / "own.py").write_text("\n" + text)
    config, slot, others = SLOTS[kind]
    line = trained(config, *others, f"{slot}=own:Thing")
    assert f"config.{slot}=own:Thing: expected a class derived from attnlab." in line
    assert " Thing (own.py:2)" in line


MECHANISM = """
from attnlab.attention.protocol import Attention, Capabilities, Memory, Reading, written
import jax.numpy as jnp


class Own(Attention):
    {fields}

    def remember(self, source, valid=None, capacity=None):
        {remember}
        return Memory(*written(source, valid, capacity))

    def read(self, query, memory, visibility=None):
        {read}
"""
ABLE = "capabilities = Capabilities()"
WORKS = "return Reading(jnp.zeros((*query.shape[:-1], self.width)))"

MECHANISMS = {
    "no capabilities": ({"fields": "heads: int = 1"}, "Own (own.py:6) declares no capabilities"),
    "capabilities of another type": (
        {"fields": "capabilities = 3"},
        "declares capabilities of type int; write capabilities = Capabilities(...)",
    ),
    "a field nobody sets": (
        {"fields": f"heads: int\n    {ABLE}"},
        "the class Own (own.py:6) has the field 'heads' without a default",
    ),
    "an error in remember": ({"remember": "source + 'text'"}, "own.py:10: TypeError: "),
    "an error in read": ({"read": "return Reading(query @ jnp.ones(2))"}, "own.py:14: TypeError: "),
    "an exit in read": ({"read": "raise SystemExit(0)"}, "own.py:14: SystemExit: 0"),
    "a wrong width": (
        {"read": "return Reading(query[..., :3])"},
        "Own (own.py:6): read gave a context of shape (1, 1, 3), expected (1, 1, 128)",
    ),
    "no reading": ({"read": "return query"}, "read gave an array, expected a attnlab.attention"),
}


@pytest.mark.parametrize("kind", MECHANISMS)
def test_a_mechanism_that_breaks_its_promises(kind: str, folder: Path) -> None:
    parts, words = MECHANISMS[kind]
    (folder / "own.py").write_text(
        MECHANISM.format(**{"fields": ABLE, "remember": "pass", "read": WORKS, **parts})
    )
    assert words in trained(RNNSEARCH, "system.attention=own:Own")


def test_annotations_that_cannot_be_resolved_go_unchecked(folder: Path) -> None:
    """Names that only a type checker imports; what can be resolved is checked."""
    text = "from __future__ import annotations\n" + MECHANISM.format(
        fields=f"{ABLE}\n    bad: Nowhere = 1\n    heads: int = 1", remember="pass", read=WORKS
    )
    (folder / "own.py").write_text(text)
    line = trained(
        RNNSEARCH,
        "system.attention=own:Own",
        "system.attention.bad=2",
        "system.attention.heads=1.5",
    )
    assert "config.system.attention.heads='1.5': expected int" in line


def own(parameters: str, value: object) -> str:
    """A file with a function that returns a value."""
    return f"def own({parameters}):\n    return {value}\n"


EMPTY = "class Own:\n    pass\n"
DIVIDES = "class Own:\n    def pairs(self, split):\n        return 1 / 0\n"
SYSTEM = (
    "from attnlab.systems.protocol import Seq2Seq\n\n\n"
    "class Own(Seq2Seq):\n    def encode(self, source):\n        return source.nothing\n"
)
VECTORS = "import jax.numpy as jnp\n\n" + own("steps, peak=1.0", "lambda count: jnp.ones(3)")
NO_RATE = "does not take 'learning_rate', which every optimizer gets; it takes: rate"
NO_TASK = "expected a class derived from attnlab.tasks.base.Task, this is the class Own (own.py:1)"
OTHERS = [
    ("data", DIVIDES, "own.py:3: ZeroDivisionError"),
    ("data", EMPTY, "needs a method pairs(split)"),
    ("schedule", own("steps, peak=1.0", "lambda count: count @ peak"), "own:own: own.py:2: Value"),
    ("schedule", VECTORS, "the learning rate of an update must be one number"),
    ("schedule", own("peak=1.0", "peak"), "the function own (own.py:1) does not take 'steps'"),
    ("optimizer", own("learning_rate", 3), "optimizer=own:own: makes a int, expected an optax"),
    (
        "optimizer",
        "def own(learning_rate):\n    raise SystemExit\n",
        "own:own: own.py:2: SystemExit",
    ),
    ("optimizer", own("rate=1.0", 3), NO_RATE),
    ("system.decoder_visibility", own("", 3), "a visibility must be a Rule; own makes a int"),
    ("task", EMPTY, f"task 'own:Own': {NO_TASK}"),
    ("system", SYSTEM, "own.py:6: AttributeError: "),
]
"""Components: their slot, the file they are in, and what its line says."""


@pytest.mark.parametrize(("slot", "text", "words"), OTHERS)
def test_what_others_do_wrong(slot: str, text: str, words: str, folder: Path) -> None:
    (folder / "own.py").write_text(text)
    config = TRANSFORMER if "visibility" in slot else RNNSEARCH
    assert words in trained(config, f"{slot}=own:{'Own' if 'class Own' in text else 'own'}")


FILES = {
    **{kind: one for kind, one in BREAKAGES.items() if "own.py" in one[1] or "inner" in one[1]},
    **{
        "exits in the function": (
            "import sys\ndef {0}(argument=''):\n    sys.exit(0)\n",
            "own.py:3: SystemExit: 0",
        ),
        "an error inside what the function calls": (
            "def {0}(argument=''):\n    import inner\n",
            "own.py:2: inner.py:2: KeyError: 'nothing'",
        ),
        "a number for a function": ("{0} = 3\n", "own.py: no function {0}(argument) in this file"),
        "another result": ("def {0}(argument=''):\n    return 3\n", "{0} returned int"),
    },
}
del FILES["no such attribute"], FILES["a number"], FILES["a string"]


@pytest.mark.quick
@pytest.mark.parametrize(("command", "breakage"), [*itertools.product(["train", "sweep"], FILES)])
def test_a_broken_file_is_one_line(command: str, breakage: str, folder: Path) -> None:
    text, words = FILES[breakage]
    name = {"train": "get_config", "sweep": "get_experiment"}[command]
    (folder / "own.py").write_bytes(text.replace("{0}", name).encode("utf-8", "surrogateescape"))
    argv = {
        "train": ["train", "--config=own.py", "--workdir=run"],
        "sweep": ["sweep", "own.py", "--dir=run"],
    }[command]
    sys.path.append(str(folder))
    line = refused(*argv)
    assert line.partition("error: ")[2].startswith("own.py")
    assert words.replace("{0}", name) in line
    assert not (folder / "run").exists()


def test_ctrl_c_stays_ctrl_c(folder: Path) -> None:
    (folder / "own.py").write_text("raise KeyboardInterrupt\n")
    for argv in (
        ["train", "--config=own.py"],
        ["train", f"--config={RNNSEARCH}", "--config.system.attention=own:Thing"],
    ):
        assert run_command(argv).code == 130


def test_the_traceback_is_shown_to_who_asks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "own.py").write_text("\n1 / 0\n")
    monkeypatch.setenv("ATTNLAB_TRACEBACK", "1")
    ended = run_command(["train", f"--config={RNNSEARCH}", "--config.system.attention=own:Thing"])
    *before, line = ended.err.splitlines()
    assert ended.code == 2
    assert "own.py:2: ZeroDivisionError" in line
    assert "Traceback (most recent call last):" in before[0]
    assert "ATTNLAB_TRACEBACK=1" in run_command([]).out


def test_of_several_processes_it_is_told_by_the_one_that_does_the_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines that an error came through are lost on the way to another process."""
    (folder / "own.py").write_text("\nraise SystemExit(0)\n")
    told: list[str] = []

    def run(rest: list[str], work: Callable[[], int]) -> int:
        with pytest.raises(UserError) as raised:
            work()
        told.append(str(raised.value))
        return 2

    monkeypatch.setattr(processes, "run", run)
    run_command(["train", f"--config={RNNSEARCH}", "--config.system.attention=own:Thing"])
    assert len(told) == 1 and "own.py:2: SystemExit: 0" in told[0]


OPTAX = [
    ("optimizer=optax:lion optimizer.mask=biases", "optimizer.mask='biases': expected None"),
    ("optimizer=optax:adamw optimizer.learning_rate=0.1", "optimizer.learning_rate: no such key"),
    ("optimizer=optax:adafactor optimizer.learning_rate=1", "optimizer.learning_rate: no such key"),
    ("optimizer=optax:adamw optimizer.b3=0.1", "optimizer.b3: no such key; did you mean"),
    ("optimizer=optax:adamw optimizer.b1=high", "config.optimizer.b1='high': expected"),
    ("optimizer=optax:scale_by_adam", "does not take 'learning_rate'"),
    ("optimizer=optax:lbfgs", "optimizer=optax:lbfgs: "),
    ("optimizer=optax:adamm", "'optax' has no attribute 'adamm'"),
    ("optimizer=optax:adam optimizer.mu_dtype=float33", ": TypeError: data type 'float33' not un"),
    ("schedule=optax:cosine_decay_schedule", "does not take 'steps', which every schedule gets"),
]


@pytest.mark.parametrize(("overrides", "words"), OPTAX)
def test_what_optax_cannot_be_given(overrides: str, words: str, folder: Path) -> None:
    assert words in trained(RNNSEARCH, *overrides.split())


def test_a_function_is_nothing_a_config_holds(folder: Path) -> None:
    """In a file as on the command line."""
    (folder / "mine.py").write_text(
        "from attnlab.config import merge, read_config_file\n\n\ndef get_config(argument):\n    mask ="
        " argument if argument == 'text' else print\n    return"
        f" merge(read_config_file({RNNSEARCH!r}), {{'optimizer': {{'name': 'optax:lion', 'mask': mask}}}})\n"
    )
    assert "config.optimizer.mask='text' is of type str, expected" in trained("mine.py:text")
    words = "config.optimizer.mask: a builtin_function_or_method cannot be stored"
    assert words in trained("mine.py:function")


def test_a_trial_whose_module_exits_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not taken for one that died, which would be tried again."""
    from attnlab.experiments.run import training
    from attnlab.records import attempts
    from tests.experiments import stub

    one = stub.planned(tmp_path).trials()[0]
    monkeypatch.setattr(training, "write_output_to", lambda log: None)
    monkeypatch.setattr(training, "fit", lambda *given: sys.exit(0))
    assert training.run(tmp_path, [one]) == 1
    end = attempts.read(one.workdir(tmp_path))[-1]
    assert (end["state"], end["message"]) == ("failed", "SystemExit: 0")


EARLIER = (
    "from attnlab.attention.protocol import Attention, Capabilities\nclass Own(Attention):\n    "
)
OLD = {
    "system.attention": {
        f"{EARLIER}capabilities = Capabilities(so_far=True)": "; so_far is now history",
        f"{EARLIER}{ABLE}\n    def read(self, query, memory, view=None, so_far=None): ...": (
            "so_far, which is now history"
        ),
        f"{EARLIER}{ABLE}\n    no_looks = 3": "no_looks, which is now initial_history",
        "from attnlab.attention.view import standing": "view.standing is now token_positions",
        "import attnlab.attention.so_far": "so_far is now attnlab.attention.mechanisms.heads",
        "from attnlab.attention.cards import Card": "cards is now attnlab.layers.cards",
        "from attnlab.data.diagnostics.drawing import within": "drawing is now attnlab.data.generated",
    },
    "system.attention.score": {
        "from attnlab.attention.scores.perceptrons import Additive\n"
        "class Own(Additive):\n    no_looks = None": "no_looks, which is now initial_history"
    },
    "system.attention.alignment": {
        "from attnlab.attention.alignments.protocol import Softmax\n"
        "class Own(Softmax):\n    no_looks = None": "no_looks, which is now initial_history"
    },
    "system": {
        "from attnlab.systems.recurrent.rnnsearch import RNNsearch\n"
        "class Own(RNNsearch):\n    _generate = None": "has _generate, which is now generate"
    },
    "task": {
        "from attnlab.tasks.protocol import Axis": "; Axis is now the list of its labels",
        "from attnlab.tasks.tokens import token_scores": "; token_scores is now Task.ratios",
        "import attnlab.tasks.looks": "; attnlab.tasks.looks is now attnlab.tasks.maps",
        "from attnlab.data.corpus import VocabularySettings": (
            "VocabularySettings is now attnlab.data.learned.VocabularySettings"
        ),
        "from attnlab.tasks.pairs import Translation\n"
        "class Own(Translation):\n    def map_labels(self, axes): ...": (
            "Own (own.py:2) has map_labels, which is now stored_labels"
        ),
    },
}
"""Of each slot, what a file of an earlier version says, and what its line says of the new name; a name
that would only be left out, such as that of a method, is refused too.
"""
OF_EARLIER = [(slot, text, line) for slot, cases in OLD.items() for text, line in cases.items()]


@pytest.mark.parametrize(("slot", "text", "words"), OF_EARLIER)
def test_a_file_of_an_earlier_version_is_told_the_new_name(
    slot: str, text: str, words: str, folder: Path
) -> None:
    (folder / "own.py").write_text(f"{text}\n")
    line = trained(RNNSEARCH, f"{slot}=own:Own")
    assert words in line and "own.py:" in line
    assert slot == "task" or f"config.{slot}" in line, line


@pytest.mark.parametrize("text", ["from math import Look", "import math\nmath.Axis"])
def test_a_name_that_others_lack_is_no_old_name_of_ours(text: str, folder: Path) -> None:
    (folder / "own.py").write_text(f"{text}\n")
    assert "is now" not in trained(RNNSEARCH, "task=own:Own")
