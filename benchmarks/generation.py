"""How fast does a decoder-only Transformer write, beside `generate` of transformers?

    taskset -c 0,1 python -m benchmarks.generation FOLDER --rounds=3 \\
        --versus="PYTHON_WITH_TORCH -P benchmarks/torch_decoding.py FOLDER"

GPT-2 small (124 million parameters, random weights made by transformers, read from FOLDER, which
the other side makes first), float32, greedy search with a cache: 128 new tokens after 128 drawn
ones, for 1 row and for 8; then single tokens of a text of 1,013 after 8, at which the time of one
may grow with the length. A row of the table for each figure: the least seconds over all rounds,
which alternate. Both sides use the cores that they may run on. Last, how many tokens of the two
sides agree before the first difference: from random weights close calls are many.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from attnlab.progress import table
from benchmarks import rounds

BATCHES, PROMPT, NEW = (1, 8), 128, 128
PLACES, SHORT, AROUND = (10, 100, 500, 1000), 8, 10  # as in torch_decoding.py


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="GPT-2 small as transformers writes it")
    parser.add_argument("--versus", metavar="COMMAND", help="prints lines 'batch_B X'")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side")
    parser.add_argument("--figures", action="store_true", help="print ours as lines 'name value'")
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args()
    if chosen.figures:
        for name, value in figures(chosen.folder):
            print(f"{name} {value:.6g}", flush=True)
        return
    about = rounds.machine()
    ours = f"{sys.executable} -m benchmarks.generation {chosen.folder} --figures"
    commands = {"transformers": chosen.versus} if chosen.versus else {}
    commands["attnlab"] = ours
    collected = rounds.alternate(commands, f"batch_{BATCHES[0]}", chosen.rounds)
    columns = ("", "tokens/s", "ms a token", "transformers", "times")
    title = f"greedy search, GPT-2 small; {chosen.rounds} rounds, {about['cores']} cores"
    table(f"{title}, load before {about['load_before']}", columns, rows(collected))
    for count in BATCHES if chosen.versus else ():
        same = agreeing(chosen.folder, count)
        print(f"tokens of {count} rows that agree before the first difference: {same} of {NEW}")
    rounds.save(chosen.json, {"figures": collected, **about})


def rows(collected: dict[str, rounds.Figures]) -> list[tuple[Any, ...]]:
    """The rows of the table, from all figures of both sides."""
    mine, other = collected["attnlab"], collected.get("transformers", {})
    made = []
    for name in (*(f"batch_{count}" for count in BATCHES), *(f"token_{at}" for at in PLACES)):
        kind, number = name.split("_")
        each = NEW if kind == "batch" else 1
        ours = min(mine[name]) / each
        theirs = min(other.get(name, [float("nan")])) / each
        at_once = int(number) if kind == "batch" else 1
        label = f"{number} rows" if kind == "batch" else f"token {number}"
        numbers = (at_once / ours, 1e3 * ours, 1e3 * theirs, theirs / ours)
        made.append((label, *(round(number, 2) for number in numbers)))
    return made


def figures(folder: Path) -> Iterator[tuple[str, float]]:
    """Seconds of every figure; writes the tokens to the folder."""
    decoder, params, vocabulary = decoding(folder, NEW)
    for rows in BATCHES:
        batch = [(np.arange(rows), {"source": drawn(rows, PROMPT, vocabulary)})]
        taken: list[float] = []
        every: list[Any] = []
        while len(taken) < 3 or sum(taken[1:]) < 6.0:
            start = time.perf_counter()
            every = decoder(params, batch)
            taken.append(time.perf_counter() - start)
        np.save(folder / f"attnlab_{rows}.npy", np.stack([best[0].tokens for best in every]))
        yield f"batch_{rows}", min(taken[1:])
    yield from tokens(folder)


def tokens(folder: Path) -> list[tuple[str, float]]:
    """Seconds of single tokens of one text, from programs that are compiled before."""
    decoder, params, vocabulary = decoding(folder, PLACES[-1] + AROUND)
    source = drawn(1, SHORT, vocabulary)[0]
    next(iter(decoder.stream(params, source)))
    at = []
    for _ in decoder.stream(params, source, piece=AROUND // 2):
        at.append(time.perf_counter())
    ends = [2 * place // AROUND for place in PLACES]  # `at[n - 1]`: 5 n tokens are there
    return [
        (f"token_{place}", (at[n] - at[n - 2]) / AROUND)
        for place, n in zip(PLACES, ends, strict=True)
    ]


def decoding(folder: Path, new: int) -> tuple[Any, Any, int]:
    """A decoder of `new` tokens without an end, the parameters and the size of the vocabulary."""
    import jax

    from attnlab import weights
    from attnlab.config.registry import made
    from attnlab.data.vocabulary import Special
    from attnlab.decoding.settings import validate
    from attnlab.systems import SYSTEMS
    from attnlab.tasks.decoders import continuing
    from attnlab.weights import folder as folders

    vocabulary = folders.settings(folder)["vocab_size"]
    node = {**weights.system(folder), "dropout": 0.0}
    system: Any = made(SYSTEMS, node)(vocabulary=vocabulary, pad_id=-1)
    text = jax.ShapeDtypeStruct((1, 4), "int32")
    shapes = jax.eval_shape(system.init, jax.random.key(0), text)["params"]
    params = jax.device_put(weights.parameters(folder, shapes))
    settings = validate({"method": "greedy", "max_ratio": 0.0, "max_extra": new}, weights=False)
    never = Special(pad=-1, bos=-2, eos=-3, unk=None)
    return continuing(system, settings, never), params, vocabulary


def drawn(rows: int, length: int, vocabulary: int) -> np.ndarray:
    """Texts [rows,length] of any tokens, always the same."""
    every = np.random.RandomState(0).randint(vocabulary, size=(rows, length))
    return every.astype(np.int32)


def agreeing(folder: Path, rows: int) -> list[int]:
    """How many tokens of each row both sides have before the first difference."""
    ours, theirs = (np.load(folder / f"{name}_{rows}.npy") for name in ("attnlab", "torch"))
    return [int(np.cumprod(a == b).sum()) for a, b in zip(ours, theirs, strict=True)]


if __name__ == "__main__":
    rounds.main(main)
