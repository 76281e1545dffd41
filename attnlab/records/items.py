"""The examples of a test split one by one: what every score is made of, so that a report can draw
other test sets from the same examples.

`items.npz` stands beside `results.json`. For each measure that can be resampled it has an array
[N,C], a row for every example, and in "rules" the name of the rule that makes the score of a test
set of the sums of its rows:

    rule        columns                                                       score
    ratio       a, b                                                          sum a / sum b
    perplexity  nats, tokens                                                  exp(sum a / sum b)
    bits        nats, characters                                              sum a / sum b / ln 2
    macro_f1    hits of each class twice; its labels and answers together     mean over classes that are there of sum a_c / sum b_c
    bleu        length, length of the reference, n-grams that match, n-grams  corpus BLEU-4, smoothed exponentially
    chrf        for n = 1 ... 6: n-grams, those of the reference, matches     corpus chrF2

With every row once, the score is the recorded one: to the last bit where rows are counts, else
(losses) but for rounding in float32. To read it by hand: `items = numpy.load("items.npz")`, then
`items["accuracy"].sum(axis=0)`. This module needs no jax, and numpy only when arrays are at hand.
Axis letters: N examples, C columns, R resamples.

A .npz file may be damaged, or written by somebody else: `arrays_of` reads plain arrays alone.

Sources: Post 2018 (BLEU as sacrebleu computes
it), Popovic 2015 (chrF).
"""

import dataclasses
import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.errors import UserError, nearest
from attnlab.records.files import write_atomic
from attnlab.records.json_kinds import Damaged

if TYPE_CHECKING:
    import numpy as np


def arrays_of(content: bytes) -> "dict[str, np.ndarray]":
    """Returns the arrays of the .npz file with these bytes, by name; raises Damaged for any other
    content, and for arrays of Python objects, since unpickling them could run code.

    Raises:
      Damaged: no .npz file, one of objects (which could run code), or one that cannot be read.
    """
    import numpy as np

    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except Exception as error:  # zipfile, its decoders and numpy's parser raise a dozen kinds
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise Damaged(f"no .npz file of plain arrays: {reason}") from error
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):  # bytes, where numpy's mark is not at their head
            raise Damaged(f"no .npz file of plain arrays: {name!r} is none")
    return arrays


FILE = "items.npz"
ROUNDING = 1e-5  # tolerance of a score against its rows: a loss is a sum over batches in float32
ORDERS = 4  # of BLEU's n-grams
CHARACTERS = 6  # of chrF's
_RULES = "rules"


@dataclasses.dataclass(frozen=True)
class Items:
    """What the scores of a split are made of.

    Attributes:
      rules: measure to the name of its rule, see above.
      rows: measure to its array [N,C].
    """

    rules: Mapping[str, str]
    rows: "Mapping[str, np.ndarray]"

    @classmethod
    def of(cls, measures: Mapping[str, tuple[str, Any]]) -> "Items":
        """Builds an `Items` from {measure: (name of its rule, numbers [N examples, C columns])};
        raises `UserError` for an unknown rule, rows that are no table of numbers, or measures with
        different numbers of rows.

        Raises:
          UserError: an unknown rule, rows that are no table of numbers, or several numbers of rows.
        """
        import numpy as np

        items = cls(
            {name: rule for name, (rule, _) in measures.items()},
            {name: np.asarray(rows) for name, (_, rows) in measures.items()},
        )
        for name, rows in items.rows.items():
            if items.rules[name] not in RULES:
                raise UserError(
                    f"items: {name!r} has the unknown rule {items.rules[name]!r};"
                    f" {nearest(items.rules[name], RULES)}"
                )
            if rows.ndim != 2 or rows.dtype.kind not in "biuf":
                raise UserError(
                    f"items: {name!r} has rows of shape {rows.shape}; numbers [examples,columns]"
                    " are needed"
                )
        if len({len(rows) for rows in items.rows.values()}) > 1:
            counts = [f"{name!r} has {len(rows)} rows" for name, rows in items.rows.items()]
            raise UserError(f"items: {', '.join(counts)}; one an example")
        return items

    def __len__(self) -> int:
        """N."""
        return max(map(len, self.rows.values()), default=0)

    def score(self, measure: str) -> float:
        """Returns the score of the split itself, with every example once."""
        import numpy as np

        return self.scores(measure, np.ones((1, len(self))))[0]

    def scores(self, measure: str, times: "np.ndarray") -> list[float]:
        """Returns the scores of R test sets that are drawn from the examples as often as `times`
        [R,N] says.

        Args:
          measure: one of `rules`.
          times: [R,N], how often each example is in each of them.

        Returns:
          R numbers; NaN for a set that has nothing to be scored by (of no token, say).
        """
        import numpy as np

        sums = np.asarray(times, np.float64) @ self.rows[measure].astype(np.float64)
        return [score_of(self.rules[measure], row) for row in sums.tolist()]

    def interval(
        self, measure: str, resamples: int = 1000, shares: bool = False
    ) -> tuple[float, ...]:
        """Returns the lower and the upper end of the 95 % interval of the score `measure`: of the
        bootstrap, from `resamples` test sets drawn from the examples with a fixed seed (those whose
        score is NaN are left out); with `shares` Wilson's (1927) for a share of the examples.
        """
        import numpy as np

        rows = self.rows[measure]
        if shares and self.rules[measure] == "ratio" and {*map(tuple, rows)} <= {(0, 1), (1, 1)}:
            from scipy.stats import binomtest

            return tuple(binomtest(int(rows[:, 0].sum()), len(rows)).proportion_ci(method="wilson"))
        rng, equal = np.random.default_rng(0), np.full(len(self), 1 / len(self))
        draws = (rng.multinomial(len(self), equal, size=1) for _ in range(resamples))
        drawn = [self.scores(measure, times)[0] for times in draws]
        return tuple(np.nanquantile(drawn, [0.025, 0.975]).tolist())

    def without(self, measures: Sequence[str]) -> "Items":
        """Returns an `Items` of all measures but `measures`."""
        names = [name for name in self.rules if name not in measures]
        return Items(
            {name: self.rules[name] for name in names}, {name: self.rows[name] for name in names}
        )

    def write(self, workdir: str | Path) -> None:
        """Writes `<workdir>/items.npz` atomically; equal items give equal bytes."""
        import numpy as np

        file = io.BytesIO()
        np.savez_compressed(file, **{_RULES: np.array(list(self.rules.items()))}, **self.rows)  # type: ignore[arg-type]
        write_atomic(Path(workdir) / FILE, file.getvalue())

    @classmethod
    def read(cls, workdir: str | Path) -> "Items | None":
        """Reads `<workdir>/items.npz` and returns it as an `Items`, or None if the file does not
        exist; raises UserError if it is damaged.

        Raises:
          UserError: the file is damaged.
        """
        path = Path(workdir) / FILE
        try:
            arrays = arrays_of(path.read_bytes())
            rules = {str(name): str(rule) for name, rule in arrays[_RULES]}
            return cls.of({name: (rule, arrays[name]) for name, rule in rules.items()})
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, UserError) as error:
            reason = " ".join(str(error).split())
            raise UserError(
                f"{path} is damaged ({reason}): put back a good copy, or remove it: then nothing is"
                " resampled"
            ) from error


def score_of(rule: str, sums: Sequence[float]) -> float:
    """Returns the score that a rule of `RULES` computes from sums; NaN where there is nothing to be
    scored by.
    """
    try:
        return RULES[rule](sums)
    except (ZeroDivisionError, OverflowError):
        return math.nan


def _ratio(sums: Sequence[float]) -> float:
    return sums[0] / sums[1]


def _macro_f1(sums: Sequence[float]) -> float:
    """Returns the mean F1 over the classes that occur, from [twice the hits of each class; its
    labels and answers]; 0 if none does.
    """
    import numpy as np

    hits, either = np.asarray(sums).reshape(2, -1)
    return float(np.mean(hits[either > 0] / either[either > 0])) if either.any() else 0.0


def bleu(sums: Sequence[float]) -> float:
    """Returns corpus BLEU-4, 0 to 100, from the sums over examples [length of the output, length of
    the reference, 4 counts of matching n-grams, 4 counts of the output's n-grams]; 0 if no n-gram
    matches, or the output has none of an order.

    Smoothed exponentially, without effective order: the k-th order without a match has the
    precision 1 / (2^k n-grams).
    """
    length, reference, *counts = sums
    matches, totals = counts[:ORDERS], counts[ORDERS:]
    if not any(matches) or not all(totals):
        return 0.0
    halved, logs = 1.0, []
    for match, total in zip(matches, totals, strict=True):
        halved *= 1 if match else 2
        logs.append(math.log(100.0 * match / total if match else 100.0 / (halved * total)))
    brevity = 1.0 if length >= reference else math.exp(1 - reference / length)
    return brevity * math.exp(sum(logs) / ORDERS)


def chrf(sums: Sequence[float]) -> float:
    """Returns corpus chrF2, 0 to 100, from the sums over examples, for each n-gram order in turn,
    [n-grams of the output, n-grams of the reference, matches]; an order that output or reference
    lacks is left out.
    """
    precision = recall = 0.0
    orders = [row for row in zip(*[iter(sums)] * 3, strict=True) if row[0] > 0 and row[1] > 0]
    for grams, reference_grams, match in orders:  # Python's `sum` rounds otherwise from 3.12 on
        precision, recall = precision + match / grams, recall + match / reference_grams
    precision, recall = precision / max(len(orders), 1), recall / max(len(orders), 1)
    return 100 * (5 * precision * recall / (4 * precision + recall)) if precision + recall else 0.0


RULES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "ratio": _ratio,
    "perplexity": lambda sums: math.exp(_ratio(sums)),
    "bits": lambda sums: sums[0] / math.log(2) / sums[1],
    "macro_f1": _macro_f1,
    "bleu": bleu,
    "chrf": chrf,
}
"""What makes a score of the sums of the rows, by name."""
