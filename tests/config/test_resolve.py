"""A config file, overrides and replacements of components give one complete config, or one line that
names what is wrong; tried on stand-in tables.
"""

import dataclasses
import itertools
import json
import pathlib
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import pytest
from ml_collections import ConfigDict

from attnlab import config as configs
from attnlab.config.registry import Table
from attnlab.config.schema import SEED, Node, setting, settings_of
from attnlab.config.tree import NEWER
from attnlab.data.settings import Buckets
from attnlab.decoding.settings import Decoding
from attnlab.errors import UserError
from attnlab.records.manifest import changed
from attnlab.training.settings import Parallel, Stop, TokenTraining


@dataclasses.dataclass
class Additive:
    """A stand-in mechanism."""

    hidden: int = 32


@dataclasses.dataclass
class MultiHead:
    """A stand-in mechanism with other fields."""

    heads: int = 4
    dropout: float = 0.0
    scale: float | None = None
    kernel: Literal["auto", "plain"] = "auto"


MECHANISMS = Table(
    "mechanism", {"additive": f"{__name__}:Additive", "multihead": f"{__name__}:MultiHead"}
)


@dataclasses.dataclass
class Recurrent:
    """A stand-in system: `vocabulary` comes from the code, `attention` from the config."""

    vocabulary: int
    attention: Any
    hidden: int = 64
    dropout: float = 0.1
    sizes: tuple[int, ...] = (8, 16)
    note: str | None = None

    parts: ClassVar[Mapping[str, Table]] = {"attention": MECHANISMS}


@dataclasses.dataclass
class Stacked:
    """A stand-in system whose parts have defaults of their own."""

    attention: Any = "multihead"
    cross: Any = None
    inner: Any = dataclasses.field(default_factory=lambda: {"name": "additive", "hidden": 7})
    layers: int = 2

    parts: ClassVar[Mapping[str, Table]] = dict.fromkeys(
        ("attention", "cross", "inner"), MECHANISMS
    )


def adam(learning_rate: float, b1: float = 0.9, nesterov: bool = False) -> None:
    """A stand-in optimizer: a function."""


SYSTEMS = Table("system", {"recurrent": f"{__name__}:Recurrent", "stacked": f"{__name__}:Stacked"})
OPTIMIZERS = Table("optimizer", {"adam": f"{__name__}:adam"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Toy(Node):
    """A stand-in for a whole config."""

    seed: int = setting("of everything", 0, within=SEED)
    system: str = setting("the model", table=SYSTEMS)
    optimizer: str = setting("the optimizer", "adam", table=OPTIMIZERS)
    batch: Buckets
    training: TokenTraining
    decoding: Decoding


@dataclasses.dataclass(frozen=True, kw_only=True)
class Components(Node):
    """Two components and nothing else."""

    system: str = setting("the model", "stacked", table=SYSTEMS)
    optimizer: str = setting("the optimizer", "adam", table=OPTIMIZERS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seeded(Components):
    """The same with a seed."""

    seed: int = setting("of everything", 0, within=SEED)


FILE = """
def get_config(argument: str = "recurrent"):
    system = {"name": argument, "attention": {"name": "additive", "hidden": 5}, "hidden": 48}
    batch, training = {"buckets": [16, 32], "max_length": 32}, {"steps": 100, "label_smoothing": 0.1}
    return {"seed": 0, "system": system, "optimizer": "adam", "batch": batch, "training": training}
"""


@pytest.fixture
def file(tmp_path: pathlib.Path) -> str:
    """The stand-in config file."""
    path = tmp_path / "toy.py"
    path.write_text(FILE)
    return str(path)


def load(file: str, *overrides: str, schema: type[Node] = Toy) -> Any:
    return configs.load(file, overrides, schema)


def error(file: str, *overrides: str, schema: type[Node] = Toy) -> str:
    with pytest.raises(UserError) as caught:
        load(file, *overrides, schema=schema)
    return str(caught.value)


@pytest.mark.quick
def test_loads_completes_and_locks(file: str) -> None:
    config = load(file + ":recurrent")
    assert config.system.to_dict() == {
        "name": "recurrent",
        "attention": {"name": "additive", "hidden": 5},
        "hidden": 48,
        "dropout": 0.1,
        "sizes": (8, 16),
        "note": None,
    }
    assert config.optimizer.to_dict() == {"name": "adam", "b1": 0.9, "nesterov": False}
    sizes = {"buckets": (16, 32), "max_length": 32, "size": 64}
    assert config.batch.to_dict() == {**sizes, "unit": "sentences", "longer": "score"}
    assert (config.training.clip, config.training.steps, config.decoding.beam) == (1.0, 100, 5)
    assert config.decoding.top_p == 1.0
    with pytest.raises(AttributeError):
        config.system.hiden = 3


VALUES = [
    ("system.hidden=256", "system.hidden", 256),
    ("system.dropout=0", "system.dropout", 0.0),
    ("optimizer.b1=1e-3", "optimizer.b1", 1e-3),
    ("optimizer.nesterov=true", "optimizer.nesterov", True),
    ("optimizer.nesterov=False", "optimizer.nesterov", False),
    ("batch.buckets=4,8,16", "batch.buckets", (4, 8, 16)),
    ("batch.buckets=(4, 8)", "batch.buckets", (4, 8)),
    ("batch.buckets=[4]", "batch.buckets", (4,)),
    ("batch.buckets=4", "batch.buckets", (4,)),
    ("system.note=a=b", "system.note", "a=b"),
    ("system.note='None'", "system.note", "None"),
    ("system.note=10", "system.note", "10"),
    ("system.note=None", "system.note", None),
    ("system.note=2in1/data", "system.note", "2in1/data"),
    ("training.ema=0.99", "training.ema", 0.99),
    ("training.compute=bfloat16", "training.compute", "bfloat16"),
    ("seed=-0", "seed", 0),
    ("decoding.n_best=3", "decoding.n_best", 3),
    ("decoding.coverage=1", "decoding.coverage", 1.0),
    # the component that stands there keeps its settings, and the last of two counts
    ("system.attention=additive", "system.attention.hidden", 5),
    ("system=stacked;system=recurrent", "system.name", "recurrent"),
]


@pytest.mark.parametrize(("override", "key", "value"), VALUES)
def test_values_are_read_by_the_type_they_replace(
    file: str, override: str, key: str, value: Any, recwarn: pytest.WarningsRecorder
) -> None:
    """The argument of the file is left out: it has a default. A text is not read as a number, of
    which Python would warn.
    """
    actual = configs.flat(load(file, *override.split(";")))[key]
    assert actual == value and type(actual) is type(value) and not recwarn.list


REFUSED = {
    "a mistyped value names key, value and type": [
        ("system.hidden=abc", "config.system.hidden='abc': expected int (now 48)"),
        ("system.hidden=1.5", "config.system.hidden='1.5': expected int"),
        *((f"system.hidden={value}", "expected int") for value in ("true", "None", "")),
        *((f"optimizer.b1={value}", "expected float") for value in ("fast", "nan", "1e999")),
        ("optimizer.nesterov=1", "config.optimizer.nesterov='1': expected true or false"),
        ("batch.buckets=4,x", "expected tuple of int"),
        ("system.hidden", "config.system.hidden: no value given"),
        ("training=3", "config.training is a group of settings"),
    ],
    "a misspelt key names the near ones": [
        ("sytem.hiden=3", "config.sytem.hiden: no such key; did you mean 'system.hidden'"),
        ("system.attention.hiden=3", "'system.attention.hidden'"),
        ("label_smothing=0.1", "'training.label_smoothing'"),
        ("seed.x=1", "config.seed.x: no such key"),
        ("system.zzz=1", "choose from: system.attention, system.dropout, system.hidden"),
        ("system..hidden=1", "'system.hidden'"),
        ("system.vocabulary=10", "no such key"),
        ("=10", "no such key"),
    ],
    "an unknown component names slot and near ones": [
        ("system.attention=multhead", "config.system.attention: unknown mechanism 'multhead'; did"),
        ("system=recurent", "config.system: unknown system 'recurent'; did you mean 'recurrent'?"),
        ("system.attention=", "config.system.attention: mechanism '': a name is needed"),
        ("system.attention=None", "config.system.attention"),
        ("system.attention=my_other:mine", "cannot import 'my_other'"),
        ("system.attention=json:yours", "no attribute 'yours'"),
        ("system.attention=multihead system.attention.kernel=plane", "did you mean 'plain'?"),
    ],
    "a value out of range": [
        ("batch.unit=token", "config.batch.unit='token'; did you mean 'tokens'?"),
        ("training.compute=float16", "did you mean"),
        ("batch.size=0", "config.batch.size=0: expected a whole number of at least 1"),
        ("training.steps=-1", "at least 1"),
        ("training.label_smoothing=1", "below 1"),
        ("system.dropout=1.0", "system.dropout=1.0: expected a number of at least 0 and below 1"),
        ("system.dropout=-0.1", "below 1"),
        ("system.hidden=0", "config.system.hidden=0: expected a whole number of at least 1"),
        ("system.attention.hidden=-4", "config.system.attention.hidden=-4"),
        *((f"batch.buckets={value}", "increasing") for value in ("32,16", "0,16", "()")),
        ("decoding.n_best=9", "decoding.n_best=9 is more than decoding.beam=5"),
        ("training.ema=1", "below 1"),
    ],
}
"""Overrides, and the words of their line."""


@pytest.mark.parametrize(("overrides", "words"), [*itertools.chain(*REFUSED.values())])
def test_what_is_refused_is_one_line(file: str, overrides: str, words: str) -> None:
    assert words in error(file, *overrides.split(" "))


@pytest.mark.parametrize("key", ["system.attention", "system.attention.name"])
def test_replacing_a_component_brings_its_own_fields_whatever_the_order(
    file: str, key: str
) -> None:
    config = load(file, "system.attention.heads=8", f"{key}=multihead", "system.attention.scale=2")
    chosen = {"heads": 8, "dropout": 0.0, "scale": 2.0, "kernel": "auto"}
    assert config.system.attention.to_dict() == {"name": "multihead", **chosen}
    assert config.system.hidden == 48
    refusal = error(file, f"{key}=multihead", "system.attention.hidden=3")
    assert "config.system.attention.hidden: no such key" in refusal


def test_an_outer_replacement_comes_before_an_inner_one(file: str) -> None:
    inner = ["system.inner.hidden=9", "system.attention=additive"]
    config = load(file, *inner, "system=stacked", "system.cross=multihead")
    assert config.system.attention.to_dict() == {"name": "additive", "hidden": 32}
    assert config.system.inner.to_dict() == {"name": "additive", "hidden": 9}
    assert config.system.cross.name == "multihead" and config.system.layers == 2
    assert load(file, "system=stacked", "system.cross=None").system.cross is None


def test_a_dotted_path_names_a_users_own_component(
    file: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_variant.py").write_text("def mine(temperature: float = 2.0): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    config = load(file, "system.attention=my_variant:mine", "system.attention.temperature=3")
    assert config.system.attention.to_dict() == {"name": "my_variant:mine", "temperature": 3.0}


def test_a_part_without_a_default_must_be_named(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "bare.py"
    path.write_text("def get_config(argument): return {'system': argument}\n")
    words = "leaves its parts to you; set --config.system.attention (one of: additive, multihead)"
    assert error(f"{path}:recurrent", schema=Components) == f"config.system: recurrent {words}"
    actual = load(f"{path}:recurrent", "system.attention=additive", schema=Components)
    assert actual.system.attention.hidden == 32
    words = "a name is needed; choose from: recurrent, stacked"
    assert words in error(str(path), schema=Components)


def giving(result: object) -> str:
    """A config file that returns this."""
    return f"def get_config(argument):\n    return {result}\n"


OWN_ERROR = (
    "from attnlab.errors import UserError\ndef get_config(a):\n    raise UserError(f'no {a}')\n"
)
UNSET = "from ml_collections import config_dict as c\n" + giving(
    "c.ConfigDict({'seed': c.required_placeholder(int)})"
)
STORED = "import pathlib\n" + giving("{'system': {'name': 'stacked', 'layers': pathlib.Path('.')}}")
BROKEN = [
    ("x = 1\n", "no function get_config"),
    (giving("1 / 0"), "broken.py:2: ZeroDivisionError: division by zero"),
    ("def get_config(argument)\n    pass\n", "broken.py:1: SyntaxError"),
    ("import no_such_module_here\n", "broken.py:1: ModuleNotFoundError"),
    (giving(3), "returned int, expected a dict or ml_collections.ConfigDict"),
    ("def get_config():\n    return 0\n", "takes no argument, leave out ':recurrent'"),
    (OWN_ERROR, "no recurrent"),
    (UNSET, "required placeholder"),
    (STORED, "config.system.layers: a PosixPath cannot be stored"),
    (
        giving({"optimizer": {"name": "adam", "b2": 1.0}}),
        "b2: no such key; choose from: b1, nester",
    ),
    (giving({"optimizer": {"name": "adam", "b1": "x"}}), "b1='x' is of type str, expected float"),
]


@pytest.mark.parametrize(("text", "words"), BROKEN)
def test_a_broken_file_is_one_line(tmp_path: pathlib.Path, text: str, words: str) -> None:
    (tmp_path / "broken.py").write_text(text)
    message = error(f"{tmp_path}/broken.py:recurrent", schema=Seeded)
    assert words in message and "\n" not in message


def test_a_missing_file_names_the_near_ones(file: str, tmp_path: pathlib.Path) -> None:
    assert f"did you mean {file!r}?" in error(f"{tmp_path}/toi.py:recurrent")
    assert "no such folder" in error(f"{tmp_path}/nowhere/toy.py")


def test_references_follow_an_override_and_one_dictionary_used_twice_is_two_nodes() -> None:
    linked = ConfigDict({"system": {"name": "stacked", "layers": 10}})
    linked.seed = linked.system.get_ref("layers") * 2
    assert configs.prepare(linked, ["system.layers=50"], Seeded).seed == 100
    one = {"name": "multihead", "heads": 2}
    twice = ConfigDict({"system": {"name": "stacked", "attention": one, "inner": one}})
    system = configs.prepare(twice, ["system.attention.heads=8"], Components).system
    assert (system.attention.heads, system.inner.heads) == (8, 2)


def test_a_config_given_to_prepare_stays_as_it_is() -> None:
    tree = {"optimizer": {"name": "adam"}, "system": {"name": "stacked", "layers": 1}}
    stored_tree = configs.from_dict(tree)
    assert configs.prepare(stored_tree, ["optimizer.b1=0.5"], Components).optimizer.b1 == 0.5
    assert configs.to_dict(stored_tree) == tree


def test_hash_and_flat_survive_json(file: str) -> None:
    config, digest = load(file), configs.config_hash
    stored = configs.from_dict(json.loads(json.dumps(configs.to_dict(config))))
    assert digest(stored) == digest(config) and len(digest(config)) == 12
    assert configs.flat(stored) == configs.flat(config)
    assert configs.flat(config)["system.attention.hidden"] == 5
    assert digest(load(file, "system.attention.hidden=6")) != digest(config)
    assert digest(load(file, "system.dropout=0.1", "seed=0")) == digest(config)
    assert digest({"b": 1, "a": {"d": (1,), "c": 2}}) == digest({"a": {"c": 2, "d": [1]}, "b": 1})
    tree = configs.to_dict(config)
    tree["system"]["dropout"] = 0
    complete = configs.prepare(configs.from_dict(tree), [], Toy)
    assert type(complete.system.dropout) is float  # a whole number stands for a fraction
    for override in ("system.dropout=0", "system.dropout=0.0"):
        assert digest(load(file, override)) == digest(complete)
    assert digest({"a": 1}) == "015abd7f5cc5" and digest({"a": 1}) != digest({"a": 1.0})
    repeated = configs.prepare(stored, ["seed=3"], Toy)
    assert repeated.seed == 3 and isinstance(repeated, Toy)


def test_settings_newer_than_hashes_count_where_they_differ_from_their_default() -> None:
    nodes = {"training": TokenTraining, "parallel": Parallel, "decoding": Decoding}
    config = configs.to_dict(configs.load("configs/translation.py:rnnsearch"))
    older = json.loads(json.dumps(config))
    for name in [name for name in NEWER if not name.startswith("columns.")]:
        node, _, key = name.partition(".")
        default = settings_of(nodes[node])[key].default
        if key == "stop":  # a node
            default = {name: setting.default for name, setting in settings_of(Stop).items()}
        assert default == NEWER[f"{node}.{key}"] == config[node][key]
        del older[node][key]
        assert configs.config_hash(older) == configs.config_hash(config)
        other = {**config, node: {**config[node], key: "other"}}
        assert configs.config_hash(other) != configs.config_hash(config)


def test_stored_tables_of_images_keep_their_columns_and_their_split() -> None:
    """Of before boxes, masks and questions were columns, and images were drawn by their bytes."""
    config = configs.load("configs/image_classification.py", ["data=image_rows"])
    older = json.loads(json.dumps(configs.to_dict(config)))
    for name in ("boxes", "categories", "mask", "answer"):
        del older["data"]["columns"][name]
    assert configs.config_hash(older) == configs.config_hash(config)
    del older["data"]["drawn_by"]
    assert changed(older, config) == ['data.drawn_by: saved "name", wanted "content"']
    assert changed(older, configs.as_stored(config, older)) == []
