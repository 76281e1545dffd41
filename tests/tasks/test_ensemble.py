"""Several trained translators decode as one whose probabilities are theirs together, and they must
mean the same ids.
"""

import functools
from typing import Any

import jax
import numpy as np
import pytest

from attnlab import config as configs
from attnlab.data.vocabulary import BOS, EOS, PAD, Vocabulary
from attnlab.tasks.pairs import Translation, together
from tests.refusals import check_refused
from tests.tasks.test_pairs import answering, g2p
from tests.tasks.tiny import load, noisy


@functools.cache
def tasks() -> tuple[Translation, Any]:
    one, other = load("rnnsearch"), load("rnnsearch", "system.readout=previous")
    named = [("one", one, noisy(one)), ("other", other, noisy(other, 0.4))]
    return together(named)


@functools.cache
def forced() -> Any:
    return jax.jit(lambda params, *ids: tasks()[0].system.apply({"params": params}, *ids))


@pytest.mark.parametrize(
    "method",
    ["greedy", *(pytest.param(name, marks=pytest.mark.full) for name in ("beam", "sample"))],
)
def test_every_way_of_decoding_takes_it(method: str) -> None:
    """A hypothesis has the log-probability that teacher forcing of the members gives it."""
    task, params = tasks()
    task.config = configs.prepare(
        configs.from_dict(configs.to_dict(task.config)), [f"decoding.method={method}"]
    )
    task._decoder.cache_clear()
    text = task.data.rows["test"][0][0]
    best = task.translate(params, [text], alignment=True)[0][0]
    ids = np.asarray([*task.vocabularies[0].encode_all([text])[0], EOS])[None]
    # padding reaches no step before it
    target_in = np.asarray([BOS, *best.tokens[:-1], *[PAD] * (9 - len(best.tokens))])[None]
    every = np.array(forced()(params, ids, target_in), np.float64)[0, : len(best.tokens)]
    log_probs = every[np.arange(len(best.tokens)), best.tokens]
    assert best.log_prob == pytest.approx(log_probs.sum(), abs=1e-3)
    assert best.alignment is not None and best.alignment.shape == (len(best.tokens), ids.shape[1])


def test_it_is_a_task_as_its_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of runs that pronounce words it has their error rates, not BLEU; and members that did another
    task are none.
    """
    one = g2p()
    params = noisy(one)
    joined, both = together([("one", one, params), ("other", one, params)])
    assert type(joined) is type(one)
    assert joined.measures == one.measures
    assert one.system is not joined.system
    for name, score in one.evaluate(params, "test").items():  # twice the same: what one says
        assert joined.evaluate(both, "test")[name] == pytest.approx(score, rel=1e-5)
    answering({"ab": "A B", "cab": "K A B", "baba": "B A B A"}, monkeypatch)
    assert joined.score(both, "test")[0] == {"phoneme_error_rate": 0.0, "word_error_rate": 0.0}
    words = "there is a run of task=translation, here of task=pronunciation; name runs of one task"
    check_refused(words, together, [("here", one, None), ("there", load("rnnsearch"), None)])


@pytest.mark.parametrize("change", [{"texts": ["abcdz"]}, {"kind": "word"}, {"lowercase": True}])
def test_members_must_have_one_vocabulary(change: dict[str, Any]) -> None:
    """Other pieces, or the same cut out of another text."""
    one, other = load("rnnsearch"), load("rnnsearch")
    together([("here", one, None), ("there", other, None)])
    settings: dict[str, Any] = {"texts": ["a b c d e"], "kind": "char", "min_frequency": 1}
    for member, own in ((one, settings), (other, settings | change)):
        member.vocabularies = (Vocabulary.train(**own),) * 2
    words = "there has another vocabulary than here; train the members"
    check_refused(words, together, [("here", one, None), ("there", other, None)])
