"""Continuing a text: the prompt is read once, in whatever company, and its last token is fed
first.
"""

from __future__ import annotations

import numpy as np

from attnlab.data.vocabulary import BOS, EOS, PAD
from attnlab.decoding.settings import Settings
from attnlab.tasks.decoders import continuing
from tests.tasks.tiny_language import APART, drawn, load, passed


def test_prompts_of_any_length_and_rows_of_padding() -> None:
    """Greedy, token by token: what the loop in NumPy finds most probable after all that stands
    before.
    """
    task = load(*APART)
    params = drawn(task)
    prompts = [[BOS], [EOS, 5, 6], [BOS, 4, 5, 6, 7]]
    source = np.array(
        [[*prompt, *[PAD] * (5 - len(prompt))] for prompt in [*prompts, []]], np.int32
    )
    decoder = continuing(task.system, Settings(method="greedy", max_ratio=0.0, max_extra=4))
    found = decoder(params, [(np.array([0, 1, 2, -1]), {"source": source})])
    assert len(found) == 3
    for prompt, together in zip(prompts, found, strict=True):
        (alone,) = decoder(params, [(np.array([0]), {"source": np.array([prompt], np.int32)})])
        assert alone[0].tokens.tolist() == together[0].tokens.tolist()
        np.testing.assert_allclose(alone[0].log_prob, together[0].log_prob, atol=1e-5)
    for prompt, (best,) in zip(prompts, found, strict=True):
        read = list(prompt)
        for token in best.tokens:
            log_p = passed(params, read)[0][-1]
            log_p[[PAD, BOS]] = -np.inf
            assert token == log_p.argmax()
            read.append(int(token))
        assert best.tokens[-1] == EOS or len(best.tokens) == 4
