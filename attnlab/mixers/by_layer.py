"""A mixer of its own for each layer, and none; see `attnlab.layers.by_layer`."""

import dataclasses
from typing import Any, ClassVar

import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention.mixer import Capabilities
from attnlab.attention.protocol import Attention, Reading
from attnlab.attention.view import CAUSAL, EVERYTHING, View
from attnlab.config.registry import Parts
from attnlab.layers.by_layer import ByLayer
from attnlab.mixers import MIXERS


@dataclasses.dataclass(frozen=True)
class MixerByLayer(ByLayer):
    """One of two mixers in each layer, such as softmax attention in every third; "none" for layers
    without one. The fields are those of `ByLayer`.

    Card: pattern; Child et al., Generating Long Sequences with Sparse Transformers, 2019.
    """

    parts: ClassVar[Parts] = {"one": MIXERS, "other": MIXERS}


@flax.struct.dataclass
class Nothing:
    """The memory of no attention.

    Attributes:
      valid: [B,Tk] bool, which tokens of the source are real.
    """

    valid: jax.Array


class NoMixer(Attention):
    """No mixer: 0 for every token, and no parameters. A block leaves out the residual connection
    and the norm around it too, so the layer has a feed-forward alone.

    Card: none; Dong et al., Attention is Not All You Need, ICML 2021, as a control; time 0.
    """

    absent: ClassVar[bool] = True

    capabilities = Capabilities(maps="none", state="constant", values=True, history=True)

    def remember(
        self, source: jax.Array, valid: Any = None, capacity: Any = None, positions: Any = 0
    ) -> Nothing:
        """See `Attention.remember`."""
        return Nothing(jnp.ones(source.shape[:2], bool) if valid is None else valid)

    def read(
        self,
        query: jax.Array,
        memory: Nothing,
        view: View = EVERYTHING,
        weights: bool = False,
        history: Any = None,
    ) -> Reading:
        """See `Attention.read`."""
        return Reading(jnp.zeros((*query.shape[:-1], self.width), query.dtype))

    def begin(self, rows: int, room: int, dtype: Any, window: int | None = None) -> Any:
        """See `Mixer.begin`."""
        return ()

    def mix(self, x: jax.Array, view: View = CAUSAL, state: Any = None) -> tuple[jax.Array, Any]:
        """See `Mixer.mix`."""
        return jnp.zeros_like(x), ()
