"""What holds a Transformer up? Norms and their place, residual sums, feed-forward layers, an
encoder that reads both ways, and a decoder that does not.

    python launch.py sweep experiments/blocks.py --dir=runs/blocks
    python launch.py sweep experiments/blocks.py:norms --dir=runs/blocks-norms
    python launch.py sweep experiments/blocks.py:ways --dir=runs/blocks-ways
    python launch.py sweep experiments/blocks.py:mask --dir=runs/blocks-mask
    python launch.py sweep experiments/blocks.py:rotary --dir=runs/blocks-rotary

Without an argument, or with "parts": without residual sums, without feed-forward layers, without
norms (Dong et al. 2021: attention alone loses rank with depth). "norms": norms behind the residual
sum (post, Vaswani et al. 2017), in front of each function (pre) or nowhere, with 6 layers, at two
learning rates and hardly any warm-up. Xiong et al. 2020 show that post-norm needs the warm-up, for
its gradients are large near the output. "ways": an encoder whose words see what stands before them
only, against one that sees both sides, of the Transformer and of RNNsearch. "mask": a decoder with
and without the causal mask (Vaswani et al. 2017, section 3.2.3). Without it every word sees the word
that it shall write; a decoder that learns to copy that has a low loss of given targets, and cannot
write. "rotary": the same with rotary positions.
"""

import dataclasses
from typing import Any

from attnlab.config import choose
from attnlab.experiments import Budget, Claim, Experiment, better, cross, rows

LOW = 0.5
"""A loss per token on the grammar that is low, and that every decoder reaches."""


def get_experiment(argument: str = "") -> Experiment:
    """One of the five experiments.

    Raises:
      UserError: the argument is not "parts", "norms", "ways", "mask" or "rotary".
    """
    experiments = {"parts": parts, "norms": norms, "ways": ways, "mask": mask, "rotary": rotary}
    return choose(argument or "parts", experiments, "experiments/blocks.py", "experiment")()


def base(steps: int, warmup: int = 100) -> dict[str, Any]:
    """What all share."""
    return {
        "data": "grammar",
        "vocabulary.kind": "word",
        "batch.buckets": (32,),
        "batch.max_length": 32,
        "training.steps": steps,
        "schedule.peak": 4e-3,
        "schedule.warmup": warmup,
        "decoding.method": "greedy",
        "system.width": 48,
        "system.hidden": 192,
    }


def norms() -> Experiment:
    """Three places of the norm, two rates, six layers."""
    places: dict[str, dict[str, Any]] = {
        "post": {"system.norm": "post"},
        "pre": {"system.norm": "pre"},
        "no norm": {"system.norm": "pre", "system.normalisation": "none"},
    }
    rates = {f"rate {peak:g}": {"schedule.peak": peak} for peak in (1e-3, 4e-3)}
    return Experiment(
        question="Where does the norm belong?",
        config="configs/translation.py:transformer",
        base={**base(300, warmup=10), "system.layers": 6},
        compare=cross(rows(places), rows(rates)),
        seeds=(0, 1, 2),
        baseline="post, rate 0.001",
        measure=("loss", "min"),
        claim=Claim(
            "With six layers, a high rate and no warm-up, norms in front have a lower loss than"
            " norms behind, or none",
            (
                better("pre, rate 0.004", "post, rate 0.004"),
                better("pre, rate 0.004", "no norm, rate 0.004"),
            ),
        ),
    )


def parts() -> Experiment:
    """Four layers, a part left out at a time; the feed-forward's parameters go into the width."""
    without: dict[str, dict[str, Any]] = {
        "all": {},
        "no residual sums": {"system.norm": "none"},
        "no feed-forward": {"system.feed_forward": "none"},
        "no norms": {"system.normalisation": "none"},
    }
    return Experiment(
        question="Which parts of a Transformer can be left out?",
        config="configs/translation.py:transformer",
        base={**base(400), "system.layers": 4},
        compare=rows(without),
        seeds=(0, 1, 2),
        baseline="all",
        measure=("loss", "min"),
        budget=Budget(
            match="parameters",
            knob="system.hidden",
            knobs={"no feed-forward": "system.width"},
            within=0.1,
        ),
        claim=Claim(
            "Residual sums lower the loss, and so do feed-forward layers",
            (better("all", "no residual sums"), better("all", "no feed-forward")),
        ),
    )


def ways() -> Experiment:
    """One way and both ways, by self-attention and by GRUs."""
    sizes = {"system.width": 48}
    shared = {key: value for key, value in base(500).items() if not key.startswith("system.")}
    recurrent: dict[str, Any] = {
        "system": "rnnsearch",
        "system.attention": "single",
        "system.attention.score": "additive",
        "system.attention.score.hidden": 64,
        "training.output_bias": "unigram",
    }
    compared: dict[str, dict[str, Any]] = {
        "Transformer, both ways": sizes,
        "Transformer, one way": {**sizes, "system.encoder_visibility": "causal"},
        "RNNsearch, both ways": {**recurrent, "system.directions": 2},
        "RNNsearch, one way": {**recurrent, "system.directions": 1},
    }
    return Experiment(
        question="Must an encoder read both ways?",
        config="configs/translation.py:transformer",
        base=shared,
        compare=rows(compared),
        seeds=(0, 1, 2),
        baseline="Transformer, one way",
        measure=("loss", "min"),
        budget=Budget(
            match="parameters",
            knob="system.hidden",
            knobs=dict.fromkeys(list(compared)[2:], "system.decoder"),
            within=0.05,
        ),
        claim=Claim(
            "Reading both ways lowers the loss, of the Transformer and of RNNsearch",
            (
                better("Transformer, both ways", "Transformer, one way"),
                better("RNNsearch, both ways", "RNNsearch, one way"),
            ),
        ),
    )


def mask() -> Experiment:
    """A decoder that sees what it has written, and one that sees its targets too.

    The loss is that of given targets; sentences are written freely and must be right as a whole.
    """
    return Experiment(
        question="What does the causal mask of a decoder prevent?",
        config="configs/translation.py:transformer",
        base={**base(500), "training.evaluate_every": 50},
        compare=rows(
            {
                "causal": {"system.leaking": False},
                "without the mask": {"system.leaking": True},
            }
        ),
        seeds=(0, 1, 2),
        baseline="causal",
        measure=("exact", "max"),
        budget=Budget(match="parameters", knob="system.hidden"),
        claim=Claim(
            "Without the mask the loss of given targets falls sooner, and at least half of the"
            " sentences fewer are written right",
            (
                better("causal", "without the mask", by=0.5),
                better("without the mask", "causal", on=f"steps_to(loss<={LOW:g})"),
            ),
        ),
    )


def rotary() -> Experiment:
    """The same with rotary positions, with which a word finds the one behind it more easily."""
    positions = {f"system.{side}_attention.positions": "rope" for side in ("encoder", "decoder")}
    plain = mask()
    return dataclasses.replace(plain, base={**plain.base, "system.positions": "none", **positions})
