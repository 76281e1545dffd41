"""Feature maps against their formulas, one vector at a time, and what their products are."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.features import FEATURES
from attnlab.attention.mechanisms.linear import Linear
from attnlab.errors import UserError
from attnlab.layers.cards import card_of
from tests.attention.oracles.linear import feature

B, H, T, D = 2, 2, 3, 4
FIELDS: dict[str, dict[str, Any]] = {"dpfp": {"neighbours": 2}, "cosine": {"length": 9}}
EVERY = pytest.mark.parametrize("name", FEATURES.names())
NAMES = "identity elu relu softmax hedgehog squared taylor dpfp cosine"
X, Y = np.random.default_rng(0).normal(size=(2, B, H, T, D)).astype(np.float32)
AT = np.array([2, 5, 7], np.int32)


def of(name: str) -> tuple[Any, Any, Any]:
    """A feature map, its parameters, and features of X and Y."""
    module = FEATURES.resolve(name)(**FIELDS.get(name, {}))
    shapes = jax.eval_shape(module.init, jax.random.key(0), X, AT).get("params", {})
    rng = np.random.default_rng(1)
    params = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), shapes)
    both = jax.jit(lambda *x: [module.apply({"params": params}, one, jnp.asarray(AT)) for one in x])
    return module, params, both(X, Y)


@EVERY
def test_products_of_features_are_those_of_the_formula(name: str) -> None:
    """Features may come in another order, and equal ones as one."""
    module, params, (actual, other) = of(name)
    assert actual.shape == (B, H, T, module.size(D))
    products = np.einsum("bhim,bhjm->bhij", actual, other)
    fields = FIELDS.get(name, {})
    for b, h, i, j in np.ndindex(B, H, T, T):
        a, c = (
            feature(name, fields, params, x[b, h, t].astype(float), h, AT[t])
            for x, t in ((X, i), (Y, j))
        )
        assert products[b, h, i, j] == pytest.approx(a @ c, abs=2e-6)
    assert module.positive == (name != "identity")
    near = np.abs(AT[:, None] - AT[None]) <= 9  # cosine: where weights are not negative
    assert not module.positive or (products[..., near] >= -1e-6).all()
    assert card_of(FEATURES.resolve(name)) and name in NAMES


def test_hedgehog_starts_as_softmaxes_of_x_and_of_its_negative() -> None:
    module = FEATURES.resolve("hedgehog")()
    actual, _ = module.init_with_output(jax.random.key(0), X, AT)
    softmax = FEATURES.resolve("softmax")()
    expected = [softmax.apply({}, x, AT) for x in (X, -X)]
    np.testing.assert_allclose(actual, np.concatenate(expected, axis=-1), atol=1e-6)


def test_what_does_not_fit_is_refused() -> None:
    x = jnp.zeros((1, 2, 4))
    for fields, message in (
        ({"features": "identity"}, "choose normalise='norm'"),
        ({"heads": 3}, "width=4 is not divisible by heads=3"),
        ({"features": FEATURES.resolve("dpfp")}, None),
    ):
        module = Linear(4, **fields)  # type: ignore[arg-type]
        if message is None:
            module.init(jax.random.key(0), x, x)
            continue
        with pytest.raises(UserError, match=message):
            module.init(jax.random.key(0), x, x)
    for name, fields in (("dpfp", {"neighbours": 0}), ("cosine", {"length": 0})):
        with pytest.raises(UserError, match="must be at least 1"):
            FEATURES.resolve(name)(**fields).apply({}, X, AT)
