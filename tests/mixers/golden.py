"""Numbers of other people's implementations, to compare with: `python tests/mixers/golden.py` writes
golden.npz, in an environment with torch 2.13, transformers 5.23, performer-pytorch 1.1.4, linformer
0.2.3 and reformer-pytorch 1.4.4.

Needs these and NumPy, nothing of ours. All in float64 on a CPU; parameters stand under the names our
modules give them, kernels as [in,out].
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_name("golden.npz")
B, T, D, H = 2, 16, 6, 2
Arrays = dict[str, Any]


def cases(seed: int = 0) -> Iterator[tuple[str, Arrays]]:
    """Name and arrays: x, y, direction, grad of x in that direction, params/..."""
    import torch

    torch.manual_seed(seed)
    torch.set_default_dtype(torch.float64)
    yield "performer", performer(causal=False)
    yield "performer-causal", performer(causal=True)
    yield "linformer", linformer()
    yield "nystrom", nystrom()
    yield "longformer", longformer()
    yield "reformer", reformer()


def finished(x: Any, y: Any, params: Arrays) -> Arrays:
    """The arrays of a case, with the gradient."""
    import torch

    direction = torch.randn(y.shape)
    (y * direction).sum().backward()
    result = {"x": x, "y": y, "direction": direction, "grad": x.grad}
    result |= {f"params/{name}": array for name, array in params.items()}
    return {name: array.detach().numpy() for name, array in result.items()}


def projections(*names: str) -> dict[str, Any]:
    """Kernels [d,d] by the names our modules give them."""
    import torch

    return {f"{name}/kernel": torch.randn(D, D) / D**0.5 for name in names}


def heads(x: Any) -> Any:
    """[B,T,H*D] to [B,H,T,D]."""
    return x.unflatten(-1, (H, -1)).transpose(1, 2)


def performer(causal: bool) -> Arrays:
    """FAVOR+ with nothing added to the features: kernels and sums of performer-pytorch."""
    import torch
    from performer_pytorch import performer_pytorch as theirs

    x, params = torch.randn(B, T, D, requires_grad=True), projections("w_query", "w_key", "w_value")
    w = theirs.gaussian_orthogonal_random_matrix(5, D // H)
    q, k, v = (heads(x @ kernel) for kernel in params.values())
    q, k = (
        theirs.softmax_kernel(one, projection_matrix=w, is_query=is_query, eps=0)
        for one, is_query in ((q, True), (k, False))
    )
    summed = theirs.causal_linear_attention_noncuda if causal else theirs.linear_attention
    y = summed(q, k, v, **({"eps": 0} if causal else {})).transpose(1, 2).flatten(2)
    return finished(x, y, params | {"turns": w, "out/kernel": torch.eye(D)})


def linformer() -> Arrays:
    """LinformerSelfAttention of linformer, on texts shorter than its longest."""
    import torch
    from linformer import LinformerSelfAttention

    x, layer = torch.randn(B, T, D, requires_grad=True), LinformerSelfAttention(D, T + 3, 5, H)
    layer.to_out.bias.data.zero_()
    params = {
        "w_query/kernel": layer.to_q.weight.T,
        "w_key/kernel": layer.to_k.weight.T,
        "w_value/kernel": layer.to_v.weight.T,
        "out/kernel": layer.to_out.weight.T,
        "along_keys": layer.proj_k.T[None],
        "along_values": layer.proj_v.T[None],
    }
    return finished(x, layer(x), params)


def nystrom() -> Arrays:
    """NystromformerSelfAttention of transformers, each matrix with its own norm."""
    import torch
    from transformers import NystromformerConfig
    from transformers.models.nystromformer.modeling_nystromformer import NystromformerSelfAttention

    x = torch.randn(B, T, D, requires_grad=True)
    config = NystromformerConfig(
        hidden_size=D,
        num_attention_heads=H,
        segment_means_seq_len=T,
        num_landmarks=4,
        conv_kernel_size=5,
        attention_probs_dropout_prob=0.0,
    )
    layer = NystromformerSelfAttention(config)
    layer.init_option = "exact"
    params = without_biases(layer, ("query", "key", "value"))
    params |= {"near": layer.conv.weight[:, 0, :, 0], "out/kernel": torch.eye(D)}
    return finished(x, layer(x)[0], params)


def longformer() -> Arrays:
    """LongformerSelfAttention of transformers: window 4, token 0 global, padding in one text."""
    import torch
    from transformers import LongformerConfig
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    x = torch.randn(B, T, D, requires_grad=True)
    config = LongformerConfig(
        hidden_size=D, num_attention_heads=H, attention_window=[4], attention_probs_dropout_prob=0.0
    )
    layer = LongformerSelfAttention(config, 0)
    names = ("query", "key", "value", "query_global", "key_global", "value_global")
    params = without_biases(layer, names)
    mask = torch.zeros(B, T)
    mask[:, 0], mask[1, 12:] = 10000.0, -10000.0
    softmax = torch.nn.functional.softmax
    torch.nn.functional.softmax = lambda x, dim, dtype: softmax(x, dim)  # theirs is in float32
    y = layer(
        x,
        attention_mask=mask,
        is_index_masked=mask < 0,
        is_index_global_attn=mask > 0,
        is_global_attn=True,
    )[0]
    torch.nn.functional.softmax = softmax
    real = torch.arange(T)[None] < torch.tensor([[T], [12]])
    y = y * real[..., None]
    return finished(x, y, params | {"valid": real, "out/kernel": torch.eye(D)})


def without_biases(layer: Any, names: tuple[str, ...]) -> Arrays:
    """The kernels of the layers of these names, whose biases become 0."""
    for name in names:
        getattr(layer, name).bias.data.zero_()
    return {f"w_{name}/kernel": getattr(layer, name).weight.T for name in names}


def reformer() -> Arrays:
    """LSHAttention of reformer-pytorch: one head, two rounds, four buckets, chunks of four; it sees
    later tokens too.
    """
    import torch
    from reformer_pytorch import LSHAttention

    x, params = torch.randn(B, T, D, requires_grad=True), projections("w_query", "w_value")
    layer = LSHAttention(
        bucket_size=4, n_hashes=2, allow_duplicate_attention=False, attend_across_buckets=False
    )
    q, v = (x @ kernel for kernel in params.values())
    state, log = torch.get_rng_state(), torch.log
    torch.log = lambda x: log(x.round().clamp(min=1))  # of counts, to which they add 1e-9
    y = layer(q, v)[0]
    torch.log = log
    torch.set_rng_state(state)
    turns = torch.randn(1, D, 2, 2)  # the first thing that is drawn there
    return finished(x, y, params | {"turns": turns, "out/kernel": torch.eye(D)})


if __name__ == "__main__":
    np.savez_compressed(
        FILE,
        **{f"{case}/{name}": array for case, arrays in cases() for name, array in arrays.items()},
    )
