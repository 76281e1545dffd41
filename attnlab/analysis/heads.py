"""What attention heads do, in numbers: one record with named columns for each head of each map.

Every statistic is taken of the shares p_ij = |w_ij| / sum_k |w_ik| of a query's weights, which are
the weights themselves where these are a distribution. So maps that are none (rows with another
sum, weights below 0, effective maps, sensitivities) are read by the sizes of their weights, and
"largest weight" means the largest size, the first of equals. For query i and key j:

    entropy             -sum_j p_ij ln p_ij, in nats, over queries with two allowed keys or more (so without row 0 of a causal map)
    normalised_entropy  the same divided by ln(number of allowed keys)
    confidence          max_j p_ij
    distance            sum_j p_ij |i - j|, in tokens

and for each of these patterns three columns, means over the queries that have such a key:
`<pattern>_mass`, the share of the weights on these keys; `<pattern>_argmax`, the share of queries
whose largest weight is on one; `<pattern>_chance`, what uniform attention over the allowed keys
gives for both.

    sink       the first key, for later queries
    previous   the token before the query's
    next       the token after the query's
    duplicate  an earlier token equal to the query's
    induction  a token behind an earlier one that equals the query's
    delimiter  a delimiter, for queries that are none
    rare       the least frequent of the tokens that are no delimiters

What only a distribution has, entropy and confidence, is refused, NaN, for a head with any weight
below 0. A query without weights or allowed keys counts in no mean, so padding does not. A mean over
no query is NaN.

The induction score asks whether a head looks for what came after the last time that it saw this
token. A sequence BOS r_1 ... r_n r_1 ... r_n of random tokens has no statistics but its repetition.
From the token r_k in the second copy, at position n + k, an induction head looks to what followed
r_k in the first, at position k + 1.

Axis letters: H heads, Tq queries, Tk keys, T tokens of a text that attends to itself (2n + 1 of one
with two copies), N sequences. Sources:
E. Voita et al., "Analyzing Multi-Head Self-Attention", ACL 2019 (confidence, positional and
rare-word heads); K. Clark et al., "What Does BERT Look At?", BlackboxNLP 2019 (delimiters); C.
Olsson et al., "In-context Learning and Induction Heads", 2022.
"""

import dataclasses
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from attnlab.data.vocabulary import Vocabulary
from attnlab.errors import UserError
from attnlab.records.files import csv_text, write_atomic

Record = dict[str, Any]
"""A row of a table: column to text or number; NaN where nothing can be said."""

DUST = 1e-6  # a weight less than this below 0, relative to the largest of its head, is rounding

_SPECIAL = re.compile(r"<.+>|\[[A-Z]+\]")  # </s>, <|end|>, [SEP]


def is_delimiter(token: str) -> bool:
    """Returns whether a token is punctuation or looks like a special one (`</s>`, `[SEP]`)."""
    text = token.strip("\u2581\u2423\u0120 ")  # signs for blanks in pieces
    marks = all(unicodedata.category(sign)[0] == "P" for sign in text)
    return bool(text) and (marks or _SPECIAL.fullmatch(text) is not None)


@dataclasses.dataclass
class HeadStatistics:
    """The statistics of heads over many texts: `add` each map of each text, then read `records`.

    Attributes:
      delimiters: tokens that count as delimiters; None for those of `is_delimiter`.
      frequencies: how often each token occurs in training, 0 if it is missing; None to leave out
        the pattern "rare".
      offsets: for each map, for each head, how many queries have their largest weight at each
        offset (key minus query; -1 is the previous token): the histogram of positional heads.
    """

    delimiters: Collection[str] | None = None
    frequencies: Mapping[str, int] | None = None
    offsets: dict[str, list[Counter[float]]] = dataclasses.field(default_factory=dict, init=False)
    _sums: dict[tuple[str, str], dict[str, Any]] = dataclasses.field(
        default_factory=dict, init=False
    )

    def add(
        self,
        name: str,
        weights: np.ndarray,
        keys: Sequence[str],
        queries: Sequence[str] | None = None,
        allowed: np.ndarray | None = None,
        kind: str = "exact",
    ) -> None:
        """Adds the attention weights [H,Tq,Tk] of one text, or from the tokens `queries` of a text
        to the tokens `keys` of another, to the sums of the map `name`; `allowed` [Tq,Tk] are
        visible keys (None: guessed); raises `ValueError` if shapes disagree or there is no key.

        Args:
          name: of the map, such as "decoder/0/self"; it has one kind.
          weights: [H,Tq,Tk].
          keys: Tk tokens.
          queries: Tq tokens of another text; None if the text attends to itself. Between two texts
            there are no offsets and distances, nor the patterns previous, next, duplicate and
            induction.
          allowed: [Tq,Tk] bool, the keys that each query may see, without padding on either side;
            None for all, or where every weight on a later key is exactly 0, for all that are not
            later.
          kind: what the map is, "exact", "effective" or "sensitivity"; it becomes a column.

        Raises:
          ValueError: shapes and numbers of tokens do not agree, or there is no key.
        """
        readers, shape = keys if queries is None else queries, np.shape(weights)[1:]
        if shape != (len(readers), len(keys)) or not len(keys):
            raise ValueError(f"{np.shape(weights)}: {len(readers)} queries and {len(keys)} keys")
        if allowed is None:
            causal = queries is None and not np.triu(weights, 1).any()
            allowed = np.tri(*shape) > 0 if causal else np.full(shape, True)
        size = np.abs(used := np.where(allowed, weights, 0.0).astype(np.float64))
        signed = (used < -DUST * size.max((1, 2), keepdims=True)).any((1, 2))[:, None]
        shares = size / np.maximum(size.sum(-1, keepdims=True), np.finfo(np.float64).tiny)
        counted, visible = size.any(-1), np.maximum(allowed.sum(-1), 1)
        several, best, place = counted & (visible > 1), size.argmax(-1), np.arange(shape[0])
        offset = np.arange(shape[1]) - place[:, None] + (0.0 if queries is None else np.nan)
        entropy = np.where(signed, np.nan, special.entr(shares).sum(-1))
        rows = {
            "entropy": (entropy, several),
            "normalised_entropy": (entropy / np.log(np.maximum(visible, 2)), several),
            "confidence": (np.where(signed, np.nan, shares.max(-1)), counted),
            "distance": ((shares * np.abs(offset)).sum(-1), counted),
        }
        for pattern, fits in self._fitting(keys, readers, offset, allowed).items():
            able = counted & fits.any(-1)
            rows[f"{pattern}_mass"] = (shares * fits).sum(-1), able
            rows[f"{pattern}_argmax"] = fits[place, best], able
            rows[f"{pattern}_chance"] = fits.sum(-1) / visible, able
        sums = self._sums.setdefault((name, kind), {})
        for column, (values, able) in rows.items():
            pair = np.stack([np.where(able, values, 0.0).sum(-1), able.sum(-1)])
            sums[column] = sums.get(column, 0.0) + pair
        counters = self.offsets.setdefault(name, [Counter() for _ in size])
        for counter, offsets, able in zip(counters, offset[place, best], several, strict=True):
            counter.update(offsets[able & (queries is None)].astype(int).tolist())

    def _fitting(
        self, keys: Sequence[str], queries: Sequence[str], offset: np.ndarray, allowed: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Returns by pattern (sink, previous, next, duplicate, induction, delimiter, rare) a mask
        [Tq,Tk] of the allowed keys that fit it for each query; `offset` [Tq,Tk] is key minus query
        position, NaN between two texts.
        """
        equal = np.array(queries, object)[:, None] == np.array(keys, object)
        followed = np.pad(equal, ((0, 0), (1, 0)))[:, :-1]  # the key before this equals the query
        test = is_delimiter if self.delimiters is None else self.delimiters.__contains__
        marks, readers = (np.array([*map(test, side)], bool) for side in (keys, queries))
        counts = [(self.frequencies or {}).get(token, 0) for token in keys]
        rarity = np.where(allowed & ~marks & (self.frequencies is not None), counts, np.inf)
        fits = {
            "sink": (np.arange(len(keys)) == allowed.any(0).argmax()) & ~(offset >= 0),
            "previous": offset == -1,
            "next": offset == 1,
            "duplicate": equal & (offset < 0),
            "induction": followed & (offset <= 0),
            "delimiter": marks & ~readers[:, None],
            "rare": np.isfinite(rarity) & (rarity == rarity.min(-1, keepdims=True)),
        }
        return {pattern: of_pattern & allowed for pattern, of_pattern in fits.items()}

    def records(self) -> list[Record]:
        """Returns a list with a dict for each head: its map, kind and number, the number of queries
        with weights, the mean of each statistic over the queries that it applies to, and the most
        frequent offset of the largest absolute weight with its share.
        """
        table: list[Record] = []
        for (name, kind), sums in self._sums.items():
            for head, offsets in enumerate(self.offsets[name]):
                table.append({"map": name, "kind": kind, "head": head})
                table[-1]["queries"] = int(sums["confidence"][1, head])
                for column, (total, count) in sums.items():
                    table[-1][column] = float(total[head] / (count[head] or math.nan))
                best = max(offsets, key=offsets.__getitem__, default=math.nan)
                share = offsets[best] / (offsets.total() or math.nan)
                table[-1] |= {"best_offset": best, "best_offset_share": share}
        return table


def save_records(path: str | Path, records: Sequence[Record]) -> None:
    """Writes records, at least one, as a CSV file whose first line has the names of the columns."""
    rows = [records[0], *(record.values() for record in records)]
    write_atomic(path, csv_text(rows, end="\n"))


def summary(records: Iterable[Record], column: str) -> dict[str, float]:
    """Returns the mean of a column over heads and its largest value, as `<column>_mean` and
    `<column>_max`, without heads that have NaN there; NaN if all have.
    """
    values = [record[column] for record in records if not np.isnan(record[column])] or [np.nan]
    return {f"{column}_mean": float(np.mean(values)), f"{column}_max": float(max(values))}


def mass_within(weights: np.ndarray, region: np.ndarray | tuple[float, ...]) -> np.ndarray:
    """Returns the share [...] of the absolute weights of each map [...,h,w] over an image that lies
    within `region`, a mask [h,w] or a box (left, top, right, bottom) in fractions of the image, NaN
    for a map without weight.

    Args:
      weights: [...,h,w], each map laid out on the grid of the image.
      region: a mask m [h,w] of values from 0 to 1, or a box (left, top, right, bottom) in fractions
        of the image's width and height; a cell that a box covers in part counts in part.

    Returns:
      [...]; NaN for a map without weight.
    """
    size = np.abs(np.asarray(weights, np.float64))
    if not isinstance(region, np.ndarray):
        ends = zip(size.shape[-2:], (region[1::2], region[::2]), strict=True)
        down, across = (np.diff(np.clip(np.arange(n + 1), a * n, b * n)) for n, (a, b) in ends)
        region = np.outer(down, across)
    total = size.sum((-2, -1))
    return (size * region).sum((-2, -1)) / np.where(total > 0, total, np.nan)


def ordinary_ids(vocabulary: Vocabulary) -> np.ndarray:
    """Returns an int32 array of the ids of a vocabulary that have a piece that is not special."""
    special_ids = [ids for ids in dataclasses.astuple(vocabulary.special) if ids is not None]
    content = vocabulary.to_json()
    added = content.get("content", content).get("added_tokens") or ()
    others = {*np.hstack(special_ids), *(token["id"] for token in added if token.get("special"))}
    pieces = vocabulary.tokens(range(vocabulary.size))
    return np.array([n for n, piece in enumerate(pieces) if piece and n not in others], np.int32)


def repeated_sequences(vocabulary: Vocabulary, length: int, count: int, seed: int) -> np.ndarray:
    """Draws `count` sequences of ids BOS r_1 ... r_n r_1 ... r_n, int32 [N,2n+1], each of n =
    `length` different ordinary ids of the vocabulary; raises `UserError` if n is below 2 or there
    are too few ids.

    Args:
      vocabulary: of the model.
      length: n.
      count: N.
      seed: of the draws; equal seeds give equal sequences.

    Raises:
      UserError: the vocabulary has fewer than n ordinary ids, or n < 2.
    """
    ids, rng = ordinary_ids(vocabulary), np.random.default_rng(seed)
    if not 2 <= length <= len(ids):
        raise UserError(f"induction: length={length}; this vocabulary allows 2 to {len(ids)}")
    drawn = np.stack([rng.choice(ids, length, replace=False) for _ in range(count)])
    begin = vocabulary.special.bos
    return np.pad(np.tile(drawn, 2), ((0, 0), (1, 0)), constant_values=begin)


def induction_score(weights: np.ndarray) -> np.ndarray:
    """Returns for maps [...,T,T] over BOS and two copies of n tokens the mean weight [...] that a
    token of the second copy gives to the token after its first occurrence, A[q, q - n + 1]; raises
    `ValueError` for another shape.

    The weights are taken as they are, also those below 0. Above 0.4 a head is clearly an induction
    head; one that looks anywhere has about 1/T.
    """
    weights = np.asarray(weights, np.float64)
    length, odd = divmod(weights.shape[-1], 2)
    if not odd or weights.shape[-2:] != (2 * length + 1,) * 2:
        raise ValueError(f"maps {weights.shape} are not over BOS and two copies")
    query = np.arange(length + 1, 2 * length + 1)
    return weights[..., query, query - length + 1].mean(-1)
