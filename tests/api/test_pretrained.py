"""A model of others is loaded, used and written back to the last bit; training goes on from it. T5
and BART have one tokenizer for both sides. A classifier begins with a masked language model of ours
or with a folder of `transformers`, and its labels come back in their order.
"""

import json
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer
from tokenizers import models as pieces
from tokenizers.pre_tokenizers import BertPreTokenizer

import attnlab
from attnlab import config as configs
from attnlab.data.vocabulary import Special, Vocabulary
from attnlab.errors import UserError
from attnlab.records.attempts import reopen
from attnlab.tasks import TASKS
from attnlab.tasks.pretrained import _fingerprint, _hash_run
from attnlab.weights.names import flat
from tests.commands.tiny import CommandResult, refused, run_command, train
from tests.data.test_tokenizer import byte_level, stored
from tests.weights import models, rule

SIZE = 290  # ids of the tokenizer
STILL = "schedule.peak=1e-30"  # what is taken can be seen after training


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
def test_what_is_loaded_and_saved_is_what_it_was(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = with_tokenizer(tmp_path / "in", name)
    (folder / "generation_config.json").write_text('{"repetition_penalty": 1.5}')
    run = attnlab.load_pretrained(folder)
    files = attnlab.save_pretrained(run, tmp_path / "out")
    names = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert names | {"generation_config.json"} == {file.name for file in files}
    assert len({file.stat().st_mode for file in files}) == 1
    again = attnlab.load_pretrained(tmp_path / "out").config
    assert again.decoding == run.config.decoding and again.decoding.method == "greedy"
    other = attnlab.load_pretrained(folder, {"decoding.method": "sample"})
    written = attnlab.save_pretrained(other, tmp_path / "other")
    assert names == {file.name for file in written}
    assert "decoding.method was another" in capsys.readouterr().err
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
    folder.rename(tmp_path / "away")
    written = attnlab.save_pretrained(run, tmp_path / "later")
    assert names == {file.name for file in written}
    assert "the folder is gone" in capsys.readouterr().err


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
    assert trained("same", "system.width=6", begins, STILL) == 0
    assert trained("wider", "system.width=8", begins, "pretrained.take=matching") == 0
    first, same = (attnlab.load(tmp_path / name).params for name in ("first", "same"))
    jax.tree.map(np.testing.assert_array_equal, same, first)
    told = json.loads((tmp_path / "wider" / "pretrained.json").read_text())
    assert told["kept"] == ["embed/embedding", "out/bias"]
    more = ["system.width=6", begins, STILL]
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


FOLDERS = {"t5": models.t5, "bart": models.bart}
SMALL: dict[str, Any] = {"data": "grammar", "data.examples": 20, "data.valid": 4, "data.test": 4}
# up to 266 tokens, as these models write them, decoding would be nearly all of the work
SMALL |= {"batch.max_length": 64, "batch.buckets": (64,), "decoding.batch": 4}
SMALL |= {"decoding.method": "greedy", "decoding.max_ratio": 0.5, "decoding.max_extra": 2}


def adopted(folder: Path) -> Vocabulary:
    return Vocabulary.train([], "tokenizer", file=str(folder))


def test_a_decoder_reads_first_what_its_model_says(tmp_path: Path) -> None:
    """T5 padding, BART the end; BART's texts begin with <s>; sentinels are reserved."""
    t5 = adopted(models.t5(tmp_path / "t5"))
    first = t5.special.reserved[0]
    assert t5.special == Special(0, 0, 1, 2, tuple(range(first, first + 6)))
    assert t5.tokens(reversed(t5.special.reserved)) == models.SENTINELS
    bart = adopted(models.bart(tmp_path / "bart"))
    assert bart.special == Special(1, 2, 2, 3, (), front=(0,))
    for vocabulary, begin in ((t5, ()), (bart, (0,))):
        ids = vocabulary.packed(["old dogs"], vocabulary.special.front)[0]
        assert (*ids[: len(begin)], ids[-1]) == (*begin, vocabulary.special.eos)
        assert vocabulary.decode(ids) == "old dogs"
        vocabulary.save(tmp_path / "kept.json")
        assert Vocabulary.load(tmp_path / "kept.json").special == vocabulary.special


@pytest.mark.parametrize("name", ["t5", pytest.param("bart", marks=pytest.mark.full)])
def test_a_pair_of_texts_is_loaded_and_saved_as_it_was(name: str, tmp_path: Path) -> None:
    folder = FOLDERS[name](tmp_path / "in")
    run = attnlab.load_pretrained(folder, SMALL)
    assert run.generate(["the old dog"]) == run.generate(["the old dog"])
    assert run.evaluate("valid")["loss"] > 1.0
    sides = {path.split("/")[0].split("_")[0] for path in run.maps("the old dog")}
    assert sides == {"encoder", "decoder"}
    attnlab.save_pretrained(run, tmp_path / "out")
    before, after = (load_file(tmp_path / one / "model.safetensors") for one in ("in", "out"))
    np.testing.assert_equal(after, before)
    told, ours = (json.loads((tmp_path / one / "config.json").read_text()) for one in ("in", "out"))
    ids = ("vocab_size", "pad_token_id", "eos_token_id", "decoder_start_token_id", "bos_token_id")
    assert {key: told.get(key) for key in ids} == {key: ours[key] for key in ids}
    assert adopted(tmp_path / "out").special == adopted(folder).special


@pytest.mark.full
def test_tune_export(tmp_path: Path) -> None:
    """One step from a folder, and a folder again that is read as the same model."""
    folder = models.t5(tmp_path / "in", "pairs/t5_gated")
    changes = [f"{key}={value}" for key, value in {**SMALL, "batch.buckets": 64}.items()]
    changes += ["training.steps=1", "schedule.warmup=0"]
    workdir = tmp_path / "run"
    assert run_command(train(f"pretrained.py:{folder}", workdir, *changes)).code == 0
    scores = json.loads((workdir / "results.json").read_text())
    assert "rougeL" in json.dumps(scores)
    ended = run_command(["export", str(workdir), "--to=transformers", f"--out={tmp_path / 'out'}"])
    assert "transformers.T5ForConditionalGeneration" in ended.out
    again = attnlab.load_pretrained(tmp_path / "out", SMALL)
    jax.tree.map(np.testing.assert_array_equal, again.params, attnlab.load(workdir).params)


def test_two_vocabularies_are_no_folder(tmp_path: Path) -> None:
    folder = models.t5(tmp_path / "in")
    changes: dict[str, Any] = {**SMALL, "vocabulary.shared": False}
    run = attnlab.load_pretrained(folder, changes)
    with pytest.raises(UserError, match=r"vocabularies of their own.*vocabulary.shared=true"):
        attnlab.save_pretrained(run, tmp_path / "out", model_type="t5")


SHORT = ["batch.size=4", "training.steps=1", "training.evaluate_every=1", "schedule.warmup=0"]
ROWS = ["text\tlabel", "bb aa\tbad", "aa\tgood", "aa bb cc\tgood", "cc\tbad"]


def trained(config: str, workdir: Path, *settings: str) -> CommandResult:
    """A run of a step, which comes to its end."""
    ended = run_command(train(config, workdir, *SHORT, *settings))
    assert ended.code == 0, ended.err
    return ended


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Labelled texts, and others without labels."""
    folder = tmp_path_factory.mktemp("table")
    for split in ("train", "valid", "test"):
        (folder / f"{split}.tsv").write_text("\n".join(ROWS) + "\n")
        (folder / f"{split}.txt").write_text("aa bb dd\ncc aa dd\nbb\n")
    return folder


def labelled(table: Path) -> list[str]:
    return [
        *("data=table", f"data.directory={table}", "data.header=1"),
        *("data.source=1", "data.target=0", "data.label=2"),
    ]


SIZES = ["system.width=8", "system.hidden=12", "system.layers=1", "system.positions.length=20"]
WORDS = ["vocabulary.kind=word", "vocabulary.size=20", "vocabulary.min_frequency=1"]


@pytest.mark.full
def test_a_classifier_begins_with_a_masked_language_model_of_ours(
    table: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its encoder and its vocabulary, which has a word that the labelled texts lack; the head is
    drawn, and said to be.
    """
    masked = [*SIZES, *WORDS, "system.attention.heads=2", "batch.max_length=16"]
    text = ["data=text", f"data.directory={table}", "vocabulary.reserved=1"]
    trained("masked_language_modelling.py:bert", tmp_path / "masked", *masked, *text)
    system = ["system=bert_classifier", *SIZES, "system.attention=multihead"]
    system += ["system.attention.heads=2", "system.attention.bias=true", "system.positions=learned"]
    begins = [f"pretrained.folder={tmp_path / 'masked'}", "pretrained.take=matching", STILL]
    shared = [*labelled(table), *system, *WORDS, "vocabulary.lowercase=false", *begins]
    shared += ["batch.buckets=16", "batch.max_length=16"]
    config = "classification.py:transformer"
    ended = trained(config, tmp_path / "tuned", *shared, "vocabulary.reserved=1")
    assert "drawn anew: out/{bias,kernel}; pooler/{bias,kernel}" in ended.err
    one, other = (flat(attnlab.load(tmp_path / name).params) for name in ("masked", "tuned"))
    taken = [path for path in other if path in one and not path.startswith("out")]
    assert "embed/embedding" in taken and len(taken) == len(other) - 4
    for path in taken:
        np.testing.assert_array_equal(one[path], other[path], err_msg=path)
    told = json.loads((tmp_path / "tuned" / "pretrained.json").read_text())
    assert sorted(told["kept"]) == sorted(taken)
    other = configs.load(f"configs/{config}", shared)
    drawn = TASKS.resolve(other.task).load(other, None, ()).beginning.drawn_paths()
    assert "has another vocabulary" in caplog.text and "embed/embedding" in drawn


def bert_folder(path: Path, name: str, **changes: object) -> Path:
    """A golden model with a tokenizer of its own, special ids as BERT has them."""
    folder = models.folder(f"encoders/{name}", path, pad_token_id=0, **changes)
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    words = [*special, "aa", "bb", "cc", *(f"x{number}" for number in range(93))]
    one = Tokenizer(pieces.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    one.pre_tokenizer = BertPreTokenizer()
    told = {f"{word[1:-1].lower()}_token": word for word in special}
    return stored(one, folder, {}, told)


def test_a_folder_is_filled_in_trained_and_written(table: Path, tmp_path: Path) -> None:
    folder, run = bert_folder(tmp_path / "bert", "bert_masked"), tmp_path / "run"
    text = ["data=text", f"data.directory={table}", "batch.max_length=16", *SHORT]
    flags = [f"--config.{one}" for one in text]
    assert run_command(["import", f"--from={folder}", f"--workdir={run}", *flags]).code == 0
    (best,) = attnlab.load(run).respond(["aa [MASK] cc"])[0]
    assert best.text.split()[0] == "aa" and best.text.split()[-1] == "cc" and best.score < 0
    ended = run_command(["export", str(run), "--to=transformers", f"--out={tmp_path / 'out'}"])
    assert "look:   transformers.BertForMaskedLM.from_pretrained" in ended.out
    ours, theirs = (load_file(one / "model.safetensors") for one in (tmp_path / "out", folder))
    np.testing.assert_equal(ours, theirs)
    told = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    wanted = ("[MASK]", "[CLS]", "[SEP]")
    assert (told["mask_token"], told["cls_token"], told["sep_token"]) == wanted


def test_a_folder_gets_another_head(tmp_path: Path) -> None:
    """Sizes and rates are the folder's; the task alone does not give one, and the error says what does."""
    folder = bert_folder(tmp_path / "bert", "bert_masked")
    config = f"pretrained.py:{folder}"
    ours, theirs = (configs.load(f"configs/{config}{to}") for to in (":classification", ""))
    assert (
        ours.system.name == "bert_classifier" and ours.system.attention == theirs.system.attention
    )
    begin = train(config, tmp_path / "no", "task=classification")
    assert "configs/pretrained.py:FOLDER:classification" in refused(*begin)
    wrong = refused(*train(f"{config}:clasification", tmp_path / "no"))
    assert "no head for task 'clasification' is known here; did you mean 'classification'?" in wrong


@pytest.mark.full
def test_another_head_is_drawn_and_trained_beside_the_products(table: Path, tmp_path: Path) -> None:
    config = f"pretrained.py:{bert_folder(tmp_path / 'bert', 'bert_masked')}:classification"
    short = ["batch.max_length=16", "batch.buckets=16", "lora.rank=2", *labelled(table)]
    ended = trained(config, tmp_path / "run", *short)
    assert "drawn anew: out/{bias,kernel}; pooler/{bias,kernel}" in ended.err
    assert "not trained" not in ended.err
    outlook = run_command([*train(config, tmp_path / "no", *short), "--dry-run"]).out
    assert "drawn anew: out/" in outlook and " parameters are trained" in outlook


@pytest.mark.full
def test_labels_are_numbered_as_in_the_data(table: Path, tmp_path: Path) -> None:
    """A folder whose labels stand in another order is refused as a whole; one that names none, or
    the same, is taken.
    """
    named = {"0": "good", "1": "bad"}
    wrong = bert_folder(tmp_path / "wrong", "bert_texts", id2label=named)
    shapes = {**models.described("encoders/bert_texts")["shapes"]}
    shapes |= {"classifier.weight": [2, 36], "classifier.bias": [2]}
    tensors = {key: rule.parameter(key, shape) for key, shape in shapes.items()}
    save_file(tensors, wrong / "model.safetensors", metadata={"format": "pt"})
    settings = [*labelled(table), "batch.max_length=16", "batch.buckets=16", STILL]
    command = train(f"pretrained.py:{wrong}", tmp_path / "no", *SHORT, *settings)
    assert "has the labels good, bad, the data bad, good" in refused(*command)
    told = json.loads((wrong / "config.json").read_text())
    (wrong / "config.json").write_text(json.dumps({**told, "id2label": {"0": "bad", "1": "good"}}))
    trained(f"pretrained.py:{wrong}", tmp_path / "yes", *settings)
    out = tmp_path / "out"
    run_command(["export", str(tmp_path / "yes"), "--to=transformers", f"--out={out}"])
    written = json.loads((out / "config.json").read_text())
    assert written["id2label"] == {"0": "bad", "1": "good"}
    assert written["architectures"] == ["BertForSequenceClassification"]
    np.testing.assert_equal(load_file(out / "model.safetensors"), tensors)
