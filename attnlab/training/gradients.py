"""Which parameters get no gradient, from the traced program of the gradient: nothing is compiled or
computed.

A gradient that JAX knows to be zero is made of a literal 0 in its program: of a parameter that the
loss does not use, or that it reaches only through `stop_gradient`, a rounding or a choice. The walk
follows such zeros through the program, into loops and branches. It does not detect gradients that
are zero only for some data (a ReLU that is never open) or by algebra (a constant added before a
softmax).
"""

import operator
from collections.abc import Callable, Sequence

import jax
import jax.extend.core as jex
import numpy as np

from attnlab.training.trained import Params, Tree, leaves_by_path

_LINEAR = (
    "add sub add_any neg abs sign max min copy copy_p convert_element_type reduce_precision"
    " broadcast_in_dim reshape transpose squeeze expand_dims rev concatenate pad slice split cumsum"
    " reduce_sum reduce_max reduce_min psum stop_gradient sharding_constraint"
)
_EVERY = frozenset(_LINEAR.split())  # zero where all that is read is
_ANY = ("mul", "dot_general", "conv_general_dilated")  # where one factor is
_READ = {  # where these operands are; the others say where, or by how much
    **dict.fromkeys(("div", "dynamic_slice", "gather"), (0,)),
    "dynamic_update_slice": (0, 1),
    **dict.fromkeys(("scatter-add", "scatter_add", "scatter"), (0, 2)),
}


def idle_paths(loss: Callable[..., jax.Array], params: Params, *arguments: Tree) -> tuple[str, ...]:
    """Returns the paths ("encoder/kernel") of the parameters whose gradient of `loss(params,
    *arguments)` is zero whatever their values are.

    Args:
      loss: a number.
      params, arguments: arrays, or their shapes.
    """
    program = jax.make_jaxpr(jax.grad(loss))(params, *arguments)
    zero = _find_zero_results(program, [False] * len(program.in_avals))
    paths = leaves_by_path(params)
    return tuple(path for path, none in zip(paths, zero, strict=True) if none)


def _find_zero_results(program: jex.Jaxpr | jex.ClosedJaxpr, inputs: Sequence[bool]) -> list[bool]:
    """Returns a bool for each result of a program (a jaxpr, closed over constants or not), True if
    it is certainly zero, given the same bools for its `inputs`.
    """
    inner = program.jaxpr if isinstance(program, jex.ClosedJaxpr) else program
    consts = program.consts if isinstance(program, jex.ClosedJaxpr) else ()
    zero = dict(zip(inner.invars, inputs, strict=True))
    zero.update(
        zip(inner.constvars, map(_is_zero, consts), strict=False)
    )  # some programs have none with them

    def read(atom: jex.Var | jex.Literal) -> bool:
        return _is_zero(atom.val) if isinstance(atom, jex.Literal) else zero.get(atom, False)

    for equation in inner.eqns:
        outputs = _find_zero_outputs(equation, list(map(read, equation.invars)))
        zero.update(zip(equation.outvars, outputs, strict=True))
    return list(map(read, inner.outvars))


def _find_zero_outputs(equation: jex.JaxprEqn, inputs: list[bool]) -> list[bool]:
    """Returns a bool for each output of an equation, True if its primitive makes it certainly zero,
    False if that is unknown, given the same bools for its `inputs`.
    """
    name, params, several = equation.primitive.name, equation.params, len(equation.outvars)
    if name in _EVERY:
        return [all(inputs)] * several
    if name in _ANY:
        return [any(inputs)] * several
    if name in _READ:
        return [all(inputs[place] for place in _READ[name])] * several
    if name == "select_n":
        return [all(inputs[1:])]
    if name == "optimization_barrier":
        return inputs
    if name == "scan":
        return _find_zeros_of_scan(equation, inputs)
    if name == "while":
        consts, body = inputs[params["cond_nconsts"] :], params["body_nconsts"]
        return _fixed_point(
            lambda carry: _find_zero_results(params["body_jaxpr"], [*consts[:body], *carry]),
            consts[body:],
        )
    if name == "cond":
        return [
            all(branch_zeros)
            for branch_zeros in zip(
                *(_find_zero_results(branch, inputs[1:]) for branch in params["branches"]),
                strict=True,
            )
        ]
    inner = next(
        (params[key] for key in ("jaxpr", "call_jaxpr") if key in params), None
    )  # jit, remat, custom derivatives
    if inner is None or len(getattr(inner, "jaxpr", inner).invars) != len(inputs):
        return [False] * several
    return _find_zero_results(inner, inputs)


def _find_zeros_of_scan(equation: jex.JaxprEqn, inputs: list[bool]) -> list[bool]:
    """Returns a bool for each output of a scan, True if it is certainly zero, given the same bools
    for its `inputs`. Versions of JAX differ in how they say what is carried, but what goes from row
    to row always has one axis more outside of the body than in it.
    """
    program = equation.params["jaxpr"]
    inner = getattr(program, "jaxpr", program)
    outside, inside, results, of_row = (
        [len(getattr(var.aval, "shape", ())) for var in variables]
        for variables in (equation.invars, inner.invars, equation.outvars, inner.outvars)
    )
    rows = sum(map(operator.gt, outside, inside))
    carried = sum(map(operator.eq, results, of_row))
    consts = len(inputs) - rows - carried

    def body(carry: list[bool]) -> list[bool]:
        return _find_zero_results(program, [*inputs[:consts], *carry, *inputs[consts + carried :]])

    carry = _fixed_point(lambda carry: body(carry)[:carried], inputs[consts : consts + carried])
    return [*carry, *body(carry)[carried:]]


def _fixed_point(body: Callable[[list[bool]], list[bool]], carry: list[bool]) -> list[bool]:
    """Returns a bool for each array of a loop's carry, True if it is zero before every pass, given
    the bools before the first pass (`carry`) and `body`, which computes them after a pass from
    those before it; repeats until nothing changes.
    """
    while True:
        remaining = [zero and stays for zero, stays in zip(carry, body(carry), strict=True)]
        if remaining == carry:
            return carry
        carry = remaining


def _is_zero(value: float | np.ndarray | jax.Array) -> bool:
    """Whether a constant is zero; what is no number (a key of random numbers) is not."""
    numbers = isinstance(value, bool | int | float) or any(
        jax.numpy.issubdtype(value.dtype, kind) for kind in (np.number, np.bool_)
    )
    return numbers and not np.any(np.asarray(value))
