"""Does it matter in which order a source is read, and where attention may look? Words said again in
their order, and from the last.

    python launch.py sweep experiments/order.py --dir=runs/order
    python launch.py sweep experiments/order.py:reading --dir=runs/order-reading

Without an argument, or with "windows": Luong et al. 2015 let attention see a window that goes on
with the target (local-m), one whose place is predicted (local-p), or everything. What stands at the
other end of the source is never in the first of them. With "reading": Sutskever et al. 2014 read
the source from its last word, so that its first words are near to where the target begins. On a
copy that must help; where the target itself is reversed, the plain order is the one that helps.
"""

from typing import Any, Literal

from attnlab.config import choose
from attnlab.experiments import Axis, Budget, Claim, Contrast, Experiment, better, cross, rows

ORDERS = rows({"copy": {"data.order": "same"}, "reverse": {"data.order": "reversed"}})


def get_experiment(argument: str = "") -> Experiment:
    """One of the two experiments.

    Raises:
      UserError: the argument is neither "windows" nor "reading".
    """
    experiments = {"windows": windows, "reading": reading}
    return choose(argument or "windows", experiments, "experiments/order.py", "experiment")()


def windows() -> Experiment:
    """Three alignments of one system, 15 words, windows of five; a state of 64, for one of 128
    carries most of 15 words by itself.
    """
    near: dict[str, Any] = {"system.attention.alignment.reach": 2}
    systems: dict[str, dict[str, Any]] = {
        "global": {"system.attention.alignment": "softmax"},
        "local-m": {"system.attention.alignment": "local_m", **near},
        "local-p": {"system.attention.alignment": "local_p", **near},
    }
    small = {"system.width": 64, "system.order": "plain"}
    base = {
        **copying_base(15, 15),
        **small,
        "system.attention": "single",
        "system.attention.score": "general",
    }
    contrasts = (
        better("local-m, copy", "local-m, reverse", by=0.3),
        better("local-p, reverse", "local-m, reverse", by=0.3),
    )
    claim = Claim(
        "A window that goes on with the target copies and cannot reverse; one whose place is"
        " predicted can",
        contrasts,
    )
    return experiment("luong", base, rows(systems), claim, "global, copy", ("exact", "max"))


def reading() -> Experiment:
    """Two orders of reading, 1 to 12 words."""
    base = {**copying_base(1, 12), "system.layers": 2}
    orders = rows({"plain": {"system.order": "plain"}, "reversed": {"system.order": "reversed"}})
    turn = {
        "plain, copy": 1.0,
        "reversed, copy": -1.0,
        "plain, reverse": -1.0,
        "reversed, reverse": 1.0,
    }
    claim = Claim(
        "Who reads the source from its last word copies with a smaller loss, and reverses with a"
        " larger one",
        (
            better("reversed, copy", "plain, copy"),
            better("plain, reverse", "reversed, reverse"),
            Contrast(turn),
        ),
    )
    return experiment("seq2seq", base, orders, claim, "plain, copy", ("loss", "min"))


def copying_base(shortest: int, longest: int) -> dict[str, Any]:
    """The settings that both share: one width of batches, with the end of the sentence."""
    return {
        "data": "copying",
        "data.shortest": shortest,
        "data.longest": longest,
        "vocabulary.kind": "word",
        "batch.buckets": (longest + 1,),
        "batch.max_length": longest + 1,
        "training.steps": 1500,
        "decoding.method": "greedy",
    }


def experiment(
    system: str,
    base: dict[str, Any],
    systems: Axis,
    claim: Claim,
    baseline: str,
    measure: tuple[str, Literal["max", "min"]],
) -> Experiment:
    """Every system on both orders of the target."""
    return Experiment(
        question="Does it matter in which order a source is read, and where attention may look?",
        config=f"configs/translation.py:{system}",
        base=base,
        compare=cross(systems, ORDERS),
        seeds=(0, 1, 2, 3, 4),
        baseline=baseline,
        measure=measure,
        budget=Budget(match="parameters", knob="system.embedding"),
        claim=claim,
    )
