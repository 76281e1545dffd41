"""How long does beam search take over the test split, and how does that compare with another
toolkit on the same machine?

    python -m benchmarks.decoding WORKDIR
    python -m benchmarks.decoding WORKDIR --rounds=5 --json=out.json --versus="COMMAND"

Translates a split of the trained run in WORKDIR by the decoding of its config (beam 5 for
configs/multi30k.py) twice in one process, from texts to hypotheses, and prints
`seconds_with_compile X` for the first time (with the compile cache off: what a new shape costs) and
`seconds X` for the second; then BLEU, so that speed is not bought with quality. Starting up,
reading data and restoring parameters are in neither.

With `--versus` the same runs in alternation with any shell command that prints `seconds X`; then
medians, all values and the ratios (with compiling, too, against the other's `seconds`). JoeyNMT's
side: benchmarks/joeynmt/README.md.
"""

import argparse
import os
import shlex
import sys
import time

from attnlab.commands import session, take_overrides
from benchmarks import rounds


def main() -> None:
    """Measure once, or in alternation with another command."""
    overrides, rest = take_overrides(sys.argv[1:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "workdir", help="a trained run; --config.decoding.a=value overrides as in evaluate"
    )
    parser.add_argument("--split", default="test")
    parser.add_argument("--sentences", type=int, default=0, help="only the first so many (0: all)")
    parser.add_argument(
        "--versus", metavar="COMMAND", help="a shell command that prints 'seconds X'"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args(rest)
    if chosen.versus is None:
        run = argparse.Namespace(workdir=chosen.workdir, config=None, overrides=overrides)
        for name, value in measure(run, chosen.split, chosen.sentences).items():
            print(name, f"{value:.6g}")
        return
    command = [
        sys.executable,
        "-m",
        "benchmarks.decoding",
        chosen.workdir,
        f"--split={chosen.split}",
        f"--sentences={chosen.sentences}",
    ]
    commands = {
        "attnlab": shlex.join([*command, *(f"--config.{override}" for override in overrides)]),
        "versus": chosen.versus,
    }
    wanted = ["seconds", "seconds_with_compile"]
    rounds.compare(
        f"decoding the {chosen.split} split, seconds",
        commands,
        wanted,
        chosen.rounds,
        chosen.json,
        less_is_better=True,
    )


def measure(arguments: argparse.Namespace, split: str, sentences: int) -> dict[str, float]:
    """Translate a split twice; `arguments` has the workdir and overrides."""
    os.environ["ATTNLAB_CACHE"] = ""  # off: the first time compiles everything
    run = session.open_run(session.stored_run(arguments), (split,))
    task, params = run.task, run.params
    from attnlab.decoding.metrics import corpus_scores
    from attnlab.tasks.pairs import Translation

    assert isinstance(task, Translation)
    pairs = task.data.rows[split][: sentences or None]
    sources = [source for source, _ in pairs]
    times = []
    for _ in range(2):
        clock = time.perf_counter()
        hypotheses = task.translate(params, sources)
        times.append(time.perf_counter() - clock)
    texts = [task.text(best[0]) for best in hypotheses]
    references = [task.vocabularies[1].normalize(target) for _, target in pairs]
    scores = corpus_scores(texts, references, lowercase=task.config.vocabulary.lowercase)
    figures = {"sentences": float(len(pairs)), "bleu": float(scores["bleu"])}
    return {
        **figures,
        "seconds_with_compile": times[0],
        "compile_seconds": times[0] - times[1],
        "seconds": times[1],
    }


if __name__ == "__main__":
    rounds.main(main)
