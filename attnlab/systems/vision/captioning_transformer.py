"""A Transformer that writes a text for an image: the encoder-decoder of Vaswani et al. 2017, whose
source are the places of a feature map in place of words.

    x_0 = dropout(N_e(a W_f + b_f))       a the places of the backbone's feature map, see `captioner.py`

and from there on as in `systems/transformers/transformer.py`. With encoder_attention=none the encoder
mixes no places: the backbone has done that. Source: A. Vaswani et al., "Attention Is All You Need",
NeurIPS 2017; convolutions below a Transformer that captions, among others: P. Sharma et al.,
"Conceptual Captions", ACL 2018.

Axis letters: B batch, L places, d model width.
"""

from typing import Any, Literal

import jax

from attnlab.layers.dense import Dense
from attnlab.systems.protocol import Side
from attnlab.systems.transformers.transformer import EncoderDecoder
from attnlab.systems.vision.captioner import Captioner


class CaptioningTransformer(Captioner, EncoderDecoder, kw_only=True):
    """A Transformer over the places of a feature map (Vaswani et al. 2017). The fields not named here
    are those of `Captioner` and `EncoderDecoder`; `positions` are those of words.

    Attributes:
      share: whether words and output have one matrix ("output") or two ("none").

    Card: Vaswani et al., Attention Is All You Need, NeurIPS 2017.
    """

    share: Literal["output", "none"] = "output"  # type: ignore[assignment]

    parts = {**EncoderDecoder.parts, **Captioner.parts}

    def setup(self) -> None:
        super().setup()
        self.of_features = Dense(self.width)

    def encode(self, source: jax.Array, valid: jax.Array | None = None) -> list[Any]:
        """See `Captioner.encode`: one memory for each decoder layer."""
        a, real = self.annotations(source, valid)
        return self.read_through(self.of_features(a), real)

    @classmethod
    def between(cls, name: str) -> tuple[Side, Side]:
        """See `System.between`."""
        query, key = EncoderDecoder.between(name)
        return ("image" if query == "source" else query), ("image" if key == "source" else key)
