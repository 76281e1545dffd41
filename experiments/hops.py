"""How many looks does a sentence need? The structured self-attentive embedding with 1 to 8 hops,
with and without its penalty.

    python launch.py sweep experiments/hops.py --dir=runs/hops

Lin et al. 2017 read a sentence by several weighted means of its states, kept apart by a penalty on
hops that look at the same words. The label is the sum of two numbers hidden among other words, so
that two looks could suffice. All have as many parameters as one hop has.
"""

from attnlab.experiments import Budget, Claim, Experiment, better, rows

HOPS = (1, 2, 4, 8)
PENALTIES = {"": 0.01, ", hardly a penalty": 1e-6}


def get_experiment() -> Experiment:
    """The experiment."""
    looks = {
        f"{hops} hops{name}": {"system.attention.hops": hops, "auxiliary.hops": penalty}
        for hops in HOPS
        for name, penalty in PENALTIES.items()
        if hops > 1 or not name
    }
    return Experiment(
        question="How many looks does a sentence need?",
        config="configs/classification.py:self_attentive",
        base={
            "system.attention": "hops",
            "system.attention.output": "side_by_side",
            "system.attention.hidden": 32,
            "system.width": 64,
            "system.embedding": 32,
            "system.hidden": 32,
            "system.dropout": 0.0,
        },
        compare=rows(looks),
        seeds=(0, 1, 2, 3, 4),
        baseline="1 hops",
        measure=("accuracy", "max"),
        select=("accuracy", "max"),
        budget=Budget(match="parameters", knob="system.hidden", within=0.05),
        claim=Claim("Four hops beat one", (better("4 hops", "1 hops"),)),
    )
