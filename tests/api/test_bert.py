"""A classifier begins with a masked language model of ours or with a folder of `transformers`, and
its labels come back in their order.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer
from tokenizers import models as pieces
from tokenizers.pre_tokenizers import BertPreTokenizer

import attnlab
from attnlab import config as configs
from attnlab.tasks import TASKS
from attnlab.weights.names import flat
from tests.commands.tiny import CommandResult, refused, run_command, train
from tests.data.test_tokenizer import stored
from tests.weights import models, rule

SHORT = ["batch.size=4", "training.steps=1", "training.evaluate_every=1", "schedule.warmup=0"]
STILL = "schedule.peak=1e-30"  # what is taken can be seen after training
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
