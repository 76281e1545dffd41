"""Float64 NumPy references of the position schemes: what they do to one query, key, score and
value, or to embeddings; and of trees.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Nothing:
    """No positions; the base of the others.

    Attributes:
      params: the scheme's parameters; fields: its configuration; heads: H; width: D.
      causal: whether no query sees a later key. The score is taken to be scaled by 1 / sqrt(D).
    """

    params: Any
    fields: Any
    heads: int
    width: int
    causal: bool = False

    @property
    def scale(self) -> float:
        """1 / sqrt(D)."""
        return 1.0 / math.sqrt(self.width)

    def query(self, h: int, q: np.ndarray, i: int) -> np.ndarray:
        """What head h makes of a query [D] at position i."""
        return q

    def key(self, h: int, k: np.ndarray, j: int) -> np.ndarray:
        """What it makes of a key [D] at position j."""
        return k

    def bias(self, h: int, q: np.ndarray, k: np.ndarray, i: int, j: int) -> float:
        """What is added to the score of an untouched query and key."""
        return 0.0

    def value(self, h: int, i: int, j: int) -> np.ndarray | float:
        """What is added to the value [D] of key j as query i sees it."""
        return 0.0

    def rows(self, h: int, q: np.ndarray, scores: np.ndarray, allowed: np.ndarray) -> np.ndarray:
        """What becomes of the scores [Tk] of an untouched query, of which some are allowed."""
        return scores


class Shaw(Nothing):
    """q_i . (k_j + a^K[clip(j-i)]) / sqrt(D); v_j + a^V[clip(j-i)]."""

    def row(self, i: int, j: int) -> int:
        """The table's row."""
        clip = self.fields.get("clip", 16)
        return int(max(-clip, min(clip, j - i)) + clip)

    def bias(self, h: int, q: np.ndarray, k: np.ndarray, i: int, j: int) -> float:
        """See `Nothing.bias`."""
        return self.scale * float(q @ self.params["keys"][self.row(i, j)])

    def value(self, h: int, i: int, j: int) -> np.ndarray | float:
        """See `Nothing.value`."""
        return 0.0 if self.fields.get("sides") == "key" else self.params["values"][self.row(i, j)]


class SyntaxRelative(Shaw):
    """Shaw's, and a second pair of tables by the distance in a tree; without a tree every distance
    is 0.
    """

    def bias(self, h: int, q: np.ndarray, k: np.ndarray, i: int, j: int) -> float:
        """See `Nothing.bias`."""
        here = self.params["tree_keys"][self.fields.get("clip", 16)]
        return super().bias(h, q, k, i, j) + self.scale * float(q @ here)

    def value(self, h: int, i: int, j: int) -> np.ndarray | float:
        """See `Nothing.value`."""
        return super().value(h, i, j) + self.params["tree_values"][self.fields.get("clip", 16)]


class TransformerXL(Nothing):
    """[(q_i + u).k_j + (q_i + w).(R_{i-j} W_r)] / sqrt(D), W_r's columns H blocks of D."""

    def query(self, h: int, q: np.ndarray, i: int) -> np.ndarray:
        """See `Nothing.query`."""
        return q + self.params["u"][h]

    def bias(self, h: int, q: np.ndarray, k: np.ndarray, i: int, j: int) -> float:
        """See `Nothing.bias`."""
        d = self.heads * self.width
        angles = [
            (i - j) / self.fields.get("base", 10000.0) ** (2 * m / d) for m in range((d + 1) // 2)
        ]
        wave = np.array(([math.sin(a) for a in angles] + [math.cos(a) for a in angles])[:d])
        projected = (wave @ self.params["w_distance"])[h * self.width : (h + 1) * self.width]
        return self.scale * float((q + self.params["w"][h]) @ projected)


class T5(Nothing):
    """A number for each bucket of j - i, the published formula with a float64 logarithm."""

    def bias(self, h: int, q: np.ndarray, k: np.ndarray, i: int, j: int) -> float:
        """See `Nothing.bias`."""
        sizes = self.fields.get("buckets", 32), self.fields.get("max_distance", 128)
        return self.params["table"][t5_bucket(j - i, self.causal, *sizes), h]


def t5_bucket(rel: int, causal: bool, buckets: int, max_distance: int) -> int:
    """The bucket of a distance key minus query."""
    ret, count, n = 0, buckets, max(-rel, 0)
    if not causal:
        count = buckets // 2
        ret, n = (count if rel > 0 else 0), abs(rel)
    exact = count // 2
    if n < exact:
        return ret + n
    wide = math.log(n / exact) / math.log(max_distance / exact) * (count - exact)
    return ret + min(exact + math.floor(wide + 1e-9), count - 1)


class Alibi(Nothing):
    """-m_h |i - j|."""

    def bias(self, h: int, q: np.ndarray, k: np.ndarray, i: int, j: int) -> float:
        """See `Nothing.bias`."""
        power = 2 ** math.floor(math.log2(self.heads))
        exponent = 8 * (h + 1) / power if h < power else 8 * (2 * (h - power) + 1) / (2 * power)
        return -self.fields.get("strength", 1.0) * 2.0**-exponent * abs(i - j)


class Turning(Nothing):
    """Queries and keys are turned alike."""

    def turned(self, x: np.ndarray, p: int) -> np.ndarray:
        """x [D] at position p."""
        raise NotImplementedError

    def query(self, h: int, q: np.ndarray, i: int) -> np.ndarray:
        """See `Nothing.query`."""
        return self.turned(q, i)

    def key(self, h: int, k: np.ndarray, j: int) -> np.ndarray:
        """See `Nothing.key`."""
        return self.turned(k, j)


def turned_pair(x: np.ndarray, y: np.ndarray, a: int, b: int, angle: float) -> None:
    """Puts channels a and b of x, turned by an angle, into y."""
    y[a] = x[a] * math.cos(angle) - x[b] * math.sin(angle)
    y[b] = x[b] * math.cos(angle) + x[a] * math.sin(angle)


class Rope(Turning):
    """Pairs of the first channels turned by p theta."""

    def turned(self, x: np.ndarray, p: int) -> np.ndarray:
        """See `Turning.turned`."""
        count = round(self.fields.get("share", 1.0) * self.width)
        scaling = dict(self.fields.get("scaling", {"name": "none"}))
        name, y = scaling.pop("name"), np.array(x)
        for m in range(count // 2):
            base = self.fields.get("base", 10000.0)
            theta, factor = rope_frequency(m, count, base, name, scaling)
            neighbours = self.fields.get("layout", "interleaved") == "interleaved"
            a, b = (2 * m, 2 * m + 1) if neighbours else (m, m + count // 2)
            turned_pair(factor * x, y, a, b, p * theta)
        return y


def rope_frequency(
    m: int, width: int, base: float, name: str, fields: dict[str, Any]
) -> tuple[float, float]:
    """theta_m of `width` turned channels and the factor of sines and cosines, for a scaling with
    all its fields given.
    """
    theta = base ** (-2 * m / width)
    if name == "none":
        return theta, 1.0
    s = fields["factor"]
    if name == "linear":
        return theta / s, 1.0
    if name == "ntk":
        return (base * s ** (width / (width - 2))) ** (-2 * m / width), 1.0
    length = fields["length"]
    if name == "yarn":

        def dim(turns: float) -> float:
            return width * math.log(length / (2 * math.pi * turns)) / (2 * math.log(base))

        low = max(math.floor(dim(fields["fast"])), 0)
        high = min(math.ceil(dim(fields["slow"])), width - 1)
        ramp = max(0.0, min(1.0, (m - low) / (high - low + (0.001 if high == low else 0.0))))
        return theta * (1 - ramp) + theta / s * ramp, (0.1 * math.log(s) + 1 if s > 1 else 1.0)
    wave = 2 * math.pi / theta
    if wave < length / fields["high"]:
        return theta, 1.0
    if wave > length / fields["low"]:
        return theta / s, 1.0
    g = (length / wave - fields["low"]) / (fields["high"] - fields["low"])
    return g * theta + (1 - g) * theta / s, 1.0


class Rope2D(Turning):
    """Pairs of the first half of the channels turned by row theta, of the other by column theta."""

    def turned(self, x: np.ndarray, p: int) -> np.ndarray:
        """x [D] at position p, or of token p where the fields say the place of each."""
        places = self.fields.get("places")
        place = row_and_column(p) if places is None else places[p]
        y, half = np.array(x), self.width // 2
        for axis, where in enumerate(place):
            for m in range(half // 2):
                angle = where * self.fields.get("base", 100.0) ** (-2 * m / half)
                a, b = axis * half + 2 * m, axis * half + 2 * m + 1
                turned_pair(x, y, a, b, angle)
        return y


def row_and_column(p: int) -> tuple[int, int]:
    """Of p = 2^15 row + column, the column at least -2^14 and below 2^14."""
    row, column = divmod(int(p) + 2**14, 2**15)
    return row, column - 2**14


class CoPE(Nothing):
    """q_i . a at the sum of the gates from j on, between two whole numbers, / sqrt(D)."""

    def rows(self, h: int, q: np.ndarray, scores: np.ndarray, allowed: np.ndarray) -> np.ndarray:
        """See `Nothing.rows`."""
        last, result = self.fields.get("count", 16) - 1, np.array(scores)
        for j in range(len(scores)):
            gates = [1 / (1 + math.exp(-scores[l])) for l in range(j, len(scores)) if allowed[l]]
            p = min(sum(gates), last)
            low, high = self.params["table"][math.floor(p)], self.params["table"][math.ceil(p)]
            part = p - math.floor(p)
            result[j] += self.scale * float(q @ low * (1 - part) + q @ high * part)
        return result


POSITIONS: dict[str, type[Nothing]] = {
    "none": Nothing,
    "shaw": Shaw,
    "transformer_xl": TransformerXL,
    "t5": T5,
    "alibi": Alibi,
    "rope": Rope,
    "rope_2d": Rope2D,
    "cope": CoPE,
    "syntax_relative": SyntaxRelative,
}


def sinusoid(p: int, width: int, base: float = 10000.0) -> np.ndarray:
    """PE[p], [d]."""
    angles = [p / base ** (2 * (column // 2) / width) for column in range(width)]
    return np.array([math.cos(a) if column % 2 else math.sin(a) for column, a in enumerate(angles)])


def sinusoidal(params: Any, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """x [T,d] + PE[positions]."""
    return np.stack([row + sinusoid(p, len(row)) for row, p in zip(x, positions, strict=True)])


def sinusoidal_2d(params: Any, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """x [T,d] + [PE[row] ; PE[column]], each of d / 2 numbers."""
    both = [[sinusoid(at, x.shape[1] // 2) for at in row_and_column(p)] for p in positions]
    return x + np.array(both).reshape(x.shape)


def learned(params: Any, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """x [T,d] + E[positions]."""
    return np.stack([row + params["table"][p] for row, p in zip(x, positions, strict=True)])


def syntax(params: Any, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """x_t + tanh(W [PE(t); PE(depth_t)])."""
    both = [[sinusoid(at, x.shape[1]) for at in place] for place in enumerate(positions)]
    return x + np.tanh(np.array(both).reshape(len(x), -1) @ params["merge"])


EMBEDDINGS = {one.__name__: one for one in (sinusoidal, sinusoidal_2d, learned, syntax)}


def path(heads: Sequence[int], word: int) -> list[int]:
    """The word, its head, and so on up to a root."""
    way = [word]
    while heads[way[-1]] >= 0 and heads[way[-1]] != way[-1]:
        way.append(heads[way[-1]])
    return way


def structural(heads: Sequence[int], i: int, j: int, mode: str) -> int:
    """The signed distance of Wang et al. 2019."""
    up, down = path(heads, i), path(heads, j)
    deep, others = len(up) - 1, len(down) - 1
    related = i == j or up[1:2] == [j] or down[1:2] == [i]
    if mode == "ancestor":
        related = j in up or i in down
    return deep - others if related else (1 if i > j else -1) * (deep + others)


def edges(heads: Sequence[int], i: int, j: int) -> int:
    """Edges between two words, by breadth-first search; words of different trees meet in a root
    above both.
    """
    near: dict[int, set[int]] = {}
    for word, head in enumerate(heads):
        up = -1 if head < 0 or head == word else head
        near.setdefault(word, set()).add(up)
        near.setdefault(up, set()).add(word)
    reached, steps = {i}, 0
    while j not in reached:
        reached |= {n for word in reached for n in near[word]}
        steps += 1
    return steps
