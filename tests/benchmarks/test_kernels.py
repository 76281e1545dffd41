"""The plain kernel costs what one would write by hand, and programs take turns."""

import collections
import re

import jax
import numpy as np

from benchmarks import kernels

SHAPE = (2, 8, 2, 4)


def test_the_plain_kernel_compiles_to_what_one_would_write_by_hand() -> None:
    """The same function, the same operations, FLOPs and bytes: the framework costs nothing at
    run time.
    """
    function, params, x = kernels.layer(SHAPE, "plain")
    by_hand = kernels.by_hand(SHAPE)
    np.testing.assert_array_equal(jax.jit(function)(params, x), jax.jit(by_hand)(params, x))
    ours, hand = kernels.compiled(function, params, x), kernels.compiled(by_hand, params, x)
    one, other = (
        collections.Counter(re.findall(r"= (\S+ [a-z-]+)\(", program.as_text()))
        for program in (ours, hand)
    )  # "f32[2,8]{1,0} dot"
    assert one == other and len(one) > 5
    for figure in ("flops", "bytes accessed"):
        assert ours.cost_analysis()[figure] == hand.cost_analysis()[figure] > 0


def test_programs_take_turns() -> None:
    ran: list[str] = []
    programs = {name: (lambda name=name: ran.append(name), ()) for name in ("a", "b")}
    found = kernels.turns(programs, least=3, enough=0.0)
    assert ran == list("ababbaab") and set(found) == {"a", "b"}  # the first to warm up
