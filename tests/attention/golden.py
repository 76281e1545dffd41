"""Numbers of torch's own attention, to compare with: `python tests/attention/golden.py`, in an
environment with torch, writes golden.npz.

Needs torch and NumPy, nothing of ours. `cases` is also what `test_parity.py` calls where torch is
at hand. All in float64, made by torch 2.13 on CPU; parameters stand under the names our modules
give them, kernels as [in,out].
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_name("golden.npz")
B, TQ, TK, D = 2, 4, 6, 3
Arrays = dict[str, Any]


def cases(seed: int = 0) -> Iterator[tuple[str, Arrays]]:
    """Name and arrays: query, source, valid, causal, heads, key_heads, params/..., context, weights
    (or none), direction, grads/...
    """
    rng = np.random.default_rng(seed)
    for causal in (False, True):
        for bias in (False, True):
            yield f"MultiheadAttention-causal={causal}-bias={bias}", multihead(rng, causal, bias)
        for key_heads in (1, 2, 6):
            yield (
                f"scaled_dot_product_attention-causal={causal}-key_heads={key_heads}",
                grouped(rng, causal, key_heads),
            )


def drawn(
    rng: np.random.Generator, width: int, causal: bool, heads: int, key_heads: int
) -> tuple[Arrays, Any]:
    """What every case starts from, and its mask for torch, [B,1,TQ,TK] with True where a query may
    see; TQ = TK where it is causal.
    """
    import torch

    keys = TQ if causal else TK
    valid = np.arange(keys)[None] < np.array([[keys], [keys - 2]])
    allowed = np.broadcast_to(valid[:, None, None], (B, 1, TQ, keys))
    allowed = allowed & np.tri(TQ, keys, dtype=bool) if causal else allowed
    arrays = {
        "query": rng.normal(size=(B, TQ, heads * D)),
        "source": rng.normal(size=(B, keys, width)),
        "valid": valid,
        "causal": causal,
        "heads": heads,
        "key_heads": key_heads,
        "direction": rng.normal(size=(B, TQ, heads * D)),
    }
    return arrays, torch.tensor(allowed)


def multihead(rng: np.random.Generator, causal: bool, bias: bool) -> Arrays:
    """torch.nn.MultiheadAttention with the mask and the padding as its two arguments."""
    import torch

    arrays, allowed = drawn(rng, 3 * D, causal, 3, 3)
    layer = torch.nn.MultiheadAttention(3 * D, 3, bias=bias, batch_first=True, dtype=torch.float64)
    for parameter in layer.parameters():
        parameter.data = torch.tensor(rng.normal(size=tuple(parameter.shape)) / np.sqrt(3 * D))
    query, source = (torch.tensor(arrays[side], requires_grad=True) for side in ("query", "source"))
    future = ~torch.ones(TQ, source.shape[1], dtype=torch.bool).tril() if causal else None
    padding = ~torch.tensor(arrays["valid"])
    context, weights = layer(
        query,
        source,
        source,
        key_padding_mask=padding,
        attn_mask=future,
        average_attn_weights=False,
    )
    (context * torch.tensor(arrays["direction"])).sum().backward()
    for number, part in enumerate(("w_query", "w_key", "w_value", "out")):
        rows = slice(number * 3 * D, (number + 1) * 3 * D)
        kernel = layer.out_proj.weight if part == "out" else layer.in_proj_weight
        arrays[f"params/{part}/kernel"] = (
            (kernel if part == "out" else kernel[rows]).detach().numpy().T
        )
        if bias:
            vector = layer.out_proj.bias if part == "out" else layer.in_proj_bias[rows]
            arrays[f"params/{part}/bias"] = vector.detach().numpy()
    assert allowed.any(-1).all()  # torch gives NaN where a query sees nothing
    result = {"context": context, "weights": weights}
    result |= {"grads/query": query.grad, "grads/source": source.grad}
    return arrays | {name: value.detach().numpy() for name, value in result.items()}


def grouped(rng: np.random.Generator, causal: bool, key_heads: int) -> Arrays:
    """scaled_dot_product_attention with six heads and fewer of keys and values; only the values
    have a projection.
    """
    import torch

    arrays, allowed = drawn(rng, key_heads * D, causal, 6, key_heads)
    kernel = rng.normal(size=(key_heads * D, key_heads * D)) / np.sqrt(key_heads * D)
    query, source = (torch.tensor(arrays[side], requires_grad=True) for side in ("query", "source"))
    sides = (query, source, source @ torch.tensor(kernel))
    q, k, v = (x.unflatten(-1, (-1, D)).transpose(1, 2) for x in sides)
    context = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=allowed, enable_gqa=key_heads < 6
    )
    context = context.transpose(1, 2).flatten(2)
    (context * torch.tensor(arrays["direction"])).sum().backward()
    kernels = {
        "w_query": np.eye(6 * D),
        "w_key": np.eye(key_heads * D),
        "w_value": kernel,
        "out": np.eye(6 * D),
    }
    arrays |= {f"params/{part}/kernel": array for part, array in kernels.items()}
    result = {"context": context, "grads/query": query.grad, "grads/source": source.grad}
    return arrays | {name: value.detach().numpy() for name, value in result.items()}


if __name__ == "__main__":
    np.savez_compressed(
        FILE,
        **{f"{case}/{name}": array for case, arrays in cases() for name, array in arrays.items()},
    )
