"""What decoders have read when they look, and what reaches the conditional GRU of the source."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.protocol import MAPS
from tests.systems.checks import COMPARED, SPECS, VOCABULARY, batch, make, parameters, prepared
from tests.systems.tiny import seldom


@pytest.mark.parametrize(
    ("name", "knows", "further"),
    seldom(
        (
            ("cgru", True, 1),
            ("rnnsearch-released", True, 6),
            ("rnnsearch", False, 6),
            ("gnmt", False, 3),
            ("gnmt-current", True, 3),
        ),
        *(("cgru", True, 1), ("rnnsearch", False, 6)),
    ),
)
def test_who_has_read_the_last_word_when_it_looks(name: str, knows: bool, further: int) -> None:
    """The weights of step i change with the word read at step i; where RNNsearch and GNMT are as
    printed they do not.
    """
    call, system = prepared({**COMPARED, **SPECS}[name])
    source, target = batch()
    other = target.copy()
    other[:, 2] = 4 + (other[:, 2] - 4 + further) % (VOCABULARY - 4)
    before, after = (
        np.asarray(system.alignment(system.maps(call(source, ids, mutable=[MAPS])[1][MAPS])))
        for ids in (target, other)
    )
    change = np.abs(after - before).max(axis=2)[:2]  # the third source has one word, which gets all
    assert (change[:, :2] == 0.0).all() and (change[:, 3] > 1e-6).all()
    assert (change[:, 2] > 1e-6).all() if knows else (change[:, 2] == 0.0).all()


@pytest.mark.full
def test_a_second_unit_that_keeps_its_state_makes_it_blind_to_the_look() -> None:
    """z = 0 in GRU_2 and no context in the output: all that comes of the source is s_0, the mean of
    the annotations.
    """
    system, (source, target) = make(SPECS["cgru"]), batch()
    params = parameters(system)
    shut = np.zeros(21, np.float32)
    shut[7:14] = -100.0
    silent: Any = {
        "of_context": {"kernel": np.zeros_like(params["of_context"]["kernel"]), "bias": shut},
        "after": {"past": np.zeros_like(params["after"]["past"])},
        "out_context": {"kernel": np.zeros_like(params["out_context"]["kernel"])},
    }

    @functools.partial(jax.jit, static_argnums=1)
    def logits(params: Any, turned: bool) -> Any:
        memory = system.apply({"params": params}, source, method="encode")
        other = memory.replace(
            attended=jax.tree.map(
                lambda x: x * 2 if jnp.issubdtype(x.dtype, jnp.floating) else x, memory.attended
            )
        )
        seen = other if turned else memory
        return system.apply({"params": params}, seen, target, method="decode")

    blind = {**params, **silent}
    np.testing.assert_allclose(logits(blind, True), logits(blind, False), atol=1e-6)
    assert np.abs(np.asarray(logits(params, True) - logits(params, False))).max() > 1e-2
    first = jax.jit(lambda source: system.apply({"params": params}, source, method="encode").first)
    other = np.asarray(first(np.where(source == source[0, 3], 5, source)))
    assert np.abs(np.asarray(first(source)) - other)[0].max() > 1e-3
