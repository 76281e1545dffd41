"""Must attention be learned, and asked anew for every word? Four ways to weigh the source, on words
said again in their order and from the last.

    python launch.py sweep experiments/context.py --dir=runs/context

"search" is attention as in Luong et al. 2015: for every target word, weights that are learned.
"fixed" are weights that are learned and depend on the source alone, so that every step gets one and
the same context (Yang et al. 2016). "uniform" is the mean of the source, "diagonal" the word at the
same place: nothing to learn. The same system around all four; a state of 64 cannot carry 15 words
by itself.
"""

from attnlab.experiments import Budget, Claim, Experiment, better, cross, rows

WAYS = {
    "search": {"system.attention.score": "general"},
    "fixed": {"system.attention.score": "source_only"},
    "uniform": {"system.attention.score": "general", "system.attention.alignment": "uniform"},
    "diagonal": {"system.attention.score": "general", "system.attention.alignment": "diagonal"},
}
ORDERS = {"copy": {"data.order": "same"}, "reverse": {"data.order": "reversed"}}


def get_experiment() -> Experiment:
    """The experiment."""
    others = [(way, order) for way in ("fixed", "uniform") for order in ORDERS]
    return Experiment(
        question="Must attention be learned, and asked anew for every word?",
        config="configs/translation.py:luong",
        base={
            "data": "copying",
            "data.shortest": 15,
            "data.longest": 15,
            "vocabulary.kind": "word",
            "batch.buckets": (16,),
            "batch.max_length": 16,
            "training.steps": 1200,
            "decoding.method": "greedy",
            "system.width": 64,
            "system.order": "plain",
            "system.attention": "single",
        },
        compare=cross(rows(WAYS), rows(ORDERS)),
        seeds=(0, 1, 2, 3, 4),
        baseline="search, copy",
        measure=("exact", "max"),
        budget=Budget(match="parameters", knob="system.embedding"),
        claim=Claim(
            "A search for every word beats one context for all steps, the mean of the source, and"
            " a diagonal where words are reordered",
            (
                *(better(f"search, {order}", f"{way}, {order}", by=0.3) for way, order in others),
                better("search, reverse", "diagonal, reverse", by=0.3),
            ),
        ),
    )
