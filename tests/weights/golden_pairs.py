"""Golden numbers of the encoder-decoders of `transformers`, as `golden.py` has them of its language
models; it runs in the same way:

    python -m tests.weights.golden_pairs write [NAME ...]     golden/pairs/NAME.json and NAME.npz anew
    python -m tests.weights.golden_pairs check FOLDER         does transformers load each FOLDER/NAME whole, and compute the same?

NAME.npz has source [2,11], the last four of row 1 padding, target_in [2,9], target [2,9], logits
[2,9,V], loss (their mean cross-entropy), greedy [90] for row 0 of the source, of the
tokens not yet written (tied models repeat one for ever), grad_norm and grad_along as in `golden.py`.
"""

from typing import Any

import numpy as np
import torch

from tests.weights import golden_files, rule


def built(golden: dict[str, Any]) -> Any:
    """The model of a NAME.json; where that has a head, it is a matrix of its own, although
    transformers 5 ties that of every T5.
    """
    model = golden_files.built(golden)
    if "lm_head.weight" in golden["shapes"]:
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    return model


def tensors(model: Any) -> dict[str, Any]:
    """The tensors of a file."""
    buffers = {key: array for key, array in model.named_buffers() if key == "final_logits_bias"}
    return {**buffers, **dict(model.named_parameters())}


def batch(config: dict[str, Any]) -> dict[str, np.ndarray]:
    """Ids that both sides read."""
    ids = rule.tokens(config["vocab_size"] - 3, 2, 20) + 3  # none is special
    source, target = ids[:, :11].copy(), ids[:, 11:].copy()
    source[1, 7:] = config["pad_token_id"]
    target[:, -1] = config["eos_token_id"]
    start = np.full((2, 1), config["decoder_start_token_id"], np.int32)
    target_in = np.concatenate([start, target[:, :-1]], axis=1)
    return {"source": source, "target_in": target_in, "target": target}


def computed(model: Any, config: dict[str, Any]) -> dict[str, np.ndarray]:
    """The numbers of NAME.npz, without those of gradients."""
    arrays = batch(config)
    source, target_in, target = (torch.from_numpy(one).long() for one in arrays.values())
    how = {"attention_mask": (source != config["pad_token_id"]).long(), "use_cache": False}
    logits = model(input_ids=source, decoder_input_ids=target_in, **how).logits
    loss = torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), target.reshape(-1)
    )
    loss.backward()
    chosen, written = [], target_in[:1, :1]
    with torch.no_grad():
        for _ in range(90):
            last = model(input_ids=source[:1], decoder_input_ids=written, use_cache=False)
            scores = last.logits[0, -1].clone()
            scores[chosen] = -torch.inf
            chosen.append(int(scores.argmax()))
            written = torch.cat([written, torch.tensor([[chosen[-1]]])], dim=1)
    return {
        **arrays,
        "logits": logits.detach().numpy(),
        "loss": np.float64(loss.item()),
        "greedy": np.array(chosen, np.int32),
    }


if __name__ == "__main__":
    golden_files.main("pairs", computed, tensors, built)
