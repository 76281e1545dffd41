"""Translation small enough for a test: words of one to six letters to their mirror images, by the
systems of the users' config file.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image

from attnlab import config as configs
from attnlab.analysis.results import resampled, scores
from attnlab.data.columns import Batch
from attnlab.records.items import Items
from attnlab.records.measures import counted, declared
from attnlab.tasks import TASKS
from attnlab.tasks.maps import attention_maps
from attnlab.tasks.pairs import Translation
from attnlab.tasks.protocol import TextExample
from tests.changed import changed as changed_settings
from tests.commands.tiny import RNN

SIZES = {"train": 64, "valid": 11, "test": 9}
SMALL = {
    "rnn_encoder_decoder": RNN,
    "rnnsearch": [*RNN, "system.attention.score.hidden=8"],
    "rctm": ["system.width=24", "system.longest=8"],
    "convs2s": [
        *("system.embedding=16", "system.width=16", "system.encoder_layers=1"),
        *("system.decoder_layers=2", "system.dropout=0.0"),
    ],
    "transformer": ["system.width=16", "system.hidden=16", "system.layers=1", "system.dropout=0.0"],
}
SHARED = [
    *("batch.size=16", "batch.buckets=8", "batch.max_length=8", "decoding.max_ratio=1.0"),
    *("decoding.max_extra=2", "decoding.batch=8"),
]


WORDS = [f"data={__name__}:Mirrored", "vocabulary.kind=char", "vocabulary.min_frequency=1"]
APART = ["vocabulary.shared=false", "data.upper=true"]
"""Each side has a vocabulary of its own."""


@dataclasses.dataclass(frozen=True)
class Mirrored:
    """Words and their mirror images, in upper case if asked for; letters a to e."""

    upper: bool = False

    def pairs(self, split: str) -> list[tuple[str, str]]:
        rng = np.random.default_rng(list(SIZES).index(split))
        lengths = (rng.integers(1, 7) for _ in range(SIZES[split]))
        words = ["".join(rng.choice(list("abcde"), length)) for length in lengths]
        return [(word, word[::-1].upper() if self.upper else word[::-1]) for word in words]


def load(system: str, *overrides: str) -> Translation:
    """The task of `configs/translation.py:<system>`, shrunk, with overrides "a.b=value" on top and
    words for data.
    """
    small = [*SMALL[system], *SHARED, *WORDS]
    return loader(f"translation.py:{system}", small, tuple(SIZES))(*overrides)  # type: ignore[no-any-return]


def changed(task: Any, **changes: Any) -> Any:
    """The same data under another config; "__" stands for the dot."""
    return type(task)(changed_settings(task.config, **changes), task.data)


def looked(task: Any, params: Any, *texts: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The maps of an example by name, and the labels of what they lie between."""
    example = TextExample(*texts)  # type: ignore[arg-type]
    _, sides = task.model_inputs(example)
    return attention_maps(task, params, example), {side: list(sides[side]) for side in sides}


def check_items(task: Any, params: Any, split: str, expected: set[str]) -> Items:
    """What the scores of a split are made of: with every example once, counts give the recorded
    scores to the last bit, losses nearly.
    """
    results, outputs = scores(task, params, split)
    items = resampled(task, params, split, outputs, results)
    assert items is not None and set(items.rules) == expected <= set(declared(task))
    for name in expected:
        losses = name in ("loss", "perplexity", "bits_per_character", "absolute_error")
        assert items.score(name) == (
            pytest.approx(results[name], rel=1e-6, abs=1e-6) if losses else results[name]
        ), name
    for name, one in counted(task, split).items():
        assert (one.count is not None) == (one.of is not None)
        if one.count is not None and name in expected:
            assert items.rows[name].sum(axis=0)[1] == one.count > 0
            whole = results[name] * one.count
            assert whole == pytest.approx(round(whole), abs=1e-9)
    return items


def batch_of(task: Translation, rows: int = 13) -> Batch:
    """A training batch of 16 rows, of which the first `rows` are sentences and the others
    padding.
    """
    batch = task.batches(1)(0)
    return {key: np.where(np.arange(len(x))[:, None] < rows, x, 0) for key, x in batch.items()}


def image_files(folder: Path, images: Iterable[np.ndarray]) -> list[str]:
    """The names of files with these pixels."""
    names = []
    for number, pixels in enumerate(images):
        names.append(str(folder / f"{number}.png"))
        Image.fromarray(pixels).save(names[-1])
    return names


def log_softmax(logits: Any) -> np.ndarray:
    """log p over the last axis, in float64."""
    wide = np.asarray(logits, np.float64)
    return wide - np.logaddexp.reduce(wide, axis=-1, keepdims=True)


@functools.lru_cache(maxsize=1)
def applied(task: Any) -> Any:
    """The system of a task, compiled."""
    return jax.jit(task.system.apply)


def noise(shapes: Any, deviation: float) -> Any:
    """Parameters of these shapes that tell inputs apart: noise, around 1 for scales and variances.
    Nothing of it is compiled.
    """
    rng = np.random.default_rng(0)

    def drawn(path: Any, leaf: Any) -> np.ndarray:
        values = (deviation * rng.normal(size=leaf.shape)).astype(np.float32)
        return 1 + np.abs(values) if path[-1].key in ("scale", "variance") else values

    return jax.tree_util.tree_map_with_path(drawn, shapes)


def noisy(task: Any, deviation: float = 0.5) -> Any:
    """`noise` in the shapes of a task's parameters."""
    return noise(jax.eval_shape(task.init, jax.random.key(0)), deviation)


def loader(
    config: str, small: Sequence[str], splits: Sequence[str] = ("train", "valid")
) -> Callable[..., Any]:
    """The function `load(*overrides, system=...)` of the task of a file in `configs/`, shrunk to
    small sizes; its system is that of `config`, "FILE.py:SYSTEM", unless another one is named.
    """
    file, _, usual = config.partition(":")

    def load(*overrides: str, system: str = usual) -> Any:
        name = f"configs/{file}:{system}" if system else f"configs/{file}"
        settings = configs.load(name, [*small, *overrides])
        kind = TASKS.resolve(settings.task)
        kind.check(settings)
        return kind.load(settings, None, splits)

    return load


def fixtures(load: Callable[[], Any], deviation: float) -> tuple[Any, Any]:
    """The fixtures `task` and `params` of a module: a task, and noise in the shapes of its
    parameters.
    """

    @pytest.fixture(scope="module")
    def task() -> Any:
        return load()

    @pytest.fixture(scope="module")
    def params(task: Any) -> Any:
        return noisy(task, deviation)

    return task, params
