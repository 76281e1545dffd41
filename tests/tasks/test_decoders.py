"""A text goes on from its prompt as full passes over the whole text say, in whatever company it is
read; decoding that reads the whole text again for every token writes the same, and needs no cache.
Showing a text while it is written changes nothing of what is written; a text may end an answer.
"""

import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from attnlab.attention.mechanisms.multihead import MultiHead
from attnlab.config.registry import build
from attnlab.data.vocabulary import BOS, EOS, PAD
from attnlab.decoding.settings import Decoding
from attnlab.errors import UserError
from attnlab.systems import SYSTEMS
from attnlab.systems.protocol import LanguageModel, Seq2Seq
from attnlab.tasks.decoders import check_room, continuing, ending, translating
from attnlab.tasks.models import system_factory
from tests.refusals import check_refused
from tests.systems.checks import SPECS
from tests.tasks.tiny import log_softmax, noise
from tests.tasks.tiny_language import APART, drawn, load

full = pytest.mark.full  # caches are tested where mechanisms are at home
HEADS = {"name": "multihead", "heads": 2, "positions": "rope"}
NEAR = {"name": "window", "width": 3}
MIXERS: dict[str, dict[str, Any]] = {
    "cache": {"attention": HEADS},
    "state": {"attention": {"name": "recurrent"}},
    "learner": {"attention": {"name": "ttt_linear", "heads": 2, "mini_batch": 3}},
    "window": {"attention": HEADS, "visibility": NEAR},
    "latent window and all": {
        "attention": {"name": "latent", "heads": 2, "latent": 5},
        "visibility": {"name": "by_layer", "one": NEAR, "other": {"name": "full"}},
    },
}
SIZES = {"dropout": 0.0, "width": 12, "layers": 1, "hidden": 16}
DECODER = {"name": "decoder", "attention": HEADS, "positions": {"name": "none"}, **SIZES}
SYSTEM_OF: dict[str, dict[str, Any]] = {
    name: {**DECODER, "layers": 2 if "visibility" in one else 1, **one}
    for name, one in MIXERS.items()
}
SYSTEM_OF["learned"] = {**DECODER, "positions": {"name": "learned", "length": 12}}
SYSTEM_OF["no hidden states"] = {"name": "lstm_lm", "embedding": 5, "width": 6, "dropout": 0.0}
HOW: dict[str, dict[str, Any]] = {
    "greedy": {"method": "greedy"},
    "sample": {"method": "sample", "n_best": 2, "seed": 3, "top_k": 6},
    "beam": {"method": "beam", "beam": 3, "n_best": 2, "no_repeat_ngram": 2},
}
PROMPTS = [[BOS], [EOS, 5, 6], [BOS, 4, 5, 6, 7, 8, 3, 4]]
SOURCE = np.array([[*one, *[PAD] * (8 - len(one))] for one in [*PROMPTS, []]], np.int32)


def away(system: Any, *read: Any) -> Any:
    """Parameters that make some tokens far more probable than others."""
    return noise(jax.eval_shape(system.init, jax.random.key(0), *read)["params"], 0.6)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "cache" else full) for name in MIXERS]
)
def test_ragged_beginnings_pieces_and_beams_over_a_cache(name: str) -> None:
    """A decoder whose state grows, or not: what every method writes has the log-probability that
    full passes over the whole text give, and greedy search takes their most probable token, in
    whatever company it is read, rows of padding too.
    """
    system: Any = build(SYSTEMS, ConfigDict(SYSTEM_OF[name]), "system")(vocabulary=9)
    params = away(system, jnp.ones((1, 2), jnp.int32))
    run = jax.jit(lambda tokens: system.apply({"params": params}, tokens))
    for how in ({"method": "greedy", "prefill": 3}, {"method": "beam"}):
        settings = Decoding(max_ratio=0.0, max_extra=4, length_penalty=0.0, **how)  # type: ignore[arg-type]
        rows = np.array([0, 1, 2, -1]), {"source": SOURCE}
        actual = continuing(system, settings)(params, [rows])
        for prompt, best in zip(PROMPTS, actual, strict=True):
            tokens = best[0].tokens.tolist()
            assert tokens[-1] == EOS or len(tokens) == 4
            whole = np.array([[*prompt, *tokens, *[PAD] * (12 - len(prompt) - len(tokens))]])
            log_p = log_softmax(run(whole)[0, len(prompt) - 1 :][: len(tokens)])
            log_p[:, [PAD, BOS]] = -np.inf  # what is never written
            if how["method"] == "greedy":
                assert tokens == log_p.argmax(axis=1).tolist()
            expected = log_p[np.arange(len(tokens)), tokens].sum()
            np.testing.assert_allclose(best[0].log_prob, expected, atol=1e-4)


class Cacheless(MultiHead):
    """Reads whole texts alone."""

    capabilities = dataclasses.replace(MultiHead.capabilities, cache=False)

    def begin(self, *arguments: Any, **named: Any) -> Any:
        raise AssertionError("a state is asked of what keeps none")

    extend_pairs = begin


def decoded(make: Any, params: Any, how: dict[str, Any], full: bool) -> Any:
    """Hypotheses of three texts."""
    settings = Decoding(max_ratio=0.0, max_extra=4, full_passes=full, **how)
    return make(settings)(params, [(np.arange(3), {"source": SOURCE[:3]})])


def check_same(actual: Any, expected: Any) -> None:
    """The same tokens, with the same probabilities and weights up to rounding."""
    every = (itertools.chain.from_iterable(one) for one in (actual, expected))
    for one, other in zip(*every, strict=True):
        assert one.tokens.tolist() == other.tokens.tolist()
        np.testing.assert_allclose(one.log_prob, other.log_prob, atol=1e-5)
        assert (one.alignment is None) == (other.alignment is None)
        if other.alignment is not None:
            np.testing.assert_allclose(one.alignment, other.alignment, atol=1e-5)


DRAWN = [("cache", "beam"), ("no hidden states", "greedy")]
CASES = [*itertools.product(("cache", "no hidden states"), HOW)]
CASES += [(name, "greedy") for name in SYSTEM_OF if name not in ("cache", "no hidden states")]


def cases(every: list[tuple[str, str]], sampled: list[tuple[str, str]]) -> list[Any]:
    """Those that are not sampled run in the full mode alone."""
    return [pytest.param(*case, marks=() if case in sampled else full) for case in every]


@pytest.mark.parametrize(("name", "how"), cases(CASES, DRAWN))
def test_a_text_goes_on_as_over_a_cache(name: str, how: str) -> None:
    """Beginnings of several lengths, in one program; every method for a decoder and for a system
    without hidden states.
    """
    system: Any = build(SYSTEMS, ConfigDict(SYSTEM_OF[name]), "system")(vocabulary=9)
    params, make = away(system, jnp.ones((1, 2), jnp.int32)), functools.partial(continuing, system)
    stepped, again = (decoded(make, params, HOW[how], full) for full in (False, True))
    check_same(again, stepped)


@pytest.mark.parametrize(
    ("name", "how"),
    cases([*itertools.product(("transformer", "rnnsearch"), HOW)], [("transformer", "greedy")]),
)
def test_a_target_is_written_as_in_steps(name: str, how: str) -> None:
    node = {**SPECS[name], "dropout": 0.0, **({"layers": 1} if name == "transformer" else {})}
    sizes = {"source_vocabulary": 9, "target_vocabulary": 9}
    system: Any = build(SYSTEMS, ConfigDict(node), "system")(**sizes)
    params = away(system, *[jnp.ones((1, 2), jnp.int32)] * 2)
    make = functools.partial(translating, system, alignment=True)
    settings = {**HOW[how], **({"coverage": 0.2} if how == "beam" else {})}
    stepped, again = (decoded(make, params, settings, full) for full in (False, True))
    check_same(again, stepped)
    assert again[0][0].alignment.shape == (len(again[0][0].tokens), 1)


def test_without_a_cache_it_writes_only_if_told_to() -> None:
    """What the same attention with a cache writes, from the same parameters."""
    own = {**HEADS, "name": f"{__name__}:Cacheless"}
    config = ConfigDict({"system": {**DECODER, "attention": own}, "decoding": Decoding().to_dict()})
    words = r"Cacheless .*or set decoding\.full_passes=true"
    check_refused(words, system_factory, config, LanguageModel)
    config.decoding = {"full_passes": True}
    system: Any = system_factory(config, LanguageModel)(vocabulary=9)
    caching: Any = build(SYSTEMS, ConfigDict(DECODER), "system")(vocabulary=9)
    params = away(system, jnp.ones((1, 2), jnp.int32))
    actual = decoded(functools.partial(continuing, system), params, HOW["greedy"], True)
    make = functools.partial(continuing, caching)
    check_same(actual, decoded(make, params, HOW["greedy"], False))


@pytest.mark.parametrize(
    ("base", "system", "words"),
    [
        (LanguageModel, {**DECODER, "attention": {"name": "linformer"}}, "the direction 'causal'"),
        (
            Seq2Seq,
            {**SPECS["transformer"], "leaking": True},
            "in a full pass system.decoder_attention=multihead sees later tokens",
        ),
        (
            LanguageModel,
            {"name": "lstmn_lm", "attention": {"name": f"{__name__}:Cacheless"}},
            "cached decoding; choose a mechanism with cache=True$",
        ),
    ],
)
def test_what_no_full_pass_can_write_is_refused(base: Any, system: Any, words: str) -> None:
    """What sees later tokens; what grows a memory in training too."""
    config = ConfigDict({"system": system, "decoding": {"full_passes": True}})
    check_refused(words, system_factory, config, base)


def test_positions_must_reach_as_far_as_it_may_write() -> None:
    node = {**SPECS["transformer"], "positions": {"name": "learned", "length": 6}}
    sizes = {"source_vocabulary": 9, "target_vocabulary": 9}
    system: Any = build(SYSTEMS, ConfigDict(node), "system")(**sizes)
    how = {"full_passes": True, "max_ratio": 0.0, "max_extra": 7}
    config = ConfigDict({"decoding": how, "batch": {"max_length": 5}})
    check_refused("rows of 7 tokens, .* end at 6; .*decoding.max_extra", check_room, system, config)


LINES = ["ab", "c", "defgab"]
GREEDY = ["decoding.method=greedy", "decoding.max_ratio=0.0", "decoding.max_extra=12"]
SAMPLE = ["decoding.method=sample", *GREEDY[1:], "decoding.seed=3"]


def shown(task: Any, params: Any, line: str, index: int) -> str:
    *_, last = task.partial_answers(params, line, index)
    return str(last)


@pytest.mark.parametrize("how", [GREEDY, pytest.param(SAMPLE, marks=full)])
def test_what_is_streamed_is_what_is_answered(how: list[str]) -> None:
    """Every line, with the draws of its own place; and texts only grow."""
    task = load(*APART, *how)
    params = drawn(task)
    params["out"]["bias"][EOS] = -50.0  # texts as long as they may be
    answers = [best[0].text for best in task.respond(params, LINES)]
    assert [shown(task, params, line, n) for n, line in enumerate(LINES)] == answers
    every = list(task.partial_answers(params, LINES[0], 0))
    assert len(every) > 3
    assert all(later.startswith(one) for one, later in itertools.pairwise(every))


def test_a_text_that_ends_answers() -> None:
    """The answer is what it was, up to the first of the texts; one in the beginning counts not."""
    task = load(*APART, *GREEDY)
    params = drawn(task)
    whole = [best[0].text for best in task.respond(params, LINES)]
    stop = whole[0][len(LINES[0]) + 2 :][:2]
    held = load(*APART, *GREEDY, f"decoding.stop=('{stop}','zz')")
    for line, before, (best,) in zip(LINES, whole, held.respond(params, LINES), strict=True):
        place = before.find(stop, len(line))
        assert best.text == (before if place < 0 else before[:place])
    assert any(x[0].text != one for x, one in zip(held.respond(params, LINES), whole, strict=True))


@pytest.mark.parametrize("method", ["greedy", pytest.param("sample", marks=full)])
def test_it_stops_there(method: str) -> None:
    """Not at the limit, and each text at a token of its own."""
    task = load(*APART)
    params = drawn(task)
    settings = Decoding(method=method, max_ratio=0.0, max_extra=200, min_length=200, stop=("x",))
    looks: list[int] = []

    def ended(ids: np.ndarray) -> bool:
        looks.append(len(ids))
        return len(looks) == 1 or len(ids) >= 20  # the first text earlier than the second

    source = {"source": np.array([[BOS, 4], [BOS, PAD]], np.int32)}
    actual = continuing(task.system, settings, ended=ended)(params, [(np.array([0, 1]), source)])
    assert [len(best[0].tokens) for best in actual] == [1, 20]
    assert looks == [1, *range(1, 21)]
    assert ending(settings, lambda ids: "ax")(np.zeros(1)) and ending(Decoding(), str) is None


def test_what_is_refused() -> None:
    task = load(*APART, "decoding.method=beam")
    with pytest.raises(UserError, match="decoding.method to 'greedy' or 'sample'"):
        next(iter(task.partial_answers(drawn(task), "ab", 0)))
