"""What a plan holds equal between its variants, said before anything trains; and the refusal of a
budget that is missed. Imports no jax.
"""

import dataclasses
from collections.abc import Iterator

from attnlab.errors import UserError
from attnlab.experiments.plan.candidate import Candidate
from attnlab.experiments.plan.plan import Plan

FLAG = "--accept-unmatched"
WORDS = {"parameters": "parameters", "flops": "FLOPs per step"}


def budget_lines(plan: Plan) -> Iterator[str]:
    """Yields a line for each candidate of a plan with a budget (what is matched, by which setting
    at which value, and how far off it is); without a budget, one line with the parameters of each
    variant, if they are several.
    """
    if plan.budget is None:
        sizes = {candidate.variant: candidate.parameters for candidate in reversed(plan.candidates)}
        each = [f"{name} {sizes[name]:,}" for name in plan.variants if name in sizes]
        if len(each) > 1:
            yield f"parameters: {', '.join(each)}: not matched, for the experiment has no budget"
        return
    for candidate in plan.candidates:
        if candidate.budget is not None:
            yield f"budget: {_match_line(candidate, WORDS[plan.budget['match']], plan.budget['within'])}"


def check_budget(plan: Plan, old: Plan | None) -> Plan:
    """Returns the plan with "accepted" (whether the user accepts it) in the `budget` of every
    candidate that misses the budget; raises `UserError` for one that misses it unaccepted and is
    not in the plan `old`.

    Args:
      plan: what would be written; it says whether the user accepts that candidates miss it.
      old: what stands there; its candidates are not judged again.

    Raises:
      UserError: one misses it, and nobody has accepted that.
    """
    before = {candidate.id: candidate.budget for candidate in old.candidates} if old else {}
    candidates = []
    for candidate in plan.candidates:
        met, judged = candidate.budget, candidate
        if met is not None and not met["matched"] and plan.budget is not None:
            if candidate.id not in before and not plan.unmatched:
                line = _match_line(candidate, WORDS[plan.budget["match"]], plan.budget["within"])
                raise UserError(f"budget: {line}; change it, or accept it with {FLAG}")
            earlier = before.get(candidate.id)
            taken = plan.unmatched if earlier is None else earlier.get("accepted", False)
            judged = dataclasses.replace(candidate, budget={**met, "accepted": taken})
        candidates.append(judged)
    return dataclasses.replace(plan, candidates=tuple(candidates))


def _match_line(candidate: Candidate, what: str, within: float) -> str:
    """Returns a line on how near a candidate comes to its budget, "general has 12,000 parameters of
    12,345 wanted (-2.79 %) by system.decoder=40", with "NOT MATCHED within 1 %" if it misses;
    `what` is the word for the count, `within` a share.
    """
    met = candidate.budget
    assert met is not None
    off = 100 * (met["reached"] / met["wanted"] - 1)
    tuned = ", ".join(f"{key}={value}" for key, value in candidate.tuned.items())
    name = f"{candidate.variant} ({tuned})" if tuned else candidate.variant
    missed = "" if met["matched"] else f": NOT MATCHED within {100 * within:g} %"
    note = f" ({met['note']})" if met["note"] else ""
    return (
        f"{name} has {met['reached']:,.0f} {what} of {met['wanted']:,.0f} wanted ({off:+.3g} %)"
        f" by {met['knob']}={met['value']}{missed}{note}"
    )
