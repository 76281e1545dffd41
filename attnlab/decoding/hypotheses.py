"""The result of decoding, and the one function that it needs from a model.

Axis letters: B sentences, K hypotheses of a sentence, N = B*K rows a model sees, L target length, S
source length, V vocabulary.
"""

from collections.abc import Callable
from typing import Any

import jax
from flax import struct

StepFn = Callable[[Any, Any, jax.Array], tuple[jax.Array, Any, jax.Array | None]]
"""`step(state, memory, tokens [N]) -> (logits [N,V], state, weights [N,S] or None)`.

`tokens` are the ids emitted last (BOS at first). `memory` is constant while decoding. Leaves of
`state` of rank >= 1 have leading axis N and travel with their hypothesis; leaves of rank 0 are step
counters that all rows share.
"""


@struct.dataclass
class Hypotheses:
    """The K best hypotheses of every sentence, best first.

    Attributes:
      tokens: [B,K,L] int32; the EOS is kept, PAD follows it. A hypothesis cut at its length limit
        has no EOS.
      scores: [B,K] float32, what they are sorted by; -inf marks a slot that holds no hypothesis
        (its length is 0).
      log_probs: [B,K] float32, natural log P(Y|X) under the model, over its whole vocabulary and EOS
        counted, as a loss and `Run.scores` have it. PAD and BOS are never chosen.
      lengths: [B,K] int32, tokens emitted, EOS counted.
      alignment: [B,K,L,S] float32, row l the weights with which token l was predicted, 0 after the
        end; None if not requested, or if the step function returns no weights.
    """

    tokens: jax.Array
    scores: jax.Array
    log_probs: jax.Array
    lengths: jax.Array
    alignment: jax.Array | None = None
