"""What a slot asks for and a mechanism does not declare is refused in one line. Parts in slots:
test_composition.py.
"""

import functools

import pytest

from attnlab.attention.needs import Need
from attnlab.attention.protocol import Capabilities
from attnlab.errors import UserError
from tests.attention.test_protocol import Bare

own = functools.partial(Need, role="self", direction="causal")  # as `Bare` declares it


@pytest.mark.quick
@pytest.mark.parametrize(
    ("need", "words"),
    [
        (Need(role="cross"), "slot=bare: Bare does not support the role 'cross'; it offers 'self'"),
        (Need(role="self"), "does not support the direction 'bidirectional'; it offers 'causal'"),
        (own(), "does not support padding; it needs sequences of one length"),
        (own(padding=False, cache=True), "does not support cached decoding"),
        (own(padding=False), "does not support attention maps"),
        (
            own(padding=False, maps=False, values=True),
            "does not support values apart from keys; choose 'single'",
        ),
        (
            own(padding=False, maps=False, positions=frozenset({"score"})),
            "does not support position hooks 'score'; it offers 'embedding'",
        ),
    ],
)
def test_what_is_not_declared_is_refused_with_what_is(need: Need, words: str) -> None:
    with pytest.raises(UserError, match=words):
        need.check(Bare, "slot=bare")


def test_what_is_declared_is_granted() -> None:
    own(padding=False, maps=False, positions=frozenset({"embedding"})).check(Bare, "slot")
    nothing = Capabilities(roles=frozenset())
    with pytest.raises(UserError, match="it offers none"):
        Need(role="self").check(type("Nothing", (Bare,), {"capabilities": nothing}), "slot")
