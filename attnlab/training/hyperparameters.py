"""Which settings of a config are only numbers in a training step: they are arguments of its compiled
program, so that runs that differ in nothing else share it, one after another or stacked.

These are the numbers of `optimizer`, `schedule` and `auxiliary`, and some of `training`. Those that
leave a part of the program out where they are 0 are arguments where they are not. A user's own
optimizer or schedule ("package.module:name") may use its fields in any way; its attribute `numbers`
names those that are arguments, by default none:

    def lion(learning_rate, b1=0.9, b2=0.99): ...
    lion.numbers = ("b1", "b2")

It gets an `arguments.Number` for each in the step, of which nothing can be asked; a schedule may name
"steps" too. Needs no jax, since the launcher groups trials.
"""

import json
from collections.abc import Mapping

from attnlab.config.registry import Table, import_object
from attnlab.config.schema import TABLES, Node
from attnlab.config.tree import to_dict
from attnlab.errors import UserError, nearest
from attnlab.records.manifest import plain

SMOOTHING, WEIGHTS = "training.label_smoothing", "auxiliary"
SWITCHES = ("training.clip", "training.ema", SMOOTHING, "optimizer.momentum", WEIGHTS)
"""0 leaves a part of the program out; all below the last."""
COMPILED = ("optimizer.minimum_factored", "optimizer.initial")
"""A shape, and what only the first state is made of."""


def numbers(config: Mapping[str, object] | Node, users_code: bool = True) -> dict[str, float]:
    """Returns the numeric settings that are arguments of the compiled step and not constants in it,
    by dotted name; without `users_code` none of a user's own optimizer or schedule.

    Args:
      config: settings, or nested mappings of JSON values.
      users_code: ask optimizers and schedules of users; False where no code of theirs is imported:
        none of their fields then counts.
    """
    tree = to_dict(config)
    groups = {name: value for name, value in tree.items() if isinstance(value, Mapping)}
    fields = {node: _fields(node, groups[node], users_code) for node in ("optimizer", "schedule")}
    fields[WEIGHTS] = list(groups.get(WEIGHTS, {}))
    fields["training"] = ["clip", "ema", "label_smoothing"]
    fields["training"] += ["steps"] if "steps" in fields["schedule"] else []
    settings = {
        f"{node}.{field}": groups[node].get(field) for node in fields for field in fields[node]
    }
    return {
        name: value
        for name, value in settings.items()
        if isinstance(value, (int, float))
        and not isinstance(value, bool)
        and name not in COMPILED
        and (value or not name.startswith(SWITCHES))
    }


def signature(config: Mapping[str, object] | Node, users_code: bool = True) -> str:
    """Returns as canonical JSON all that determines the compiled program and its data (no seed, no
    values of `numbers`); equal for trials that can be stacked. `users_code` as in `numbers`.
    """
    constants = plain(config)
    free = numbers(constants, users_code)
    for name in free:
        node, _, field = name.partition(".")
        del constants[node][field]
    del constants["seed"]
    return json.dumps([constants, sorted(free)], sort_keys=True)


def _fields(node: str, component: Mapping[str, object], users_code: bool) -> list[str]:
    """Returns the names of the fields of a config node ("optimizer" or "schedule", with the values
    `component`) that may be arguments of the step: all of a built-in one, of a user's own those in
    its `numbers`; raises `UserError` for a name that is no field.

    Raises:
      UserError: a user's own declares one that it does not have.
    """
    fields, name = [*component, "steps"], str(component["name"])
    if ":" not in name:
        return fields
    declared = (
        getattr(import_object(TABLES[node], Table).find(name), "numbers", ()) if users_code else ()
    )
    if lacking := [field for field in declared if field not in fields]:
        raise UserError(
            f"{node}={name}: numbers has {lacking[0]!r}; {nearest(lacking[0], fields[1:])}"
        )
    return list(declared)
