"""Any id may be padding to a reader of sentences. What is read of texts side by side, and what is made of
it, is seen by the oracles of classifiers.
"""

import jax
import numpy as np

from attnlab.layers.readers import SentenceReader

IDS = np.array([[5, 6, 7, 8, 8], [0, 8, 8, 8, 8], [8, 8, 8, 8, 8]], np.int32)


def test_another_id_may_be_padding() -> None:
    module = SentenceReader(9, 4, 3, padding=8)
    (read,), _ = jax.jit(module.init_with_output)(jax.random.key(0), [IDS])
    assert read.valid.tolist() == (IDS != 8).tolist()
