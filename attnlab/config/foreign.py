"""What other frameworks call a setting: torch, transformers, Keras, fairseq, nanoGPT and their like.

Suggestions look here before they compare spellings. A name stands beside the settings of ours that
it may mean, as patterns; those that a config has are suggested.
"""

import difflib
from collections.abc import Iterable

from attnlab.config.patterns import covers
from attnlab.config.tree import ConfigNode, flat

_MEANINGS = """
schedule.peak: lr learning_rate max_lr base_lr peak_lr
schedule.warmup: warmup warmup_steps warmup_iters warmup_updates num_warmup_steps warmup_ratio
schedule.floor: min_lr end_lr final_lr eta_min
optimizer.weight_decay: weight_decay wd l2 decay
optimizer.b1: beta1 beta_1 adam_beta1 betas
optimizer.b2: beta2 beta_2 adam_beta2 betas
training.steps: epochs num_epochs num_train_epochs max_epoch max_steps max_iters num_steps max_update
training.clip: grad_clip max_grad_norm clip_norm clip_grad_norm gradient_clip_val clipnorm
training.accumulate: gradient_accumulation_steps grad_accum accumulate_grad_batches update_freq
training.compute: dtype fp16 bf16 mixed_precision amp torch_dtype
training.log_every: log_interval logging_steps log_freq
training.evaluate_every: eval_interval eval_steps eval_every validate_interval validation_freq
checkpoint.every: save_steps save_interval save_every save_freq
batch.size: batch_size train_batch_size per_device_train_batch_size micro_batch_size max_tokens
batch.max_length: block_size context_length max_seq_len max_seq_length seq_len n_positions n_ctx
batch.max_length: max_position_embeddings max_length tokens_per_sample max_source_positions maxlen
vocabulary.size: vocab_size n_vocab num_embeddings num_words src_vocab_size tgt_vocab_size
system.width: d_model n_embd hidden_size embed_dim emb_dim embedding_dim hidden_dim dim units
system.hidden: d_ff dim_feedforward ffn_dim intermediate_size n_inner mlp_dim encoder_ffn_embed_dim
system.layers: n_layer n_layers num_layers num_hidden_layers depth encoder_layers layers
system.**.heads: n_head n_heads num_heads nhead num_attention_heads heads encoder_attention_heads
system.**.key_heads: n_kv_heads num_key_value_heads num_kv_heads kv_heads
system.**.head_width: head_dim d_head d_kv key_dim dim_head
system.dropout: dropout dropout_rate hidden_dropout_prob resid_pdrop
system.*attention.dropout: attention_dropout attn_pdrop attn_dropout attention_probs_dropout_prob
system.norm: pre_norm norm_first normalize_before
system.remat: gradient_checkpointing activation_checkpointing
decoding.beam: num_beams beam_size beam_width beams
decoding.max_extra: max_new_tokens max_len_b
parallel.devices: gpus num_gpus n_gpu world_size nproc_per_node
"""
NAMES: dict[str, list[str]] = {}
"""What others say to the settings that it may mean, as patterns."""
for row in _MEANINGS.split("\n")[1:-1]:
    setting, words = row.split(": ")
    for word in words.split():
        NAMES.setdefault(word, []).append(setting)


def settings_meant(name: str, settings: Iterable[str]) -> list[str]:
    """Returns the settings among these full names that another framework's word stands for, [] where it is
    no such word.

    >>> settings_meant("optimizer.lr", ["schedule.peak", "optimizer.b2"])
    ['schedule.peak']
    """
    patterns = NAMES.get(name.rpartition(".")[2].lower().replace("-", "_"), [])
    return [full for full in settings if any(covers(pattern, full) for pattern in patterns)]


def key_hint(root: ConfigNode, keys: list[str]) -> str:
    """Returns a hint for the message on an unknown key, whose dotted name has the parts `keys`:
    "did you mean" settings that another framework calls so, else of similar names; failing these,
    "choose from" the keys of the deepest existing node.
    """
    below = [f"{group}.{key}" for group, setting in root.settings.items() for key in setting.below]
    names = [*flat(root.values), *below]
    names += sorted({name[:dot] for name in names for dot, sign in enumerate(name) if sign == "."})
    names = [*dict.fromkeys(name for name in names if not ".".join(keys).startswith(f"{name}."))]
    close = settings_meant(".".join(keys), names)[:3]
    close = close or difflib.get_close_matches(".".join(keys), names, n=3, cutoff=0.75)
    if not close:
        ends = difflib.get_close_matches(
            keys[-1], {name.rpartition(".")[2] for name in names}, n=1, cutoff=0.75
        )
        close = [name for name in names if name.rpartition(".")[2] in ends][:3]
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    deepest = root
    for key in keys[:-1]:
        if (child := deepest.child(key)) is None:
            break
        deepest = child
    return "choose from: " + ", ".join(map(deepest.full_name, deepest.values))
