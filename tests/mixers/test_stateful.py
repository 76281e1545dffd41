"""Mixers refuse what does not fit, and those with a matrix as state start as is said. What all promise
is tested in `attention/test_mixer.py` and `test_whole.py`.
"""

from typing import Any

import jax
import numpy as np
import pytest

from attnlab.errors import UserError
from attnlab.mixers import MIXERS
from attnlab.mixers.retention import decays
from tests.attention.cases import WIDTH

X = np.random.default_rng(0).normal(size=(2, 9, WIDTH)).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("retention", {"heads": 5}, "heads could be"),
        ("gated_linear", {"heads": 4}, "key_share"),
        ("gated_linear", {"heads": 2, "rank": 0}, "rank=0"),
        ("hgrn", {"heads": 5}, "width=12 is not divisible by heads=5"),
        ("hgrn", {"heads": 2, "least": 1.0}, "less than 1"),
        ("mamba", {"head_width": 7}, "24 must be divisible by head_width=7"),
        ("delta_net", {"heads": 5}, "heads could be"),
        ("delta_net", {"largest": 2.5}, "largest=2.5 must be above 0 and at most 2"),
        ("gated_delta_net", {"heads": 4}, "width of the keys=9"),
        ("kda", {"rank": -1}, "rank=-1"),
        ("delta_product", {"count": 0}, "delta_product: count=0"),
        ("gated_delta_product", {"count": 0}, "gated_delta_product: count=0"),
        ("rwkv7", {"rank": 0}, "rank=0"),
        ("rwkv7", {"heads": 5}, "heads could be"),
        ("mlstm", {"heads": 2, "cap": -1.0}, "cap=-1.0"),
        ("mlstm", {"heads": 4}, "key_share"),
        ("ttt_linear", {"heads": 5}, "heads could be"),
        ("ttt_linear", {"heads": 4}, "channels turn in pairs"),
        ("ttt_linear", {"heads": 2, "mini_batch": 0}, "ttt_linear: mini_batch=0"),
        ("ttt_linear", {"heads": 2, "chunk": 5}, "chunk=5 must divide mini_batch=16.* is 4"),
        ("ttt_mlp", {"heads": 2, "largest": 0.0}, "ttt_mlp: .*largest=0.0 above 0"),
        ("ttt_mlp", {"heads": 2, "expansion": 0}, "expansion=0, must be at least 1"),
        ("longformer", {"window": 3}, "window=3.*even one is 2"),
        ("longformer", {"tokens": (1, 1)}, "different positions"),
        ("longformer", {"heads": 5}, "divisible by heads=5"),
        ("nystrom", {"taps": 4}, "taps=4 must be odd.*take 5"),
        ("nystrom", {"landmarks": 0}, "landmarks=0"),
        ("nystrom", {"heads": 5}, "divisible by heads=5"),
        ("reformer", {"buckets": 5}, "buckets=5 must be even.*take 6"),
        ("reformer", {"rounds": 0}, "rounds=0"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, fields: dict[str, Any], message: str) -> None:
    module = MIXERS.resolve(name)(width=WIDTH, **fields)
    with pytest.raises(UserError, match=message):
        jax.eval_shape(lambda: module.init(jax.random.key(0), X, method="mix"))


def test_mamba_starts_in_its_ranges() -> None:
    module = MIXERS.resolve("mamba")(width=64, head_width=2, state=2)
    begun = jax.jit(lambda x: module.init(jax.random.key(0), x, method="mix"))
    params = jax.device_get(begun(np.zeros((1, 1, 64), np.float32))["params"])
    rate, dt = np.exp(params["rate"]), np.log1p(np.exp(params["step"]))
    assert rate.min() >= 1 and rate.max() <= 16 and rate.std() > 2
    assert dt.min() >= 1e-3 * 0.99 and dt.max() <= 0.1 * 1.01 and np.log(dt).std() > 0.8
    assert (np.asarray(params["skip"]) == 1).all()


def test_retention_forgets_at_the_rates_of_the_paper() -> None:
    expected = [0.96875, 0.984375, 0.9921875, 0.99609375]
    np.testing.assert_array_equal(decays(4), expected)
