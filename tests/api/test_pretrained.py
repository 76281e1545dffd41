"""A model of others is loaded, used and written back to the last bit; training goes on from it."""

import json
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import attnlab
from attnlab.errors import UserError
from attnlab.records.attempts import reopen
from attnlab.tasks.pretrained import _fingerprint, _hash_run
from tests.commands.tiny import refused, run_command, train
from tests.data.test_tokenizer import byte_level
from tests.weights import models

SIZE = 290  # ids of the tokenizer


def with_tokenizer(folder: Path, name: str = "gpt2") -> Path:
    """A golden model with a table of as many rows as a tokenizer has ids, and that tokenizer."""
    byte_level(folder)
    return models.folder(name, folder, vocab_size=SIZE, bos_token_id=0, eos_token_id=0)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    for split in ("train", "valid", "test"):
        lines = "A dog, a cat; two dogs!\nit's the cat's bird\n" * 4
        (folder / f"{split}.txt").write_text(lines)
    return folder


def test_a_folder_is_a_run_that_writes_scores_and_shows(tmp_path: Path, text: Path) -> None:
    given = {"decoding.method": "greedy", "decoding.max_extra": 5, "data": "text"}
    run = attnlab.load_pretrained(with_tokenizer(tmp_path), {**given, "data.directory": str(text)})
    assert run.step == 0 and run.parameters == sum(
        one.size for one in load_file(tmp_path / "model.safetensors").values()
    )
    (written,) = run.generate(["A dog"])
    assert written.startswith("A dog") and run.generate(["A dog"]) == [written]
    assert {one.weights.shape for one in run.maps("A dog").values()} == {(4, 3, 3)}
    system, tokens = run.task.system, np.array([[5, 9, 7, 4]])
    logits, collected = system.apply({"params": run.params}, tokens, mutable=["maps"])
    np.testing.assert_array_equal(logits, system.apply({"params": run.params}, tokens))
    assert len(jax.tree.leaves(collected)) == system.layers
    assert run.evaluate("valid")["loss"] > 1.0


def test_every_end_of_a_folder_ends_a_text_and_is_written_back(tmp_path: Path) -> None:
    """Those of two files, one of which pads too; the forced first id and the template as well."""
    folder = with_tokenizer(tmp_path / "in")
    greedy = {"decoding.method": "greedy", "decoding.max_extra": 1}
    first = attnlab.load_pretrained(folder, greedy)
    (free,) = first.generate(["A dog"])
    token = int(first.task.data.vocabulary.encode_all([free])[0][-1])
    told = json.loads((folder / "config.json").read_text())
    ends = {"eos_token_id": [0, token], "pad_token_id": token}
    (folder / "config.json").write_text(json.dumps({**told, **ends}))
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    run = attnlab.load_pretrained(folder, greedy)
    assert free != "A dog" and run.generate(["A dog"]) == ["A dog"]
    (folder / "generation_config.json").write_text('{"eos_token_id": 5, "forced_bos_token_id": 40}')
    run = attnlab.load_pretrained(folder)
    special = run.task.data.vocabulary.special
    assert (special.eos, special.ends, special.forced) == (0, (token, 5), 40)
    assert run.config.decoding.method == "greedy"
    forced = run.task.data.vocabulary.decode([40])
    assert run.generate(["A dog"])[0].startswith(f"A dog{forced}")
    attnlab.save_pretrained(run, tmp_path / "out")
    again = attnlab.load_pretrained(tmp_path / "out").task.data.vocabulary
    assert again.special == special and again.chat["template"] == "{{ messages[0].content }}"
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (written["eos_token_id"], written["pad_token_id"]) == ([0, token, 5], token)


@pytest.mark.parametrize("name", ["gpt2", pytest.param("llama", marks=pytest.mark.full)])
def test_what_is_loaded_and_saved_is_what_it_was(name: str, tmp_path: Path) -> None:
    folder = with_tokenizer(tmp_path / "in", name)
    run = attnlab.load_pretrained(folder)
    files = attnlab.save_pretrained(run, tmp_path / "out")
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} == {
        file.name for file in files
    }
    before, after = (load_file(one / "model.safetensors") for one in (folder, tmp_path / "out"))
    np.testing.assert_equal(after, before)
    config, tokenizer = (
        json.loads((tmp_path / "out" / one).read_text())
        for one in ("config.json", "tokenizer.json")
    )
    told = json.loads((folder / "config.json").read_text())
    same = ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id", "architectures")
    assert {key: config[key] for key in same} == {key: told[key] for key in same}
    if name == "llama":
        assert config["max_position_embeddings"] == 128
    else:
        assert "max_position_embeddings" not in config and config["n_positions"] == 128
    assert tokenizer == json.loads((folder / "tokenizer.json").read_text())
    attnlab.save_pretrained(run, tmp_path / "half", dtype="bfloat16")
    half = load_file(tmp_path / "half" / "model.safetensors")
    assert all(np.array_equal(half[key], before[key].astype(ml_dtypes.bfloat16)) for key in before)
    with pytest.raises(UserError, match="is there and not an empty folder"):
        attnlab.save_pretrained(run, tmp_path / "out")
    with pytest.raises(UserError, match="dtype 'int8'; expected one of: float32"):
        attnlab.save_pretrained(run, tmp_path / "new", dtype="int8")  # type: ignore[arg-type]


@pytest.mark.full
def test_import_to_export(tmp_path: Path, text: Path) -> None:
    """An imported run begins with the weights; training goes on from there, and moves them."""
    folder, workdir = with_tokenizer(tmp_path / "model"), tmp_path / "run"
    settings = ["data=text", f"data.directory={text}", "training.steps=3", "batch.size=4"]
    settings += ["batch.max_length=8", "schedule.warmup=1", "checkpoint.keep=5"]
    flags = [f"--config.{one}" for one in settings]
    begin = ["import", f"--from={folder}", f"--workdir={workdir}", *flags]
    assert f"train --config=configs/pretrained.py:{folder}" in run_command(begin).out
    imported = attnlab.load(workdir)
    assert imported.step == 0
    export = ["export", str(workdir), "--to=transformers"]
    assert run_command([*export, f"--out={tmp_path / 'before'}"]).code == 0
    given, before = (load_file(one / "model.safetensors") for one in (folder, tmp_path / "before"))
    assert all(np.array_equal(given[key], before[key]) for key in given)
    goes_on = train(f"pretrained.py:{folder}", workdir, *settings)
    assert run_command(goes_on).code == 0 and attnlab.load(workdir).step == 3
    run_command([*export, f"--out={tmp_path / 'after'}", "--model-type=gpt2"])
    after = load_file(tmp_path / "after" / "model.safetensors")
    moved = [np.abs(after[key] - given[key]).max() for key in given]
    assert after.keys() == given.keys() and 0 < max(moved) < 1e-2
    assert "holds a run already" in refused(*begin)
    line = refused("export", str(workdir), "--to=wandb", "--dtype=float16")
    assert "--dtype and --model-type go with --to=transformers" in line


def test_a_misfit_leaves_nothing(tmp_path: Path) -> None:
    folder = with_tokenizer(tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    del tensors["transformer.ln_f.bias"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    line = refused("import", f"--from={folder}", f"--workdir={tmp_path / 'run'}")
    assert "1 missing: transformer.ln_f.bias" in line
    assert not (tmp_path / "run" / "manifest.json").exists()
    with pytest.raises(UserError, match="1 missing"):
        attnlab.load_pretrained(folder)


@pytest.mark.full
def test_a_run_begins_with_another_run_of_ours(tmp_path: Path) -> None:
    """With all of its weights, or with those that fit; a sweep's claim needs no other tool."""
    sizes = ["system.embedding=4", "data.examples=40", "data.valid=4", "data.test=4"]
    rest = ["batch.size=4", "schedule.warmup=0", "decoding.max_extra=1"]
    steps = ["training.steps=1", "training.evaluate_every=1"]

    def trained(workdir: str, *more: str) -> int:
        settings = [*sizes, *rest, *steps, *more]
        return run_command(train("language_modelling.py:lstm", tmp_path / workdir, *settings)).code

    assert trained("first", "system.width=6") == 0
    begins = f"pretrained.folder={tmp_path / 'first'}"
    assert trained("wide", "system.width=8", begins) == 2
    assert not (tmp_path / "wide").exists()
    assert trained("same", "system.width=6", begins, "schedule.peak=1e-30") == 0
    assert trained("wider", "system.width=8", begins, "pretrained.take=matching") == 0
    first, same = (attnlab.load(tmp_path / name).params for name in ("first", "same"))
    jax.tree.map(np.testing.assert_array_equal, same, first)
    told = json.loads((tmp_path / "wider" / "pretrained.json").read_text())
    assert told["kept"] == ["embed/embedding", "out/bias"]
    more = ["system.width=6", begins, "schedule.peak=1e-30"]
    manifest = tmp_path / "same/manifest.json"
    for before in (_hash_run(tmp_path / "first"), _fingerprint(tmp_path / "first")):
        reopen(tmp_path / "same")
        told = json.loads(manifest.read_text())
        told["data"]["pretrained"] = before
        manifest.write_text(json.dumps(told))
        assert trained("same", *more) == 0
        assert (
            run_command(["prune", str(tmp_path / "first"), "--keep=best-params", "--yes"]).code == 0
        )
    assert not (tmp_path / "same/pretrained.json").exists()
