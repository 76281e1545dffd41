"""Golden numbers of the encoder-decoders of `transformers`, as `golden.py` has them of its language
models; it runs in the same way:

    python -m tests.weights.golden_pairs write [NAME ...]     golden/pairs/NAME.json and NAME.npz anew
    python -m tests.weights.golden_pairs check FOLDER         does transformers load each FOLDER/NAME whole, and compute the same?

NAME.npz has source [2,11], the last four of row 1 padding, target_in [2,9], target [2,9], logits
[2,9,V], loss (their mean cross-entropy), greedy [90] for row 0 of the source, of the
tokens not yet written (tied models repeat one for ever), grad_norm and grad_along as in `golden.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from tests.weights import golden_files, rule

torch.set_num_threads(1)
GOLDEN = Path(__file__).parent / "golden" / "pairs"
UNTIED = "t5_untied"  # whose head is a matrix of its own
T5: dict[str, Any] = {
    "vocab_size": 97,
    "d_model": 28,
    "d_kv": 6,
    "d_ff": 51,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 5,
    "relative_attention_num_buckets": 10,
    "relative_attention_max_distance": 17,
    "decoder_start_token_id": 0,
}
BART: dict[str, Any] = {
    "vocab_size": 101,
    "d_model": 28,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_ffn_dim": 51,
    "decoder_ffn_dim": 51,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 7,
    "max_position_embeddings": 128,
}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "t5": ("T5", T5),
    "t5_gated": (
        "T5",
        {
            **T5,
            "num_layers": 2,  # of three, unscaled scores of such matrices take float32 5e-5 off float64
            "num_decoder_layers": None,
            "feed_forward_proj": "gated-gelu",
            "tie_word_embeddings": False,
            "layer_norm_epsilon": 1e-3,
        },
    ),
    UNTIED: ("T5", {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "bart": ("Bart", BART),
    "bart_scaled": (
        "Bart",
        {**BART, "decoder_layers": 2, "scale_embedding": True, "activation_function": "gelu_new"},
    ),
}


def built(name: str) -> Any:
    """The model of a name, float32, its own attention, no dropout; every tensor by the rule."""
    family, settings = CONFIGS[name]
    config = getattr(transformers, f"{family}Config")(**settings)
    kind = getattr(transformers, f"{family}ForConditionalGeneration")
    model = kind._from_config(config, attn_implementation="eager").float().eval()
    if name == UNTIED:
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    tensors, files = [*model.named_parameters(), *model.named_buffers()], kept(model)
    golden_files.drawn((key, tensor) for key, tensor in tensors if key in files)
    return model


def kept(model: Any) -> dict[str, list[int]]:
    """Name and shape of the tensors of a file."""
    parameters = [key for key, _ in model.named_parameters()]
    buffers = [key for key, _ in model.named_buffers() if key == "final_logits_bias"]
    state = model.state_dict()
    return {key: list(state[key].shape) for key in [*buffers, *parameters]}


def batch(config: Any) -> dict[str, np.ndarray]:
    """Ids that both sides read."""
    ids = rule.tokens(config.vocab_size - 3, 2, 20) + 3  # none is special
    source, target = ids[:, :11].copy(), ids[:, 11:].copy()
    source[1, 7:] = config.pad_token_id
    target[:, -1] = config.eos_token_id
    start = np.full((2, 1), config.decoder_start_token_id, np.int32)
    target_in = np.concatenate([start, target[:, :-1]], axis=1)
    return {"source": source, "target_in": target_in, "target": target}


def computed(model: Any) -> dict[str, np.ndarray]:
    """The numbers of NAME.npz."""
    arrays = batch(model.config)
    source, target_in, target = (torch.from_numpy(one).long() for one in arrays.values())
    how = {"attention_mask": (source != model.config.pad_token_id).long(), "use_cache": False}
    model.zero_grad()
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
        **golden_files.slopes(model.named_parameters()),
    }


def write(name: str) -> None:
    """NAME.json and NAME.npz."""
    model = built(name)
    numbers = computed(model)
    shapes = kept(model)
    golden_files.store(GOLDEN, name, golden_files.config_of(model), shapes, numbers)


def check(folder: Path) -> bool:
    """Does transformers load a folder whole, and compute from it what it computed before?"""
    name = folder.name
    kind = getattr(transformers, f"{CONFIGS[name][0]}ForConditionalGeneration")
    model, left = golden_files.loaded(kind, folder)
    return golden_files.same(name, left, computed(model), computed(built(name)))


if __name__ == "__main__":
    golden_files.main(CONFIGS, write, check)
