"""Translation small enough for a test: words of one to six letters to their mirror images, by the
systems of the users' config file.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest
from PIL import Image

from attnlab import config as configs
from attnlab.analysis.results import resampled, scores
from attnlab.data.columns import Batch
from attnlab.data.corpus import Corpus, encode
from attnlab.data.learned import Learned
from attnlab.data.vocabulary import Vocabulary
from attnlab.records.items import Items
from attnlab.records.measures import counted, declared
from attnlab.tasks import TASKS
from attnlab.tasks.maps import attention_maps
from attnlab.tasks.protocol import TextExample
from attnlab.tasks.translation import Translation
from attnlab.training.drawing import first_params
from attnlab.training.step import first_state, make_step
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


def mirrored(split: str) -> list[tuple[str, str]]:
    """Words and their mirror images; letters a to e."""
    rng = np.random.default_rng(list(SIZES).index(split))
    words = ["".join(rng.choice(list("abcde"), rng.integers(1, 7))) for _ in range(SIZES[split])]
    return [(word, word[::-1]) for word in words]


def load(system: str, *overrides: str) -> Translation:
    """The task of `configs/translation.py:<system>`, shrunk, with overrides "a.b=value" on top and
    words for data.

    With `vocabulary.shared=false` the mirror images are in upper case, and each side has a
    vocabulary of its own.
    """
    config = configs.load(f"configs/translation.py:{system}", [*SMALL[system], *SHARED, *overrides])
    pairs = {split: mirrored(split) for split in SIZES}
    if not config.vocabulary.shared:
        pairs = {
            split: [(source, target.upper()) for source, target in texts]
            for split, texts in pairs.items()
        }
    of_sides = [[pair[side] for pair in pairs["train"]] for side in (0, 1)]
    source, target = (Vocabulary.train(texts, kind="char", min_frequency=1) for texts in of_sides)
    learned = Learned(source=source, target=source if config.vocabulary.shared else target)
    examples = {split: encode(learned.vocabularies, texts) for split, texts in pairs.items()}
    return Translation(config, Corpus(pairs, examples, learned))


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


def trained(task: Translation, steps: int = 150) -> Any:
    """Parameters after a little training: far from uniform, far from perfect."""
    optimizer = optax.adam(1e-2)
    step = jax.jit(make_step(task.loss, task.weight, optimizer), donate_argnums=0)
    state = first_state(first_params(task.init, jax.random.key(3)), optimizer, 0.0)
    batches = task.batches(1)
    for number in range(steps):
        state, _ = step(state, batches(number))
    return state.params


def loader(
    config: str, small: Sequence[str], splits: Sequence[str] = ("train", "valid")
) -> Callable[..., Any]:
    """The function `load(*overrides, system=...)` of the task of a file in `configs/`, shrunk to
    small sizes; its system is that of `config`, "FILE.py:SYSTEM", unless another one is named.
    """
    file, _, usual = config.partition(":")

    def load(*overrides: str, system: str = usual) -> Any:
        settings = configs.load(f"configs/{file}:{system}", [*small, *overrides])
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
