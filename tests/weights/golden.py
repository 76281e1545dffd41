"""Golden numbers of `transformers`: what its models compute from tiny configs and from parameters
that both sides draw by `rule.py`.

It runs where torch and transformers are installed, without attnlab:

    python -m tests.weights.golden write [NAME ...]      golden/NAME.json and golden/NAME.npz anew
    python -m tests.weights.golden check FOLDER          does transformers load each folder FOLDER/NAME that attnlab has written from
                                                         the golden model NAME, whole, and compute the same logits to the last bit?

NAME.json has the config as `transformers` saves it, and name and shape of every tensor of the file; NAME.npz
    ids [2,13], logits [2,13,V], loss (mean over 2 x 12 next tokens), greedy [100] after ids[0,:5],
    grad_norm [P] and grad_along [P]: |g| and g . u of the gradient of each tensor in the order of NAME.json, u from `rule.uniform`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from tests.weights import golden_files, rule

torch.set_num_threads(1)
GOLDEN = Path(__file__).parent / "golden"
SPECIAL = {"pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2}

LLAMA: dict[str, Any] = {
    "vocab_size": 101,
    "hidden_size": 36,
    "intermediate_size": 55,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    **SPECIAL,
}


def theta(base: float, **scaling: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": base, "rope_type": "default", **scaling}}


GPT2: dict[str, Any] = {
    "vocab_size": 97,
    "n_positions": 128,
    "n_embd": 28,
    "n_layer": 3,
    "n_head": 4,
    "n_inner": 51,
    **SPECIAL,
}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2", GPT2),
    "gpt2_untied": (
        "GPT2",
        {
            **GPT2,
            "n_inner": None,
            "layer_norm_epsilon": 1e-3,
            "activation_function": "relu",
            "tie_word_embeddings": False,
        },
    ),
    "llama": ("Llama", {**LLAMA, **theta(500000.0)}),
    "llama_biased": (
        "Llama",
        {
            **LLAMA,
            "attention_bias": True,
            "mlp_bias": True,
            "head_dim": 10,
            "num_key_value_heads": 6,
            "tie_word_embeddings": True,
            "rms_norm_eps": 1e-3,
        },
    ),
    "llama_scaled": (
        "Llama",
        {
            **LLAMA,
            **theta(
                10000.0,
                rope_type="llama3",
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=32,
            ),
        },
    ),
    "llama_linear": ("Llama", {**LLAMA, **theta(10000.0, rope_type="linear", factor=3.0)}),
    "llama_yarn": (
        "Llama",
        {
            **LLAMA,
            "head_dim": 16,
            **theta(10000.0, rope_type="yarn", factor=4.0, original_max_position_embeddings=64),
        },
    ),
    "starcoder2": (
        "Starcoder2",
        {
            "vocab_size": 97,
            "hidden_size": 36,
            "intermediate_size": 51,
            "num_hidden_layers": 3,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "max_position_embeddings": 128,
            "sliding_window": 7,
            "norm_epsilon": 1e-4,
            **SPECIAL,
        },
    ),
    "mistral": ("Mistral", {**LLAMA, "head_dim": 8, "sliding_window": 5}),
    "qwen2": (
        "Qwen2",
        {
            **LLAMA,
            "tie_word_embeddings": True,
            "use_sliding_window": True,
            "sliding_window": 6,
            "max_window_layers": 1,
        },
    ),
    "qwen3": ("Qwen3", {**LLAMA, "head_dim": 10}),
    "gemma": ("Gemma", {**LLAMA, "head_dim": 8, "tie_word_embeddings": True}),
    "gemma2": (
        "Gemma2",
        {
            **LLAMA,
            "head_dim": 8,
            "sliding_window": 4,
            "query_pre_attn_scalar": 20,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 6.0,
        },
    ),
    "gemma3": (
        "Gemma3",
        {
            **LLAMA,
            "head_dim": 8,
            "num_hidden_layers": 4,
            "layer_types": [
                "sliding_attention",
                "sliding_attention",
                "full_attention",
                "sliding_attention",
            ],
            "rope_parameters": {
                "sliding_attention": {"rope_theta": 100.0, "rope_type": "default"},
                "full_attention": {"rope_theta": 1000.0, "rope_type": "linear", "factor": 2.0},
            },
            "sliding_window": 4,
            "query_pre_attn_scalar": 20,
        },
    ),
}


def built(name: str) -> Any:
    """The model of a name, float32, its own attention, no dropout; every tensor by the rule."""
    family, settings = CONFIGS[name]
    text = "Text" if family == "Gemma3" else ""
    config = getattr(transformers, f"{family}{text}Config")(**settings)
    kind = getattr(
        transformers,
        f"{family}{'LMHead' * (family == 'GPT2')}Model"
        if family == "GPT2"
        else f"{family}ForCausalLM",
    )
    model = kind._from_config(config, attn_implementation="eager").float().eval()
    golden_files.drawn(model.named_parameters())
    return model


def computed(model: Any) -> dict[str, np.ndarray]:
    """The numbers of NAME.npz."""
    ids = rule.tokens(model.config.vocab_size, 2, 13)
    batch = torch.from_numpy(ids).long()
    model.zero_grad()
    logits = model(batch).logits
    loss = torch.nn.functional.cross_entropy(
        logits[:, :-1].reshape(-1, logits.shape[-1]), batch[:, 1:].reshape(-1)
    )
    loss.backward()
    chosen, prompt = [], batch[:1, :5]
    with torch.no_grad():
        for _ in range(100):
            last = model(prompt, use_cache=False).logits[0, -1]
            chosen.append(int(last.argmax()))
            prompt = torch.cat([prompt, last.argmax()[None, None]], dim=1)
    return {
        "ids": ids,
        "logits": logits.detach().numpy(),
        "loss": np.float64(loss.item()),
        "greedy": np.array(chosen, np.int32),
        **golden_files.slopes(model.named_parameters()),
    }


def write(name: str) -> None:
    """NAME.json and NAME.npz."""
    model = built(name)
    numbers = computed(model)
    shapes = {key: list(tensor.shape) for key, tensor in model.named_parameters()}
    golden_files.store(GOLDEN, name, golden_files.config_of(model), shapes, numbers)


def check(folder: Path) -> bool:
    """Does transformers load a folder whole, and compute from it what it computed before?"""
    name = folder.name
    kind = transformers.AutoModelForCausalLM
    model, left = golden_files.loaded(kind, folder)
    return golden_files.same(name, left, computed(model), computed(built(name)))


if __name__ == "__main__":
    golden_files.main(CONFIGS, write, check)
