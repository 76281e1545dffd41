"""The settings of decoding: how target sequences are searched for or drawn, and what follows from
that. Importing this module loads no jax.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal

from attnlab.config import read_settings
from attnlab.config.schema import SEED, SHARE, Node, between, setting, settings_of, whole
from attnlab.errors import UserError

TOKENS = 2**28  # the most token places of a batch in decoding: 1 GiB of ids


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoding(Node):
    """How target sequences are searched for or drawn."""

    method: Literal["beam", "greedy", "sample"] = setting("how texts are found", "beam")
    batch: int = setting("texts that are decoded at once", 64, within=whole(1, 2**16))
    n_best: int = setting(
        "hypotheses of each text (beam), or samples (sample)", 1, within=whole(1, 2**12)
    )
    beam: int = setting("hypotheses that beam search follows", 5, within=whole(1, 2**12))
    length_penalty: float = setting("length: alpha of GNMT's score", 0.6, within=between(0, 100))
    length_offset: int = setting(
        "k of the length penalty ((k + length) / (k + 1))^alpha; 0: as in transformers",
        5,
        within=whole(0, 2**10),
    )
    coverage: float = setting("for covering the source, GNMT's beta", 0.0, within=between(0, 10**6))
    temperature: float = setting(
        "scores are divided by it before samples are drawn", 1.0, within=between(0, 10**6)
    )
    top_k: int = setting("samples are of the most likely so many; 0: of all", 0, within=whole(0))
    top_p: float = setting(
        "samples are of the most likely that have this probability together", 1.0, within=SHARE
    )
    min_p: float = setting(
        "samples have at least this share of the probability of the most likely token",
        0.0,
        within=between(0, 1),
    )
    seed: int = setting("seed of what is drawn (sample)", 0, within=SEED)
    min_length: int = setting("tokens before the end is allowed", 0, within=whole(0, 2**20))
    repetition_penalty: float = setting(
        "scores of tokens that have occurred are lowered by it (greedy, sample); 1: none",
        1.0,
        within=between(1, 10**6),
    )
    no_repeat_ngram: int = setting(
        "so many tokens never occur twice in the same order; 0: they may", 0, within=whole(0, 2**10)
    )
    stop: tuple[str, ...] = setting("an answer ends before the first of these texts", ())
    compute: Literal["float32", "bfloat16"] = setting(
        "what a trained model is kept and computed in by generate, score, evaluate and inspect;"
        " bfloat16 takes half the memory",
        "float32",
    )
    prefill: int = setting(
        "tokens of a beginning that are read at once (language models)", 512, within=whole(1, 2**20)
    )
    full_passes: bool = setting(
        "whether the whole text so far is read again for every token, slower by far; a decoder"
        " whose attention keeps no cache can write in no other way",
        False,
    )
    max_ratio: float = setting(
        "at most max_ratio x source tokens + max_extra are written", 2.0, within=between(0, 10**4)
    )
    max_extra: int = setting("tokens beside max_ratio x source", 10, within=whole(0, 2**20))

    def check(self) -> None:
        """Raises `UserError` for an empty stop text, for more hypotheses than the method finds, and
        for a repetition penalty in beam search.
        """
        if "" in self.stop:
            raise UserError("config.decoding.stop: an empty text ends every answer; leave it out")
        if self.method == "beam" and self.n_best > self.beam:
            raise UserError(
                f"config.decoding.n_best={self.n_best} is more than decoding.beam={self.beam};"
                " raise the beam or lower n_best"
            )
        if self.method == "beam" and self.repetition_penalty != 1.0:
            raise UserError(
                f"config.decoding.repetition_penalty={self.repetition_penalty} goes with method"
                " 'greedy' or 'sample'; beam search compares the model's own probabilities, choose"
                " decoding.no_repeat_ngram there"
            )
        if self.method == "greedy" and self.n_best > 1:
            raise UserError(
                f"config.decoding.n_best={self.n_best}: greedy search finds one hypothesis; set"
                " n_best=1 or method 'beam' or 'sample'"
            )

    def limit(self, source_length: int) -> int:
        """The most target tokens for a source of this many tokens, at least 1."""
        return max(1, math.ceil(self.max_ratio * source_length) + self.max_extra)

    def stopped(self, text: str) -> bool:
        """Whether a text contains a text that ends an answer."""
        return any(ending in text for ending in self.stop)

    def cut(self, text: str, start: int = 0) -> str:
        """A text up to the first text that ends an answer, searched from `start` on."""
        places = [text.find(ending, start) for ending in self.stop]
        return text[: min((place for place in places if place >= 0), default=None)]

    @property
    def rows(self) -> int:
        """How many sequences are decoded together."""
        return self.batch * {"beam": self.beam, "sample": self.n_best}.get(self.method, 1)

    def check_room(self, source_length: int) -> None:
        """Raises `UserError` if all sequences decoded together, from sources of this length, can
        have more than `TOKENS` tokens in sum.
        """
        places = self.rows * self.limit(source_length)
        if places > TOKENS:
            raise UserError(
                f"decoding: batch={self.batch} texts, {self.rows // self.batch} for each, of up to"
                f" {self.limit(source_length):,} tokens (max_ratio={self.max_ratio},"
                f" max_extra={self.max_extra}) are {places:,} places for tokens; expected at most"
                f" {TOKENS:,}"
            )


METHODS = settings_of(Decoding)["method"].choices


def validate(settings: Decoding | Mapping[str, Any], *, weights: bool = True) -> Decoding:
    """Returns the settings `decoding` as a node, read from a mapping with defaults; raises
    `UserError` for wrong values, or for a coverage penalty in beam search if the system gives no
    attention weights (`weights` False).

    Args:
      settings: the node `decoding`.
      weights: whether the step of the system returns attention weights, which the coverage penalty
        needs.

    Raises:
      UserError: unknown field or method (with near names), a value of the wrong type or outside its
        range.
    """
    if not isinstance(settings, Decoding):
        settings = read_settings(Decoding, settings, "decoding")
    if settings.method == "beam" and settings.coverage and not weights:
        raise UserError(
            f"decoding.coverage={settings.coverage} needs attention weights, which this system does"
            " not give; set decoding.coverage=0"
        )
    return settings
