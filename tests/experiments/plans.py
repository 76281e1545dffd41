"""Plans for tests: a small one made by hand, and an experiment file written for a tiny model."""

import dataclasses
import itertools
from pathlib import Path
from typing import Any

from attnlab.experiments import Experiment, better, rows
from attnlab.experiments.define import Claim, definition
from attnlab.experiments.plan import Candidate, Plan
from tests.commands.tiny import SHARED, SMALL

CONFIG = "configs/translation.py:rnnsearch"
EXPERIMENT = Experiment(
    question="Which score?",
    config=CONFIG,
    base={"training.steps": 12},
    compare=rows({"additive": {}, "general": {"system.attention.score": "general"}}),
    seeds=(0, 1),
    claim=Claim("Scores differ.", (better("additive", "general", by=0.1),)),
)
FILE = "experiments/which.py"
BASE: dict[str, Any] = dict(
    one.split("=", 1) for one in (*SMALL["rnnsearch"], *SHARED) if "score.hidden" not in one
)
"""A tiny RNNsearch with whatever score."""


def defined(**changes: Any) -> dict[str, Any]:
    """The definition of the experiment with some things changed."""
    return definition(dataclasses.replace(EXPERIMENT, **changes), FILE)


def plan(**changes: Any) -> Plan:
    """Its plan, with configs that hold nothing but a seed and the steps."""
    fields = defined(**changes)
    fields |= {"seeds": tuple(fields["seeds"]), "tune": tuple(fields["tune"])}
    empty = Plan(**fields, file=FILE, hash="0" * 12, created="", candidates=())
    points = empty.tune or ({"name": "", "overrides": {}},)
    pairs = itertools.product(empty.variants, points)
    wanted = [empty.want(variant, point["overrides"], point["name"]) for variant, point in pairs]
    config = {"seed": empty.seeds[0], "training": {"steps": 12}}
    return empty.grown(
        Candidate(one.id, one.variant, one.tuned, one.overrides, config, 10, 2.0) for one in wanted
    )


def experiment_file(
    path: Path, *lines: str, imports: str = "", config: str = CONFIG, base: Any = BASE
) -> str:
    """Writes an experiment, on a tiny RNNsearch unless told otherwise; `lines` are further arguments
    of `Experiment`. Returns the file's name.
    """
    body = "".join(f"        {line},\n" for line in lines)
    path.write_text(
        f"from attnlab.experiments import *\n{imports}\n\nBASE = {base!r}\n\n\ndef"
        " get_experiment(argument=''):\n    return Experiment(\n        question='Which?',"
        f" config={config!r}, base=BASE,\n{body}    )\n"
    )
    return str(path)
