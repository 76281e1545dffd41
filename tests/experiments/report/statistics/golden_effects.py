"""Effects in designs with shared seeds by statsmodels, once and for all:

    python -m venv V && V/bin/pip install statsmodels==0.15.0
    V/bin/python -m tests.experiments.report.statistics.golden_effects    golden_effects.json anew

For each design and effect: the estimate, its standard error, degrees of freedom, and p of one
comparison, of ordinary least squares with the seed as a factor. Other values of a setting are coded
against its first one (treatment), all other settings by their sum, so that a coefficient is an
effect on average over these.
"""

import itertools
import json
import random
from pathlib import Path

FILE = Path(__file__).with_suffix(".json")
DESIGNS = {
    "2 x 2": ((2, 2), 3, ()),
    "2 x 3": ((2, 3), 5, ()),
    "2 x 2 x 2": ((2, 2, 2), 3, ()),
    "3 x 4": ((3, 4), 2, ()),
    "2 x 3, three lost": ((2, 3), 4, ((0, 1), (0, 3), (4, 2))),
}
"""Values of each setting, seeds, and the places (variant, seed) of lost trials."""
Cell = tuple[int, ...]


def drawn(name: str) -> dict[Cell, dict[int, float]]:
    """Values of a design by the place of each setting's value, and by seed."""
    sizes, seeds, lost = DESIGNS[name]
    rng, values = random.Random(name), dict[Cell, dict[int, float]]()
    shared = [rng.gauss(0, 2) for _ in range(seeds)]
    for place, cell in enumerate(itertools.product(*map(range, sizes))):
        row = [sum(cell) + each + rng.gauss(0, 1) for each in shared]
        values[cell] = {seed: y for seed, y in enumerate(row) if (place, seed) not in lost}
    return values


def effects(name: str) -> dict[str, list[float]]:
    """Effects of a design, "0=1" and "0=1 with 1=2": estimate, error, degrees of freedom, p."""
    import pandas
    from statsmodels.formula import api

    values, factors = drawn(name), range(len(DESIGNS[name][0]))
    rows = [(*cell, seed, y) for cell, each in values.items() for seed, y in each.items()]
    frame = pandas.DataFrame(rows, columns=[*(f"f{place}" for place in factors), "seed", "y"])
    found = {}
    for group in (*((one,) for one in factors), *itertools.combinations(factors, 2)):
        coded = [f"C(f{i}, {'Treatment' if i in group else 'Sum'})" for i in factors]
        fit = api.ols(f"y ~ {' * '.join(coded)} + C(seed)", frame).fit()
        for levels in itertools.product(*(range(1, DESIGNS[name][0][place]) for place in group)):
            term = ":".join(f"{coded[at]}[T.{to}]" for at, to in zip(group, levels, strict=True))
            effect = " with ".join(map("{}={}".format, group, levels))
            numbers = fit.params[term], fit.bse[term], fit.df_resid, fit.pvalues[term]
            found[effect] = [*map(float, numbers)]
    return found


if __name__ == "__main__":
    FILE.write_text(json.dumps({name: effects(name) for name in DESIGNS}, indent=1) + "\n")
