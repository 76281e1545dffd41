"""What is taken away of a run: names, shapes and numbers, without torch; `tests.weights.golden_peft`
has compared such adapters with `peft` (log P of tokens, 4e-6 at most).
"""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, safe_open, save_file

import attnlab
from attnlab.commands import main
from attnlab.weights.names import flat
from tests.commands.tiny import refused, run_command
from tests.weights import models


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with LoRA on two of three parts of a tensor, on a whole one, and trained
    beside them the last norm; in `base` the model that it began with.
    """
    path = tmp_path_factory.mktemp("adapted")
    base = models.tokenized("gpt2", path / "base")
    for split in ("train", "valid", "test"):
        (path / f"{split}.txt").write_text("A dog, a cat; two dogs!\nit's the cat's bird\n" * 4)
    settings = {
        **{"lora.rank": 3, "lora.alpha": 5, "lora.also": "^top", "data": "text"},
        **{"lora.on": "w_(query|value)/kernel,inner/kernel", "data.directory": path},
        **{"training.steps": 2, "training.evaluate_every": 2, "schedule.peak": 0.1},
        **{"schedule.warmup": 1, "batch.size": 4, "batch.max_length": 16},
    }
    flags = [f"--config.{key}={value}" for key, value in settings.items()]
    train = ["train", f"--config=configs/pretrained.py:{base}", f"--workdir={path / 'run'}"]
    assert main([*train, *flags]) == 0
    return path


def test_an_adapter_on_the_base_is_the_run(adapted: Path, tmp_path: Path) -> None:
    run, base = str(adapted / "run"), load_file(adapted / "base" / "model.safetensors")
    done = run_command(["export", run, "--to=peft", f"--out={tmp_path / 'peft'}"])
    assert done.code == 0 and "h.*.attn.c_attn.lora_A.weight  6 x 28        3" in done.out
    assert (
        run_command(["export", run, "--to=transformers", f"--out={tmp_path / 'whole'}"]).code == 0
    )
    config = json.loads((tmp_path / "peft" / "adapter_config.json").read_text())
    tensors = load_file(tmp_path / "peft" / "adapter_model.safetensors")
    assert config["task_type"] == "CAUSAL_LM" and config["fan_in_fan_out"]
    assert config["modules_to_save"] == ["transformer.ln_f"] and len(config["target_modules"]) == 6
    for name, tensor in base.items():
        module = name.removesuffix(".weight")
        if module in config["target_modules"]:
            a, b = (tensors.pop(f"base_model.model.{module}.lora_{x}.weight") for x in "AB")
            scale = config["alpha_pattern"][module] / config["rank_pattern"][module]
            assert len(a) == config["rank_pattern"][module]
            base[name] = tensor + scale * (b @ a).T
        base[name] = tensors.pop(f"base_model.model.{name}", base[name])
    whole = load_file(tmp_path / "whole" / "model.safetensors")
    assert not tensors and whole.keys() == base.keys()
    for name, tensor in base.items():
        np.testing.assert_allclose(whole[name], tensor, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_parameters_by_our_names(kind: str, adapted: Path, tmp_path: Path) -> None:
    command = ["export", str(adapted / "run"), f"--to={kind}", f"--out={tmp_path / 'out'}"]
    assert "layer_*/attention/w_key/kernel" in run_command(command).out
    file, run = tmp_path / "out" / f"params.{kind}", attnlab.load(adapted / "run")
    arrays = dict(np.load(file)) if kind == "npz" else load_file(file)
    np.testing.assert_equal(arrays, jax.device_get(flat(run.params)))
    if kind == "safetensors":
        told = safe_open(file, "np").metadata()
        assert told["step"] == "2" and json.loads(told["config"])["lora"]["rank"] == 3
    assert "not an empty folder" in refused(*command)


def test_what_an_adapter_cannot_say_is_refused(
    adapted: Path, searched: Path, tmp_path: Path
) -> None:
    line = refused("export", str(searched), "--to=peft")
    assert f"transformers, {searched} was trained without lora.rank; take another" in line
    card = run_command(["export", str(adapted / "run"), "--to=card", f"--out={tmp_path}"])
    assert card.code == 0
    text, base = (tmp_path / "README.md").read_text(), adapted / "base"
    assert f'\nbase_model: "{base}"\n' in text and f"began with the weights of `{base}`" in text
    assert "Trained were lora, ^top alone, lora with rank 3" in text
    file = adapted / "base" / "model.safetensors"
    tensors = load_file(file)
    save_file({**tensors, "transformer.wpe.weight": tensors["transformer.wpe.weight"] + 1}, file)
    other = run_command(["export", str(adapted / "run"), "--to=peft"])
    save_file(tensors, file)
    assert other.code == 2 and "does not have transformer.wpe.weight as the run has" in other.err
