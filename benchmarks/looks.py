"""Where does a trained system look? How far back, how widely, and how far its hops lie apart.

    python -m benchmarks.looks runs/looking-back-words/trials/*/seed0 --examples=100

For every attention map of every run, averaged over rows of real queries of the first test examples
(heads, where there are several, each as a map of its own):

    words       exp(entropy) of a row: how many words it is spread over; a row over n words at most n
    of          how many words there were to look at
    back        of a text onto itself: how far the word lies behind, on average by weight, and which share of the weight
    last 1, 3, 5   lies on the last one, three and five
    together    of hops: the words that the mean of all hops is spread over
    overlap     of hops: the cosine of two of them, the mean over all pairs
    evidence    of built-in labelled texts: the share of the weight on the words that the label follows from; of a text onto itself by
                its last word alone, where the label is read (`--skip=0` where texts are short)

A language model is given pieces of the test split of `--length` tokens, each from the beginning of
its memory; the first `--skip` rows of a text onto itself are left out, for they have too little to
look at. Of several runs those that cannot be looked at are named and passed over: systems without
attention, and trials of a sweep that were not chosen, whose test split stays closed.
"""

import argparse
import itertools
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import attnlab
from attnlab.attention.protocol import MAPS
from attnlab.config.registry import build
from attnlab.data import SOURCES
from attnlab.errors import UserError
from attnlab.progress import table
from attnlab.systems.protocol import AttentionMap
from attnlab.tasks.maps import maps_of
from benchmarks import rounds

NEAR = (1, 3, 5)
COLUMNS = (
    "run",
    "map",
    "rows",
    "words",
    "of",
    "back",
    *(f"last {n}" for n in NEAR),
    "together",
    "overlap",
    "evidence",
)

Evidence = tuple[
    int, list[int]
]  # words of a text, and the places of those that its label follows from


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workdirs", nargs="+", metavar="RUN")
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument(
        "--length", type=int, default=100, help="tokens of a language model's piece"
    )
    parser.add_argument(
        "--skip", type=int, default=10, help="first rows of a text onto itself that do not count"
    )
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args()
    rows = []
    for workdir in chosen.workdirs:
        try:
            rows += looked_at(workdir, chosen)
        except UserError as error:
            if len(chosen.workdirs) == 1:
                raise
            print(f"passed over: {error}", file=sys.stderr)
    if not rows:
        raise UserError("none of these runs can be looked at")
    table("where they look", COLUMNS, rows)
    rounds.save(chosen.json, {"rows": [dict(zip(COLUMNS, row, strict=True)) for row in rows]})


def looked_at(workdir: str, chosen: argparse.Namespace) -> list[tuple[Any, ...]]:
    """The rows of the table for one run.

    Raises:
      UserError: not a trained run, one whose test split stays closed, or a system without
        attention.
    """
    run = attnlab.load(workdir, splits=("test",))
    task, params = run.task, run.params
    if not task.system.needs:
        raise UserError(f"{workdir}: {type(task.system).__name__} has no attention")
    figures: dict[str, list[dict[str, float]]] = defaultdict(list)
    for maps, evidence in seen(task, params, chosen.examples, chosen.length):
        for name, map_ in maps.items():
            for head, weights in enumerate(np.asarray(map_.weights)):
                title = f"{name}, head {head + 1}" if len(map_.weights) > 1 else name
                figures[title] += described(
                    weights, map_.rows, map_.rows == map_.columns, chosen.skip, evidence
                )
    return [(workdir, title, *means(each)) for title, each in figures.items() if each]


def seen(
    task: Any, params: Any, examples: int, length: int
) -> Iterator[tuple[dict[str, AttentionMap], Evidence | None]]:
    """The maps [H,Tq,Tk] of each example, and what its label follows from, where that is known."""
    if task.config.task != "language_modelling":
        for example in task.examples_from_text(params, task.map_examples("test", examples)):
            maps = maps_of(task.system, params, task.model_inputs(example)[0])
            yield maps, evidence(task.config, example.source)
        return
    ids = np.concatenate([np.asarray(text) for text in task.data.ids["test"]])
    count = min(examples, len(ids) // length)

    @jax.jit
    def looked(piece: jax.Array) -> dict[str, AttentionMap]:
        _, collected = task.system.apply({"params": params}, piece, mutable=[MAPS])
        return task.system.maps(collected[MAPS])  # type: ignore[no-any-return]

    for piece in ids[: count * length].reshape(count, 1, length):
        yield (
            {
                name: map_.replace(weights=map_.weights[0])
                for name, map_ in jax.device_get(looked(jnp.asarray(piece))).items()
            },
            None,
        )


def evidence(config: Any, text: str) -> Evidence | None:
    """The number of words of a text and which of them its label follows from; None where the source
    of the data does not say.
    """
    if config.vocabulary.kind != "word" or not hasattr(
        SOURCES.resolve(config.data.name), "evidence"
    ):
        return None
    return len(text.split()), sorted(build(SOURCES, config.data, "config.data")().evidence(text))


def described(
    weights: np.ndarray,
    query: str | Sequence[str],
    itself: bool,
    skip: int,
    evidence: Evidence | None = None,
) -> list[dict[str, float]]:
    """What is said of the rows of weights [Tq,Tk]; of hops one statement of all together."""
    rows = []
    for i, row in enumerate(weights):
        if (itself and i < skip) or row.sum() <= 0:
            continue
        figures = {"words": spread(row), "of": float((row > 0).sum())}
        if itself:
            back = i - np.arange(len(row))
            figures |= {"back": float((row * back).sum() / row.sum())}
            figures |= {
                f"last {n}": float(row[(back >= 0) & (back <= n)].sum() / row.sum()) for n in NEAR
            }
        if evidence is not None and (not itself or i == evidence[0] - 1):
            figures["evidence"] = float(row[evidence[1]].sum() / row.sum())
        rows.append(figures)
    if query != "hops" or len(weights) < 2:
        return rows
    unit = weights / np.linalg.norm(weights, axis=1, keepdims=True)
    pairs = [float(unit[a] @ unit[b]) for a, b in itertools.combinations(range(len(unit)), 2)]
    both = {"together": spread(weights.mean(axis=0)), "overlap": float(np.mean(pairs))}
    return [{**{name: float(np.mean([row[name] for row in rows])) for name in rows[0]}, **both}]


def spread(row: np.ndarray) -> float:
    """exp of the entropy of weights [Tk], normalised."""
    shares = row[row > 0] / row.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def means(rows: list[dict[str, float]]) -> list[Any]:
    """How many statements there are, and the mean of each figure; None for one that nobody made."""
    series = ([row[name] for row in rows if name in row] for name in COLUMNS[3:])
    return [len(rows), *(round(float(np.mean(values)), 3) if values else None for values in series)]


if __name__ == "__main__":
    rounds.main(main)
