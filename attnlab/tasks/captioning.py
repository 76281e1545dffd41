"""Captioning: images to texts, scored token by token, as free-running text and, where the source
knows what its words are about, by where the system looks (`localisation.py`).

    x = (image / 255 - mean) / deviation        of each channel, over the training split

Where a system looks is judged in the captions that are there, teacher-forced, by the look before a
word is written; it needs a vocabulary of words, in which a caption has as many tokens as words.

Axis letters: B batch, T target length, L places of the feature map (h w), N captions.
"""

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.protocol import MAPS
from attnlab.data.columns import IDS, Declared, Examples
from attnlab.data.images.files import read_images
from attnlab.data.images.texts import CaptionData, encoded
from attnlab.data.learned import Shape, VocabularySettings
from attnlab.data.vocabulary import Vocabulary
from attnlab.decoding.generate import Decoder
from attnlab.decoding.settings import validate
from attnlab.errors import UserError
from attnlab.records.measures import TEXT, Measure, share
from attnlab.systems.vision.captioner import Captioner
from attnlab.tasks import schemas
from attnlab.tasks.auxiliary import Auxiliary
from attnlab.tasks.decoders import check_room, ending, translating
from attnlab.tasks.images import augment
from attnlab.tasks.localisation import SCORES, Named, named, sums
from attnlab.tasks.maps import ImageExample, numbered
from attnlab.tasks.models import check_statistics, left_aside, shapes_of, system_factory
from attnlab.tasks.protocol import Batch, Loss, Params, Scores, Sides, Tree
from attnlab.tasks.tokens import check_output_bias, cross_entropy
from attnlab.tasks.written import ScoredAsText


def build_system(
    config: schemas.Captioning, vocabulary: int, shape: Shape, pad_id: int = 0
) -> tuple[Captioner, Auxiliary]:
    """Returns the captioner of a config for a vocabulary of this size, checked for images of
    `shape` (H, W, C), and the `Auxiliary` terms of its loss; raises `UserError` where a part does
    not fit.

    Raises:
      UserError: as `attnlab.tasks.pairs.build_system`; images too small for the backbone, or a
        backbone that samples, hands out a loss, or has statistics of a batch that is never there.
    """
    system: Captioner = system_factory(config, Captioner)(
        target_vocabulary=vocabulary, pad_id=pad_id
    )
    check_statistics(config, system, "the statistics of norms in the system are those of")
    images = jax.ShapeDtypeStruct((1, *shape), jnp.float32)
    ids = jax.ShapeDtypeStruct((1, config.batch.max_length), jnp.int32)
    handed_out = shapes_of(system, images, ids)
    inside = left_aside(system.detached_backbone, handed_out["params"]["backbone"], images)
    if any(inside.values()):
        raise UserError(
            "config.system.backbone: its attention samples what it looks at or hands out a loss,"
            " which captioning does not train; choose another alignment there"
        )
    check_output_bias(config, handed_out["params"], vocabulary)
    return system, Auxiliary(type(system), handed_out, config, config.batch.max_length)


class Captioning(ScoredAsText[schemas.Captioning, CaptionData, Captioner]):
    """Images to texts; see `attnlab.tasks.base.Task`.

    Attributes:
      config: see `configs/captioning.py`.
      data: the images and their captions.
      system: the model.
    """

    systems: ClassVar[type[Captioner]] = Captioner
    schema = schemas.Captioning
    loads = CaptionData
    columns: ClassVar[Mapping[str, Declared]] = {
        "source": Declared("uint8", ("H", "W", "C")),
        "target": IDS,
    }
    inputs = ("source", "target")
    measures: Mapping[str, Measure | str] = {
        **ScoredAsText.measures,
        "exact": share("captions", unit="share of captions right as a whole", depends=(TEXT,)),
        "named": Measure(
            "max", 0.0, 1.0, depends=(TEXT,), unit="F1 of the words that name objects"
        ),
        "localisation": Measure("max", 0.0, 1.0, unit="share of a word's attention on its object"),
        "pointing": share("words", unit="words whose most looked-at place is on their object"),
    }
    units: ClassVar[Mapping[str, str]] = {
        "localisation_chance": "share of the image that its object has",
        "pointing_chance": "share of places that are on it",
    }
    examples: ClassVar[str] = "captions"
    outputs: ClassVar[str] = "captions.txt"
    stored_labels = {"target_tokens": ("target",), "image_patches": ("image",)}

    def __init__(self, config: schemas.Captioning, data: CaptionData) -> None:
        self.special = data.vocabulary.special
        sizes = data.vocabulary.size, data.learned.shape, self.special.pad
        super().__init__(config, data, *build_system(config, *sizes))
        self.at_once = validate(config.decoding).batch

    @functools.cached_property
    def grid(self) -> tuple[int, int]:
        """h and w of the feature map that it looks at."""
        return self.system.grid(self.data.learned.shape)

    @property
    def written_in(self) -> Vocabulary:
        """That of captions."""
        return self.data.vocabulary

    @classmethod
    def check(cls, config: schemas.Captioning) -> None:
        """Builds system and decoding settings with a stand-in vocabulary, if the source knows the
        size of its images, so that a bad config raises `UserError` before data is read.
        """
        VocabularySettings.read(config.vocabulary)
        shape = getattr(CaptionData.of_config(config.data), "shape", None)
        if shape is None:
            return
        system, _ = build_system(config, 8, shape)
        height, width = system.grid(shape)
        read = jax.ShapeDtypeStruct((1, *shape), jnp.float32)
        check_room(system, config, read, height * width)

    # --- training ---

    def init_inputs(self) -> list[jax.Array]:
        """See `Task.init_inputs`."""
        return [jnp.zeros((1, *self.data.learned.shape)), jnp.ones((1, 2), jnp.int32)]

    def apply(self, params: Params, batch: Batch, **options: Any) -> Tree:
        """Teacher forcing: the logits [B,T,V] of the caption of a batch, whose images are normalised
        first.
        """
        images = self.data.learned.normalised(jnp.asarray(batch["source"]))
        real = self.real(batch["target"]).any(axis=1)
        target_in = self.target_in(batch["target"])
        return self.system.apply({"params": params}, images, target_in, real, **options)

    def loss(self, params: Params, batch: Batch, key: jax.Array, **options: Any) -> Loss:
        """See `Task.loss`, of images changed as `config.augmentation` says."""
        images = augment(self.config.augmentation, key, jnp.asarray(batch["source"]))
        return super().loss(params, {**batch, "source": images}, key, **options)

    def auxiliary_inputs(self, outputs: jax.Array, batch: Batch) -> dict[str, Tree]:
        """Returns the arguments of `auxiliary` by name: masks of the real caption tokens ("target")
        and of the places of real images ("source"), and the log-likelihood of each caption token.
        See `Task.auxiliary_inputs`.
        """
        target = jnp.asarray(batch["target"])
        real = self.real(target)
        places = jnp.broadcast_to(real.any(axis=1)[:, None], (len(target), self.places))
        log_likelihood = -cross_entropy(outputs.astype(jnp.float32), target, 0.0)
        return {"source": places, "target": real, "log_likelihood": log_likelihood}

    @property
    def places(self) -> int:
        """L, of the feature map."""
        return self.grid[0] * self.grid[1]

    # --- scores ---

    def references(self, split: str) -> list[str]:
        """See `ScoredAsText.references`."""
        return [self.data.vocabulary.normalize(text) for text in self.data.rows[split]]

    def counts(self, split: str) -> dict[str, int]:
        """The number of tokens, and of the words by which localisation is judged."""
        tokens = len(self.of_split(split).packed("target").ids)
        named_words = self._named_words(split)
        count = 0 if named_words is None else sum(map(len, named_words))
        return {"tokens": tokens, "words": count}

    def score(self, params: Params, split: str) -> tuple[Scores, list[str]]:
        """Those of `ScoredAsText`; where the source knows what words are about, "named", and, of a
        system that attends, "localisation" and "pointing", each with its chance.
        """
        scores, texts = super().score(params, split)
        rows = {**self._named(split, texts), **self._localised(params, split)}
        totals = {name: np.sum(values, axis=0) for name, values in rows.items()}
        return {**scores, **{name: float(a / max(b, 1)) for name, (a, b) in totals.items()}}, texts

    def counted(
        self, params: Params, split: str, outputs: Sequence[str]
    ) -> dict[str, tuple[str, Any]]:
        """Returns for each score, those of object names and of localisation included where they can
        be had, a pair from which it is resampled: a rule of `attnlab.records.items` and an array
        with a row for each caption.
        """
        rows = {**self._named(split, outputs), **self._localised(params, split)}
        measured = {
            name: ("ratio", values)
            for name, values in rows.items()
            if name in self.measures and np.sum(values)
        }
        return {**super().counted(params, split, outputs), **measured}

    def _named(self, split: str, texts: Sequence[str]) -> dict[str, np.ndarray]:
        """Returns under "named" for each caption [N,2] twice the number of object names in both its
        reference and its text in `texts`, and the number in the two together, whose ratio is F1; {}
        if the source has no object names.
        """
        about = self.data.extra[split]
        if about is None:
            return {}
        rows = []
        for pair in zip(texts, self.references(split), strict=True):
            written, reference = (
                Counter(word for word in text.split() if word in about.named) for text in pair
            )
            rows.append([2 * (written & reference).total(), written.total() + reference.total()])
        return {"named": np.array(rows)}

    def _named_words(self, split: str) -> list[Named] | None:
        """The words of each caption of a split that name an object; None where that is not known, or
        where tokens are no words.
        """
        about, captions = self.data.extra[split], self.data.rows[split]
        lengths = self.of_split(split).packed("target").lengths
        counts = np.array([len(text.split()) + 1 for text in captions])
        return None if about is None or (counts != lengths).any() else named(captions, about)

    def _localised(self, params: Params, split: str) -> dict[str, np.ndarray]:
        """Returns by score (localisation, pointing and the chance of each) for each caption [N,2]
        the sum over its words that name objects and the number of these words; {} where objects are
        unknown or the system has no attention.
        """
        named_words = self._named_words(split)
        if named_words is None or not self.system.needs:
            return {}
        weights = (
            (row, np.asarray(of_row, np.float64))
            for rows, batch in self.in_order(self.of_split(split))
            for row, of_row in zip(rows, self._weights(params, batch), strict=True)
            if row >= 0
        )
        totals = sums(weights, named_words, self.data.extra[split].objects, self.grid)
        return {name: totals[:, [column, -1]] for column, name in enumerate(SCORES)}

    @functools.cached_property
    def _weights(self) -> Any:
        """Returns the compiled program that gives the attention weights [B,T,L] of each word in
        teacher-forced captions.
        """

        @self.jit
        def weights(params: Params, batch: Batch) -> jax.Array:
            _, collected = self.apply(params, batch, mutable=[MAPS])
            return self.system.alignment(self.system.maps(collected[MAPS]))

        return weights

    # --- text and maps ---

    def examples_from_lines(self, lines: Sequence[str]) -> Examples:
        """Images from files, a name a line, resized to those of training, without captions;
        `UserError` for a file that is no image.
        """
        images = read_images(lines, self.data.learned.shape)
        return encoded(self.data.vocabulary, images, [""] * len(lines))

    def longer_than(self, limit: int, lines: Sequence[str]) -> list[int]:
        """None: images have no length."""
        return []

    def decoder(self, alignment: bool) -> Decoder:
        """Returns a decoder that writes captions of images, which it normalises first, with
        attention weights if `alignment`; every place of an image counts as one source token. See
        `WritingTask.decoder`.
        """
        return translating(
            self.system,
            self._settings,
            alignment=alignment,
            special=self.special,
            ended=ending(self._settings, self.spelt),
            prepared=self.data.learned.normalised,
            real=lambda images: np.ones((len(images), self.places), bool),
        )

    def map_examples(self, split: str, number: int) -> list[ImageExample]:  # type: ignore[override]
        """The first images of a split, named by their numbers."""
        captions = self.data.rows[split][:number]
        images = self.of_split(split).batch(np.arange(len(captions)), 1)["source"]
        return numbered(split, images, captions)

    def example(self, source: str, target: str) -> ImageExample:
        """See `WritingTask.example`; the source is the name of a file."""
        return ImageExample(source, read_images([source], self.data.learned.shape)[0], target)

    def model_inputs(self, example: ImageExample) -> tuple[list[Any], Sides]:
        """Returns two things: the inputs, a list of the normalised image [1,H,W,C] and the shifted
        ids of the caption [1,T], and a dict of labels of the sides of maps: "image" (the places row
        by row), "target" (what a step predicts), "target_in" (what it reads).
        """
        target = self.data.vocabulary.packed([example.label or ""])[0][None]
        target_in = np.asarray(self.shifted(target))
        height, width = self.grid
        labels = [f"{row + 1},{column + 1}" for row in range(height) for column in range(width)]
        axes = {
            name: self.data.vocabulary.tokens(ids[0])
            for name, ids in (("target", target), ("target_in", target_in))
        }
        image = self.data.learned.normalised(example.image[None])
        return [image, target_in], {**axes, "image": labels}
