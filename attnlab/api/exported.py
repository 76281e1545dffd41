"""A run taken away: its parameters by our names, or the adapter of LoRA as `peft` has it."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors.numpy import save
from scipy.linalg import block_diag

from attnlab import config as configs
from attnlab import weights
from attnlab.api.pretrained import check_export, model_config
from attnlab.api.trained import Run
from attnlab.errors import UserError, few
from attnlab.records.files import write_atomic
from attnlab.training.trained import LORA
from attnlab.training.updates import Updates
from attnlab.weights import folder as folders
from attnlab.weights.names import Name, Names, flat, nested

TASKS = {
    **dict.fromkeys(("LMHeadModel", "ForCausalLM"), "CAUSAL_LM"),
    **{"ForSequenceClassification": "SEQ_CLS", "ForTokenClassification": "TOKEN_CLS"},
    "ForConditionalGeneration": "SEQ_2_SEQ_LM",
}
"""Ends of architectures, and the tasks of `peft`."""


def save_parameters(run: Run, folder: Path, kind: str) -> list[Path]:
    """Writes the parameters of a run, by their paths in attnlab, into params.safetensors (config
    and step as metadata) or params.npz, by `kind`, in a new folder; returns the file in a list;
    raises `UserError` for a folder that is not empty, an ensemble or rounded weights.

    Raises:
      UserError: a folder that is not empty, an ensemble, rounded weights.
    """
    check_export(run, folder)
    arrays, file = flat(jax.device_get(run.params)), folder / f"params.{kind}"
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "npz":
        np.savez(file, **arrays)
    else:
        config = json.dumps(configs.to_dict(run.config))
        write_atomic(file, save(arrays, {"step": str(run.step), "config": config}))
    return [file]


def save_adapter(run: Run, folder: Path) -> list[Path]:
    """Writes the LoRA matrices of a run, and parameters trained beside them, into a new folder as
    an adapter that `peft` loads onto the `transformers` folder that the run began with; returns the
    two files.

    Products on several parameters of one tensor (GPT-2's queries and values) become one whose rank
    is the sum: its B has zeros where another's columns are.

    Raises:
      UserError: as `save_parameters`; a run without LoRA or such a folder, a product on what is no
        linear layer, or frozen parameters that are not those of the folder.
    """
    check_export(run, folder)
    lora, base = run.config.lora, run.config.pretrained.path
    if not lora.rank or base is None or run.config.pretrained.run:
        lacks = "such a folder" if lora.rank else "lora.rank"
        needs = f"lora.rank and a pretrained.folder of transformers, {run.workdir}"
        raise UserError(f"--to=peft needs {needs} was trained without {lacks}; take another --to")
    architecture, updates = model_config(run), Updates.for_reading(run.config)
    names = weights.names_of(weights.kind_of(architecture, "the config"))
    parts = flat(jax.device_get(updates.best_parts(run.task, run.workdir)[0]))
    learned = flat(updates.trained.split(nested(parts))[0]).keys()
    params = {path: leaf for path, leaf in parts.items() if not path.startswith(f"{LORA}/")}
    lines = list(names.lines({path: leaf.shape for path, leaf in params.items()}))
    tensors, ranks, beside = dict[str, np.ndarray](), dict[str, int](), set[str]()
    for line in lines:
        module = line.tensor.rpartition(".")[0]
        if product := _product(line, parts):
            tensors |= dict(zip((f"{module}.lora_{x}.weight" for x in "AB"), product, strict=True))
            ranks[module] = len(product[0])
        elif learned & {*line.paths}:
            beside.add(module)
    if both := [name for name in ranks for module in beside if f"{name}.".startswith(f"{module}.")]:
        raise UserError(f"--to=peft: {both[0]} has a product and is in lora.also; it may have one")
    whole = names.write(params, np.float32)
    also = {name for name in whole for module in beside if name.startswith(f"{module}.")}
    _check_base(base, names, {name: whole[name] for name in whole.keys() - also})
    kind = re.sub("^.*?(?=LMHead|For)", "", architecture.get("architectures", [""])[0])
    config = {
        "peft_type": "LORA",
        "task_type": TASKS.get(kind),
        "base_model_name_or_path": str(base),
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "rank_pattern": ranks,
        "alpha_pattern": {name: lora.alpha / lora.rank * rank for name, rank in ranks.items()},
        "lora_dropout": lora.dropout,
        "target_modules": list(ranks),
        "modules_to_save": sorted(beside) or None,
        "fan_in_fan_out": any(line.tensor[:-7] in ranks and not line.transposed for line in lines),
        "inference_mode": True,
    }
    tensors |= {name: whole[name] for name in sorted(also)}
    content = {f"base_model.model.{k}": np.ascontiguousarray(x) for k, x in tensors.items()}
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "adapter_model.safetensors", save(content, {"format": "pt"}))
    write_atomic(folder / folders.ADAPTER, json.dumps(config, indent=2) + "\n")
    return [folder / "adapter_model.safetensors", folder / folders.ADAPTER]


def _product(line: Name, parts: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns the LoRA matrices A [rank,in] and B [out,rank], joined as `peft` has them, on those
    parameters in `parts` (arrays by path) that the tensor of `line` holds, or None if there are
    none; raises `UserError` for a parameter that is no kernel.
    """
    adapted = [path for path in line.paths if f"{LORA}/{path}/a" in parts]
    if wrong := [path for path in adapted if not path.endswith("/kernel")]:
        raise UserError(f"--to=peft: {wrong[0]} is no matrix of a linear layer; see lora.on")
    if not adapted:
        return None
    blocks = [
        parts.get(f"{LORA}/{path}/b", np.zeros((0, parts[path].shape[-1]), np.float32))
        for path in line.paths
    ]
    return np.concatenate([parts[f"{LORA}/{p}/a"].T for p in adapted]), block_diag(*blocks).T


def _check_base(base: Path, names: Names, frozen: Mapping[str, np.ndarray]) -> None:
    """Raises `UserError` unless the `transformers` folder `base` has each tensor of `frozen` (array
    by tensor name, see `names`) with equal values up to rounding.
    """
    left = dict(frozen)
    for name, tensor in folders.tensors(folders.files(base)):
        whole_name = names.newer(name)
        whole_name = whole_name if whole_name in left else names.prefix + whole_name
        of_run = left.get(whole_name, np.empty(0))
        if of_run.shape == tensor.shape and np.allclose(of_run, tensor, 1e-6, 1e-8):
            del left[whole_name]
    if left:
        raise UserError(
            f"--to=peft: {base} does not have {few(sorted(left))} as the run has them, frozen;"
            " with an adapter it is another model; take --to=transformers"
        )
