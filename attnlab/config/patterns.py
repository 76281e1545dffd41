"""Names of settings that a user writes: patterns, one override for all settings of a kind; and what
other frameworks call a setting, torch, transformers, Keras, fairseq, nanoGPT and their like.

In `system.*.dropout` the star stands for one part of a name, in `system.*attention` for any
characters within a part; `**` between dots stands for any number of parts, none included. The
first part has no star. What a pattern hits are settings of one kind: components of one table, or
values of one type.

Suggestions look at the names of other frameworks before they compare spellings. Such a name stands
beside the settings of ours that it may mean, as patterns; those that a config has are suggested.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence

from ml_collections import ConfigDict

from attnlab.config.annotations import kinds
from attnlab.config.tree import ConfigNode, flat
from attnlab.errors import UserError, few

_DOTTED = re.compile(r"[^\W\d]\w*(\.(?!\d)[\w*]+)*")


def is_pattern(name: str) -> bool:
    """Whether the name of a setting has a star, so that it stands for several."""
    return "*" in name


def covers(pattern: str, name: str) -> bool:
    """Returns whether a dotted pattern ("*" within a part of the name, "**" for any number of
    parts), or a full name, stands for the setting of the full name `name`.

    >>> covers("system.**.dropout", "system.dropout"), covers("system.*.dropout", "system.dropout")
    (True, False)
    """
    parts = (
        r"(?:[^.]+\.)*" if part == "**" else re.sub(r"(\\\*)+", "[^.]*", re.escape(part)) + r"\."
        for part in re.sub(r"(\*\*\.)+", "**.", pattern).split(".")
    )
    return re.fullmatch("".join(parts), f"{name}.") is not None


def is_dotted_name(name: object) -> bool:
    """Returns whether something is the dotted name of a setting, or a pattern of such names: its
    first part has no star.
    """
    return isinstance(name, str) and _DOTTED.fullmatch(name) is not None


def hits(root: ConfigNode, pattern: str, components: bool = False) -> list[str]:
    """Returns the full names of the settings of a config that a pattern stands for, or, if
    `components`, [] where these are not components of one table; then raises `UserError` if its
    first part has a star, or if it stands for none or for settings of several kinds.

    Raises:
      UserError: its first part has a star, it stands for none (with near names), or for settings
        of two kinds.
    """
    by_kind: dict[tuple[str, bool], list[str]] = {}
    settings = list(_settings(root))
    for name, kind, is_component in settings:
        if covers(pattern.removesuffix(".name"), name):
            by_kind.setdefault((kind, is_component), []).append(name)
    if components and [is_component for _, is_component in by_kind] != [True]:
        return []
    if is_pattern(pattern.partition(".")[0]):
        raise UserError(
            f"config.{pattern}: the first part has a star; begin with a group, system.**.dropout"
        )
    if not by_kind:
        near = _near(pattern, [name for name, *_ in settings])
        raise UserError(f"config.{pattern} stands for no setting; {near}")
    if len(by_kind) > 1:
        named = [f"{few(names)} ({kind})" for (kind, _), names in by_kind.items()]
        raise UserError(
            f"config.{pattern} stands for settings of {len(by_kind)} kinds: {' and '.join(named[:2])}"
            f"{' and others' if len(named) > 2 else ''}; name those of one kind"
        )
    return next(iter(by_kind.values()))


def _settings(node: ConfigNode) -> Iterator[tuple[str, str, bool]]:
    """Yields (full dotted name, kind, whether it selects a component) of each setting at a config
    node and below; the kind is that of the component's table, or the allowed types in words; groups
    and absent components are left out.
    """
    for key in dict.fromkeys([*node.values, *node.settings]):
        value, child = node.values.get(key), node.child(key)
        if key in node.tables:
            if value is not None:
                yield node.full_name(key), node.tables[key].kind, True
        elif not isinstance(value, ConfigDict) and not (key == "name" and node.component):
            allowed = kinds(node.hint(key)) - {type(None)} or {type(value)}
            words = sorted(getattr(kind, "__name__", str(kind)) for kind in allowed)
            yield node.full_name(key), " or ".join(words), False
        if child is not None:
            yield from _settings(child)


def _near(pattern: str, names: Sequence[str]) -> str:
    """Returns the end of an error message: the full names whose last part contains or resembles
    that of the pattern, and a wider pattern for them, or that 'show' prints all names.
    """
    last = pattern.rpartition(".")[2].strip("*")
    ends = {name.rpartition(".")[2] for name in names}
    near = {end for end in ends if last and last in end}
    near |= set(difflib.get_close_matches(last, ends))
    choices = [name for name in names if name.rpartition(".")[2] in near]
    group = pattern.partition(".")[0]
    choices = [name for name in choices if name.partition(".")[0] == group] or choices
    if not choices:
        return "'show' prints all names"
    wider = f"{pattern.partition('*')[0]}**.*{last}"
    advice = f"; write {wider} for those" if all(covers(wider, name) for name in choices) else ""
    return f"there are {few(choices)}{advice}"


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
FOREIGN_NAMES: dict[str, list[str]] = {}
"""What others say to the settings that it may mean, as patterns."""
for row in _MEANINGS.split("\n")[1:-1]:
    setting, words = row.split(": ")
    for word in words.split():
        FOREIGN_NAMES.setdefault(word, []).append(setting)


def settings_meant(name: str, settings: Iterable[str]) -> list[str]:
    """Returns the settings among these full names that another framework's word stands for, [] where it is
    no such word.

    >>> settings_meant("optimizer.lr", ["schedule.peak", "optimizer.b2"])
    ['schedule.peak']
    """
    patterns = FOREIGN_NAMES.get(name.rpartition(".")[2].lower().replace("-", "_"), [])
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
