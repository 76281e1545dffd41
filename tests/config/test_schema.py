"""Nodes say what each setting means, and a config file is checked by them as strictly as a flag."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any, Literal

import pytest

from attnlab import config as configs
from attnlab.config.registry import Table
from attnlab.config.schema import AT_LEAST_ZERO, Node, between, is_node, setting, settings_of, whole
from attnlab.errors import UserError
from attnlab.tasks import TASKS
from attnlab.tasks.schemas import WHOLE, known_defaults


@dataclasses.dataclass
class Model:
    """A stand-in component."""

    width: int = 8


MODELS = Table("model", {"model": f"{__name__}:Model"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner(Node):
    """How it is trained.

    And more.
    """

    steps: int = setting("updates", within=whole(1, 100))
    rate: float = setting("of learning", 0.5, within=between(0, 1))
    mode: Literal["fast", "slow"] = setting("how", "fast")
    note: str | None = setting("for people", None)

    def check(self) -> None:
        """Fast ones are short."""
        if self.mode == "fast" and self.steps > 50:
            raise UserError(f"config.inner.steps={self.steps} is too many for mode='fast'")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Weights(Node):
    """Weights of anybody's."""

    further = (float | None, AT_LEAST_ZERO)
    first: float = setting("the first", 0.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outer(Node):
    """A stand-in for a whole config."""

    seed: int = setting("of everything", 0, within=whole(0, 9))
    model: str = setting("what is trained", table=MODELS)
    inner: Inner
    weights: Weights


def prepared(tree: Mapping[str, Any], *overrides: str) -> Any:
    return configs.prepare(configs.from_dict(tree), overrides, Outer)


def refused(tree: Mapping[str, Any]) -> str:
    """The one line of a config that is wrong."""
    with pytest.raises(UserError) as caught:
        prepared(tree)
    assert "\n" not in str(caught.value)
    return str(caught.value)


GOOD: Mapping[str, Any] = {"model": "model", "inner": {"steps": 5}}


def test_what_is_left_out_has_its_default() -> None:
    assert configs.to_dict(prepared(GOOD)) == {
        "model": {"name": "model", "width": 8},
        "inner": {"steps": 5, "rate": 0.5, "mode": "fast", "note": None},
        "seed": 0,
        "weights": {"first": 0.0},
    }


def test_a_setting_describes_itself() -> None:
    fields = settings_of(Outer)
    assert list(fields) == ["seed", "model", "inner", "weights"]
    assert fields["inner"].help == "How it is trained."
    assert fields["inner"].below == tuple(settings_of(Inner))
    assert fields["seed"].allowed == "a whole number of at least 0 and at most 9"
    assert settings_of(Inner)["mode"].allowed == "one of: fast, slow"
    assert settings_of(Inner)["steps"].default is dataclasses.MISSING


STEPS = "updates (a whole number of at least 1 and at most 100)"
BAD: list[tuple[Mapping[str, Any], str]] = [
    ({"iner": {"steps": 3}}, "iner: no such key; did you mean 'inner'?"),
    ({"inner": {"steps": 5, "raet": 0.1}}, "inner.raet: no such key; did you mean 'rate'?"),
    ({"model": {"name": "model", "widht": 3}}, "model.widht: no such key; did you mean 'width'?"),
    (
        {"inner": {}},
        f"inner.steps is missing: {STEPS}; set it in the config file or by --config.inner.steps",
    ),
    ({"inner": {"steps": "5"}}, "inner.steps='5' is of type str, expected int"),
    ({"inner": {"steps": 5.0}}, "inner.steps=5.0 is of type float, expected int"),
    ({"seed": True}, "seed=True is of type bool, expected int"),
    ({"inner": {"steps": 5, "mode": "fats"}}, "inner.mode='fats'; did you mean 'fast'?"),
    (
        {"inner": {"steps": 0}},
        "inner.steps=0: expected a whole number of at least 1 and at most 100",
    ),
    ({"inner": 5}, "inner=5: expected a group of settings: steps, rate, mode, note"),
    ({"seed": {"value": 1}}, "seed: expected a value, not a group of settings"),
    ({"model": 3}, "model=3: expected the name of a"),
    ({"model": "modle"}, "model: unknown model 'modle'"),
    ({"inner": {"steps": 60}}, "inner.steps=60 is too many for mode='fast'"),
    ({"weights": {"other": "x"}}, "weights.other='x' is of type str, expected float or None"),
    ({"weights": {"other": -1.0}}, "weights.other=-1.0: expected a number of at least 0"),
]
"""What a file says otherwise than `GOOD`, and the line that it is."""


@pytest.mark.parametrize(("changes", "words"), BAD)
def test_what_a_file_gets_wrong_is_one_line(changes: Mapping[str, Any], words: str) -> None:
    assert f"config.{words}" in refused({**GOOD, **changes})


def test_what_a_file_leaves_out_is_one_line_unless_a_flag_sets_it() -> None:
    """Further keys are taken where a node may have them."""
    assert "config.inner.steps is missing" in refused({"model": "model"})
    missing = "config.model is missing: what is trained; set it in the config file or by"
    assert f"{missing} --config.model; choose from: model" in refused({"inner": {"steps": 5}})
    further = {"other": None, "third": 2.0}
    weights = prepared({**GOOD, "weights": further}).weights.to_dict()
    assert weights == {**further, "first": 0.0}
    assert prepared({"model": "model"}, "inner.steps=7").inner.steps == 7
    assert prepared({**GOOD, "inner": {"mode": "slow"}}, "inner.steps=70").inner.steps == 70
    with pytest.raises(UserError, match="config.inner.steps='many': expected int$"):
        prepared({"model": "model"}, "inner.steps=many")
    with pytest.raises(UserError, match="config.inner.setps: no such key; .*'inner.steps'"):
        prepared({"model": "model"}, "inner.setps=7")


def test_a_node_is_read_alone() -> None:
    actual = configs.read_settings(Inner, {"steps": 3, "rate": 1}, "inner")
    assert (actual.steps, actual.rate, type(actual.rate), actual.mode) == (3, 1.0, float, "fast")
    with pytest.raises(UserError, match="config.inner.stesp: no such key; did you mean 'steps'"):
        configs.read_settings(Inner, {"stesp": 3}, "inner")


@pytest.mark.parametrize("kind", WHOLE)
def test_defaults_are_valid_and_everything_says_what_it_means(kind: type[Node]) -> None:
    for key, item in settings_of(kind).items():
        assert item.help.strip(), key
        for name, inner in settings_of(item.hint).items() if is_node(item.hint) else ():
            assert inner.help.strip() and "\n" not in inner.help, (key, name)
            if inner.default is not dataclasses.MISSING and inner.within:
                inner.within.check(inner.default, name)
            if inner.choices and inner.default is not dataclasses.MISSING:
                assert inner.default in inner.choices, (key, name)


def test_every_task_says_which_config_is_its_own_and_types_are_known_without_it() -> None:
    assert {TASKS.resolve(name).schema for name in TASKS.names()} == set(WHOLE)
    values = known_defaults()
    assert (values["training.clip"], values["decoding.beam"], values["seed"]) == (1.0, 5, 0)
    assert "training.steps" not in values and "optimizer" not in values


OWN = [
    ("{'task': 'translaton'}", "config.task: unknown task 'translaton'; did you"),
    ("{'system': 'rnnsearch'}", "config.task is missing; choose from: translation"),
    ("merge(BASE, {'decoding': {'beam': 3}})", "config.decoding: no such key; choose from: aux"),
    ("{k: v for k, v in BASE.items() if k != 'batch'}", "config.batch."),
    ("merge(BASE, {'batch': {'buckets': ('a',)}})", "buckets=('a',): expected increasing whole"),
    ("{**BASE, 'seed': {3: 4}}", "own.py: get_config returned the key 3, expected a text"),
]
"""What a user's own file returns, with `BASE` a config of attnlab, and the line that it is."""


@pytest.mark.parametrize(("text", "words"), OWN)
def test_a_users_own_file_is_checked(text: str, words: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "own.py").write_text(
        "from attnlab.config import call_file, merge\n\n"
        "BASE = call_file('configs/classification.py', 'get_config', 'config file')\n\n\n"
        f"def get_config(argument):\n    return {text}\n"
    )
    with pytest.raises(UserError) as caught:
        configs.load(f"{tmp_path}/own.py")
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_users_own_task_has_settings_of_its_own(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_ranking.py").write_text(
        "import dataclasses\n\n"
        "from attnlab.config.schema import AT_LEAST_ZERO, setting\n"
        "from attnlab.tasks import schemas\n"
        "from attnlab.tasks.texts import TextTask\n"
        "from attnlab.training import settings\n\n\n"
        "@dataclasses.dataclass(frozen=True, kw_only=True)\n"
        "class Training(settings.Training):\n"
        "    margin: float = setting('of the ranking loss', 1.0, within=AT_LEAST_ZERO)\n\n\n"
        "@dataclasses.dataclass(frozen=True, kw_only=True)\n"
        "class Config(schemas.Classification):\n"
        "    training: Training\n\n\n"
        "class Ranking(TextTask):\n"
        "    schema = Config\n\n\n"
        "class Numbered(TextTask):\n"
        "    schema = 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    file, own = "configs/classification.py:attention_pooling", "task=own_ranking:Ranking"
    assert configs.load(file, [own]).training.margin == 1.0
    assert configs.load(file, ["training.margin=2", own]).training.margin == 2.0
    for overrides, words in (
        ([own, "training.margin=-1"], "training.margin=-1.0: expected a number of at least 0"),
        ([own, "training.magrin=1"], "training.magrin: no such key; did you mean 'training.ma"),
        (["training.margin=2"], "config.training.margin: no such key"),
        (["task=own_ranking:Numbered"], "its schema is 3; expected a class derived from"),
    ):
        with pytest.raises(UserError) as caught:
            configs.load(file, overrides)
        assert words in str(caught.value)


def test_the_file_of_the_page_says_what_differs(tmp_path: pathlib.Path) -> None:
    readme = (pathlib.Path(__file__).parents[2] / "docs" / "configs.md").read_text()
    (text,) = (part for part in readme.split("```")[1::2] if part.startswith("python\n# mine.py"))
    (tmp_path / "mine.py").write_text(text.removeprefix("python\n"))
    ours = configs.flat(configs.load("configs/translation.py:rnnsearch"))
    flat = configs.flat(configs.load(str(tmp_path / "mine.py")))
    differing = {name for name in ours | flat if ours.get(name) != flat.get(name)}
    names = "vocabulary.kind vocabulary.size batch.buckets batch.max_length training.steps"
    assert {name for name in differing if not name.startswith("data.")} == {*names.split()}
    assert (flat["data.name"], flat["data.target"], flat["training.clip"]) == ("files", "en", 1.0)
