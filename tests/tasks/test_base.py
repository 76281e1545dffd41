"""A whole task of images of one's own takes a few lines, and special ids may stand anywhere in a
vocabulary.
"""

import dataclasses
import functools
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.protocol import MAPS
from attnlab.data.columns import Declared, Examples
from attnlab.data.corpus import Corpus, encode
from attnlab.data.learned import Learned
from attnlab.data.settings import Buckets
from attnlab.data.vocabulary import Special, Vocabulary
from attnlab.errors import UserError
from attnlab.systems.protocol import System
from attnlab.tasks.base import Task
from attnlab.tasks.maps import attention_maps, stored_labels
from attnlab.tasks.pairs import Translation
from attnlab.tasks.schemas import Pretrained, Settings
from attnlab.tasks.scoring import scored_texts
from attnlab.training.settings import Stop, Training
from attnlab.training.updates import first_params
from tests.refusals import check_refused
from tests.tasks import tiny

SIDE = 4  # pixels


class Look(nn.Module):
    """The weights [B,P] of patches [B,P,n]."""

    @nn.compact
    def __call__(self, patches: jax.Array) -> jax.Array:
        weights = jax.nn.softmax(nn.Dense(1)(patches)[..., 0], axis=-1)
        self.sow(MAPS, "weights", weights[:, None, None])
        return weights


class Pooled(System):
    """Four patches of an image, weighed by a score and averaged; a linear read-out."""

    classes: int = 2

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        half = SIDE // 2
        patches = image.astype(jnp.float32).reshape(-1, 2, half, 2, half).swapaxes(2, 3) / 255
        patches = patches.reshape(-1, 4, half * half)
        weights = Look(name="look")(patches)
        return nn.Dense(self.classes)((weights[..., None] * patches).sum(axis=1))

    @classmethod
    def between(cls, name: str) -> tuple[str, str]:
        return "hops", "image"


@dataclasses.dataclass(frozen=True)
class Images:
    """Dark images and bright ones."""

    kept: ClassVar[str] = "levels"
    things: ClassVar[str] = "images"

    examples: Mapping[str, Examples]
    fingerprints: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def drawn(cls, sizes: Mapping[str, int]) -> "Images":
        rng, actual = np.random.default_rng(0), {}
        for split, size in sizes.items():
            label = rng.integers(0, 2, size)
            image = rng.integers(0, 156, (size, SIDE, SIDE)) + 99 * label[:, None, None]
            actual[split] = Examples(image=image.astype(np.uint8), label=label.astype(np.int32) + 1)
        return cls(actual)

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.examples)

    def size(self, split: str) -> int:
        return len(self.examples[split])

    def about(self, split: str) -> str:
        return f"{self.size(split)} images"

    def save(self, workdir: Path) -> None:
        (workdir / "levels.json").write_text("2")

    @staticmethod
    def saved(workdir: Path) -> bool:
        return (workdir / "levels.json").exists()


@dataclasses.dataclass(frozen=True)
class Shown:
    """An image of a split."""

    number: int
    image: np.ndarray

    def shown(self) -> str:
        return f"image {self.number}"

    def record(self) -> dict[str, Any]:
        return {"number": self.number}


class Brightness(Task[Settings, Images, Pooled]):
    """Whether an image is a dark one or a bright one."""

    systems = Pooled
    reads = "images"
    loads = Images
    columns = {"image": Declared("uint8", (SIDE, SIDE)), "label": Declared("int32")}
    inputs = ("image",)
    measures = {"loss": "min", "accuracy": "max"}
    evaluated = ("loss", "accuracy")
    ratios = {"loss": ("loss", "rows"), "accuracy": ("correct", "rows")}
    stored_labels = {"image_patches": ("image",)}

    def __init__(self, config: Settings, data: Images) -> None:
        super().__init__(config, data, Pooled())

    @classmethod
    def read(cls, config: Settings, workdir: Path | None, splits: Sequence[str]) -> Images:
        return Images.drawn(dict.fromkeys(splits, 10))

    def summed(self, outputs: Any, batch: Any, smoothing: Any) -> dict[str, jax.Array]:
        label = jnp.asarray(batch["label"])
        scores = jax.nn.log_softmax(outputs)
        picked = jnp.take_along_axis(scores, jnp.maximum(label - 1, 0)[:, None], axis=1)[:, 0]
        right = (scores.argmax(axis=1) == label - 1) & (label > 0)
        return {
            "loss": -jnp.where(label > 0, picked, 0.0).sum(),
            "tokens": (label > 0).sum(),
            "correct": right.sum(),
        }

    def weight(self, batch: Any) -> jax.Array:
        return (jnp.asarray(batch["label"]) > 0).sum().astype(jnp.float32)

    def map_examples(self, split: str, number: int) -> list[Shown]:
        batch = self.of_split(split).batch(np.arange(number), 1)
        return [Shown(*one) for one in enumerate(batch["image"])]

    def model_inputs(self, example: Shown) -> tuple[list[np.ndarray], dict[str, list[str]]]:
        names = ["top left", "top right", "bottom left", "bottom right"]
        return [example.image[None]], {"image": names}


CONFIG: Any = types.SimpleNamespace(
    task="brightness",
    seed=0,
    batch=Buckets(size=6, buckets=(1,), max_length=1),
    training=Training(steps=1, stop=Stop()),
    pretrained=Pretrained(),
)


@pytest.fixture(scope="module")
def images() -> Brightness:
    return Brightness(CONFIG, Images.drawn({"train": 20, "valid": 70, "test": 3}))


def test_a_task_of_images_trains_and_scores_and_says_where_it_looked(images: Brightness) -> None:
    batches = images.batches(1)
    expected = {"image": (6, SIDE, SIDE), "label": (6,)}
    assert {name: one.shape for name, one in batches(0).items()} == expected
    params = first_params(images.init, jax.random.key(0))
    step = jax.jit(jax.value_and_grad(lambda p, batch: images.loss(p, batch, jax.random.key(0))[0]))
    before = images.evaluate(params, "valid")
    for number in range(60):
        _, slope = step(params, batches(number))
        params = jax.tree.map(lambda p, g: p - 0.3 * g, params, slope)
    after = images.evaluate(params, "valid")
    assert after["loss"] < 0.9 * before["loss"] and after["accuracy"] > 0.7
    batch = images.of_split("valid").batch(np.arange(70), 1)
    logits = np.asarray(images.apply(params, batch))
    assert after["accuracy"] == np.mean(logits.argmax(axis=1) == batch["label"] - 1)
    part = images.evaluate(params, "valid", rows=3)  # one batch of two: what is over, 70 - 64
    assert part["accuracy"] == np.mean(logits[:6].argmax(axis=1) == batch["label"][:6] - 1)
    both = jax.tree.map(lambda one: jnp.stack([one, 0 * one]), params)
    stacked = images.evaluate_stacked(both, "valid")
    assert stacked[0] == pytest.approx(after) and stacked[1]["loss"] == pytest.approx(np.log(2))
    assert images.notes(batches) == ["train: 20 images", "valid: 70 images", "test: 3 images"]

    (example,) = images.map_examples("test", 1)
    look = attention_maps(images, params, example)["look"]
    assert example.record() == {"number": 0} and look.columns[1] == "top right"
    assert look.rows == ["hop 1"] and list(stored_labels(images, example)) == ["image_patches"]
    assert look.weights.shape == (1, 1, 4)
    np.testing.assert_allclose(look.weights.sum(), 1.0, rtol=1e-5)


def test_what_a_run_has_lost_and_wrong_columns(images: Brightness, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has lost its levels; the 'train' command"):
        Brightness.load(CONFIG, tmp_path, ("test",))
    images.save(tmp_path)
    assert Brightness.load(CONFIG, tmp_path, ("test",)).size("test") == 10
    wrong = {"train": Examples(image=np.zeros((8, SIDE, 5), np.uint8), label=np.ones(8, np.int32))}
    with pytest.raises(UserError, match=r"task brightness: column 'image' is uint8 \[B,4,5\]"):
        Brightness(CONFIG, Images(wrong)).batches(1)


def test_a_ratio_that_is_no_measure_is_refused_by_name(images: Brightness) -> None:
    """Where the class that declares it declares measures too, or its base does."""
    misspelt = {"loss": ("loss", "rows"), "acuracy": ("correct", "rows")}
    words = "ratios: 'acuracy' is no measure; did you mean 'accuracy'"
    check_refused(words, type("Own", (Brightness,), {"ratios": misspelt}), CONFIG, images.data)
    type("Fewer", (Brightness,), {"measures": {"loss": "min"}})(CONFIG, images.data)


def test_ratios_of_measures_that_are_a_property_or_a_perplexity(images: Brightness) -> None:
    class Lively(Brightness):
        measures = property(lambda self: {"accuracy": "max"})  # type: ignore[assignment]
        ratios = {"accuracy": ("correct", "rows")}

    class Perplexed(Brightness):
        measures = {"perplexity": "min"}
        evaluated = ("perplexity",)
        ratios = {"loss": ("loss", "rows")}

    for kind in (Lively, Perplexed):
        assert kind(CONFIG, images.data).ratios == kind.ratios


class Elsewhere(Vocabulary):
    """A vocabulary whose ids are those of another in reverse."""

    def __init__(self, of: Vocabulary, pad: int) -> None:
        super().__init__(of._tokenizer, of.settings)
        self.special = Special(pad=pad, bos=of.size - 2, eos=of.size - 3, unk=of.size - 4)
        self._pieces = self._pieces[::-1]

    def encode_stream(self, texts: Any, end: Sequence[int] = ()) -> Any:
        for ids in super().encode_stream(texts):
            yield np.array([*(self.size - 1 - ids), *end], np.int32)


def under(task: Translation, one: Vocabulary) -> Translation:
    """The same texts with another vocabulary."""
    pairs = task.data.rows
    of_splits = {split: encode((one, one), texts) for split, texts in pairs.items()}
    return Translation(task.config, Corpus(pairs, of_splits, Learned.of_vocabulary(one)))


@pytest.mark.parametrize(
    "system", ["rnnsearch", pytest.param("transformer", marks=pytest.mark.full)]
)
def test_special_ids_may_stand_anywhere(system: str) -> None:
    """The same texts under other ids: with the rows of tables and read-outs in the other order all
    losses, scores and translations are the same.
    """
    task = tiny.load(system, "decoding.method=greedy")
    one = Elsewhere(task.vocabularies[0], task.vocabularies[0].size - 1)
    other, no_id = (under(task, two) for two in (one, Elsewhere(task.vocabularies[0], -1)))
    assert other.batches(1)(0)["target"].max() == other.system.pad_id == one.size - 1
    assert no_id.batches(1)(0)["target"].min() == no_id.system.pad_id == -1
    params = tiny.noisy(task, 0.3)

    def turned(path: Any, leaf: Any) -> Any:
        return leaf[tuple(slice(None, None, -1 if size == one.size else 1) for size in leaf.shape)]

    mirrored = jax.tree_util.tree_map_with_path(turned, params)
    for same in (other, no_id):
        expected = pytest.approx(task.evaluate(params, "valid"), rel=1e-5)
        assert same.evaluate(mirrored, "valid") == expected
    ways = [functools.partial(one.respond, p) for one, p in ((task, params), (other, mirrored))]
    message, actual = (way(["abc", "ed", "a"]) for way in ways)
    assert [best[0].text for best in actual] == [best[0].text for best in message]
    scores = [best[0].score for best in message]
    assert [best[0].score for best in actual] == pytest.approx(scores, rel=1e-4)
    (there,), (here,) = (
        scored_texts(each, p, [("abc", "cba")]) for each, p in ((other, mirrored), (task, params))
    )
    assert there.log_prob == pytest.approx(here.log_prob, rel=1e-5)


def test_two_vocabularies_that_are_padded_otherwise_are_refused() -> None:
    task = tiny.load("rnnsearch")
    source = task.vocabularies[0]
    both = source, Elsewhere(source, -1)
    examples = {split: encode(both, texts) for split, texts in task.data.rows.items()}
    with pytest.raises(UserError, match="padded with different ids, 0 and -1"):
        Translation(
            task.config, Corpus(task.data.rows, examples, Learned(source=both[0], target=both[1]))
        )
