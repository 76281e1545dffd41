"""Models from elsewhere in Python: `run = attnlab.load_pretrained("folder")`, and a run written as a
folder that `transformers` loads.
"""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import ml_dtypes
import numpy as np

from attnlab import config as configs
from attnlab import weights
from attnlab.api.stored import Stored
from attnlab.api.trained import Run, compute_dtype, in_precision
from attnlab.data.images.annotated import ImageData
from attnlab.data.tokenizer import FILE, GENERATION, Adopted
from attnlab.data.vocabulary import Vocabulary
from attnlab.errors import UserError, note
from attnlab.experiments.define import overridden
from attnlab.records.files import write_atomic
from attnlab.tasks import TASKS
from attnlab.training.devices import use_precision
from attnlab.training.updates import best_params
from attnlab.weights import folder as folders
from attnlab.weights.foreign import ForeignConfig
from attnlab.weights.generation import decoding
from attnlab.weights.names import flat
from attnlab.weights.pictures import Pictures
from attnlab.weights.writing import config_of

Dtype = Literal["float32", "bfloat16", "float16"]
DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


@dataclasses.dataclass(frozen=True)
class Foreign(Stored):
    """A model that no run of ours has trained: nothing is recorded that could have changed."""

    @property
    def vocabulary_folder(self) -> None:
        """Its folder has a tokenizer, which the config names."""
        return None

    def check_splits(self, splits: Sequence[str]) -> None:
        """Nothing is sealed."""

    def check_data(self, fingerprints: Mapping[str, str]) -> None:
        """It was not made from data that is known here."""


def load_pretrained(
    folder: str | os.PathLike[str], overrides: Mapping[str, Any] | None = None
) -> Run:
    """Loads the model in a folder of `transformers`, or of timm, as a `Run`, with changed settings,
    ready to generate, score and show its maps.

    Args:
      folder: with config.json, safetensors and tokenizer.json.
      overrides: {"decoding.beam": 8, "data": "text", "data.directory": ...}, settings of its
        config, which is that of `configs/pretrained.py`. With "pretrained.take": "matching" they
        may change the system, {"system.attention.key_heads": 2}; what fits is taken.

    Raises:
      UserError: what is wrong with the folder, by name; a setting that is wrong.
    """
    path = Path(folder).expanduser()
    config = configs.prepare(configs.from_dict(weights.run_config(path)), overridden(overrides))
    use_precision(config.training.precision)
    task = TASKS.resolve(config.task).load(config, None, ())
    task.check_pretrained()
    assert task.beginning is not None  # the folder is in `config.pretrained.path`
    key, dtype = jax.random.key(config.seed), compute_dtype(config)
    leaves, tree = jax.tree.flatten(task.beginning.params(key, best_params, dtype))
    for at, leaf in enumerate(leaves):
        leaves[at] = jax.device_put(leaf)  # so that the model is there once, in host or device
    params = in_precision(config, jax.tree.unflatten(tree, leaves))
    return Run(Foreign(config, path, {}, {}), task, params, 0)


def save_pretrained(
    run: Run,
    folder: str | os.PathLike[str],
    dtype: Dtype = "float32",
    model_type: str | None = None,
    shard: int = folders.SHARD,
) -> list[Path]:
    """Writes the model of a run into a new folder that `transformers` loads (config, weights,
    tokenizer), or timm for a ResNet, and returns the files.

    Args:
      run: of a system that is a setting of a known model, such as `decoder`.
      folder: is made; must be empty if it is there.
      dtype: of the tensors.
      model_type: as "llama"; by default the first that can say the system.
      shard: bytes of a file at most.

    Returns:
      The files.

    Raises:
      UserError: a system that no known model is, a folder that is not empty, an unknown dtype.
    """
    if dtype not in DTYPES:
        raise UserError(f"dtype {dtype!r}; expected one of: {', '.join(DTYPES)}")
    path = Path(folder).expanduser()
    check_export(run, path)
    architecture = model_config(run, model_type)
    kind = weights.kind_of(architecture, "the config")
    names, params = weights.names_of(kind), flat(jax.device_get(run.params))
    arrays = names.write(params, DTYPES[dtype])
    if isinstance(run.task.data, ImageData):
        return _save_image_model(run, path, {**architecture, "torch_dtype": dtype}, arrays, shard)
    vocabulary = _vocabulary(run)
    pairs = bool(architecture.get("is_encoder_decoder"))
    ids = _ids(vocabulary, pairs)
    origin = _settings_of_origin(run)  # an end that pads too is no padding here
    config: dict[str, Any] = {
        "pad_token_id": None,
        **{
            key: origin[key] for key in ("max_position_embeddings", "pad_token_id") if key in origin
        },
        **architecture,
        **ids,
        **_labels(run),
        "torch_dtype": dtype,
    }
    if "n_positions" not in config and not pairs:  # GPT-2's name of it, and the length of a table
        config.setdefault("max_position_embeddings", run.config.longest_text)
    generation = _generation(run, vocabulary)
    files = [*folders.write(path, config, arrays, shard), *_tokenizer(vocabulary, path, pairs)]
    if generation is not None:
        write_atomic(path / GENERATION, generation)
        files.append(path / GENERATION)
    return files


def check_export(run: Run, folder: Path) -> None:
    """Raises `UserError` if `folder` exists and is not an empty folder, or if the run is an
    ensemble or has rounded weights.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is there and not an empty folder; name another")
    if run.stored.members:
        raise UserError("an ensemble is several models; write one run at a time")
    if compute_dtype(run.config) != np.float32:
        raise UserError("config.decoding.compute has rounded the weights; load the run without it")


def model_config(run: Run, model_type: str | None = None) -> dict[str, Any]:
    """Returns the config of `transformers` for the system of a run, of this model type, else of
    that of the folder it came from, else of the first type that can express it; raises `UserError`
    if none can.
    """
    return config_of(run.config.system, model_type or _type_of(run))


def _save_image_model(
    run: Run, folder: Path, config: dict[str, Any], arrays: Mapping[str, np.ndarray], shard: int
) -> list[Path]:
    """Writes an image model's config and tensors, in files of at most `shard` bytes, and the
    settings that prepare its images (in the config or in a file beside it) into a folder; returns
    the files.
    """
    learned, data = run.task.data.learned, run.config.data
    resize = data.get("resize") or learned.shape[:2]
    read = Pictures(
        **{name: getattr(learned, name) for name in ("shape", "mean", "deviation", "classes")},
        resize=tuple(resize),
        resample=data.get("resample", "bilinear"),
    )
    module = weights.family(weights.kind_of(config, "the config"))
    others = module.preprocessing_files(read)
    config = {**config, **others.pop(folders.CONFIG)}
    written = folders.write(folder, config, arrays, shard)
    for name, content in others.items():
        write_atomic(folder / name, json.dumps(content, indent=1) + "\n")
        written.append(folder / name)
    return written


def _vocabulary(run: Run) -> Vocabulary:
    """Returns the vocabulary that source and target of a run share; raises `UserError` if each has
    another.
    """
    learned = run.task.data.learned
    if learned.source is not learned.target:
        raise UserError(
            "source and target have vocabularies of their own, and a folder of transformers has one"
            " for both; train with vocabulary.shared=true"
        )
    return learned.vocabulary  # type: ignore[no-any-return]


def _settings_of_origin(run: Run) -> dict[str, Any]:
    """Returns the `config.json` of the folder that a run's weights came from; {} if the run had none,
    or its config is gone.
    """
    folder = run.config.pretrained.folder
    path = Path(folder).expanduser()
    return folders.settings(path) if folder and (path / folders.CONFIG).is_file() else {}


def _type_of(run: Run) -> str | None:
    """Returns the model type of the folder that a run's weights came from, or None without such a
    folder, or if that type cannot express the run's system.
    """
    if not (settings := _settings_of_origin(run)):
        return None
    try:
        kind = weights.kind_of(settings, run.config.pretrained.folder)
        config_of(run.config.system, kind)
    except UserError:
        return None
    return kind


def _generation(run: Run, vocabulary: Vocabulary) -> bytes | None:
    """Returns the `generation_config.json` of the folder that a run came from, as it is there; None
    without one, with a tokenizer of ours, or, with a note, if the run decodes otherwise or the
    folder is gone.
    """
    node, folder = getattr(run.config, "decoding", None), run.config.pretrained.path
    adopted = isinstance(vocabulary, Adopted)
    if not adopted or node is None or folder is None:
        return None
    if not folder.is_dir():
        note(f"no {GENERATION} is written, which {folder} may have had: the folder is gone")
    if not (folder / GENERATION).is_file():
        return None
    wanted = decoding(ForeignConfig(_settings_of_origin(run), str(folder), folder))
    if changed := [f"decoding.{key}" for key in wanted if wanted[key] != getattr(node, key)]:
        note(f"no {GENERATION} is written: in that of {folder} {', '.join(changed)} was another")
        return None
    return (folder / GENERATION).read_bytes()


def _ids(vocabulary: Vocabulary, pairs: bool) -> dict[str, Any]:
    """Returns the keys of a `config.json` for the size and special ids of a vocabulary, and, with
    `pairs` (for an encoder-decoder), for the id that the decoder reads first.
    """
    special = vocabulary.special
    begins: dict[str, Any] = {"bos_token_id": special.bos}
    if pairs:
        front = special.front[0] if special.front else None
        begins = {"bos_token_id": front, "decoder_start_token_id": special.bos}
    if special.forced is not None:
        begins["forced_bos_token_id"] = special.forced
    return {
        "vocab_size": vocabulary.size,
        **begins,
        "eos_token_id": [*special.ending] if special.ends else special.eos,
        **({"pad_token_id": special.pad} if 0 <= special.pad < vocabulary.size else {}),
    }


def _labels(run: Run) -> dict[str, Any]:
    """Returns the keys "id2label" and "label2id" of a classifier's `config.json`; {} for a task
    without classes.
    """
    names = run.task.data.learned.classes
    if not names:
        return {}
    numbered = {name: number for number, name in enumerate(names)}
    return {"id2label": {str(i): name for name, i in numbered.items()}, "label2id": numbered}


def _tokenizer(vocabulary: Vocabulary, folder: Path, pairs: bool) -> list[Path]:
    """Writes `tokenizer.json` (an adopted one unchanged) and `tokenizer_config.json` with special
    tokens and chat template into a folder; returns both paths; for `pairs` (an encoder-decoder)
    reserved ids are T5's sentinels, and a tokenizer of ours ends every text.
    """
    ours = not isinstance(vocabulary, Adopted)
    content = vocabulary.to_json() if ours else vocabulary.content  # type: ignore[attr-defined]
    pieces, reserved = vocabulary.tokens(range(vocabulary.size)), vocabulary.special.reserved
    if pairs and ours:
        for number, index in enumerate(reversed(reserved)):
            pieces[index] = f"<extra_id_{number}>"
        content["post_processor"] = _end_of_text_processor(
            pieces[vocabulary.special.eos], vocabulary.special.eos
        )
    named: dict[str, Any] = {
        f"{name}_token": pieces[index]
        for name in ("eos", "pad", "unk", *(() if pairs else ("bos",)))
        if (index := getattr(vocabulary.special, name)) is not None and 0 <= index < len(pieces)
    }
    if reserved and pairs:
        named["additional_special_tokens"] = [pieces[index] for index in reversed(reserved)]
    elif reserved:
        named["mask_token"] = pieces[reserved[0]]
        named |= {"cls_token": named["bos_token"], "sep_token": named["eos_token"]}
    if ours:  # they are no pieces of the library's tokenizer, and take the blanks before them
        flags = {"single_word": False, "lstrip": True, "rstrip": False, "normalized": False}
        for index in reserved:
            added = {"id": index, "content": pieces[index], "special": True, **flags}
            content["added_tokens"].append(added)
    if not ours and vocabulary.chat:  # type: ignore[attr-defined]
        chat = vocabulary.chat  # type: ignore[attr-defined]
        named |= {**chat["tokens"], "chat_template": chat["template"]}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **named}
    for file, value in ((FILE, content), ("tokenizer_config.json", settings)):
        write_atomic(folder / file, json.dumps(value, ensure_ascii=False, indent=1) + "\n")
    return [folder / FILE, folder / "tokenizer_config.json"]


def _end_of_text_processor(piece: str, index: int) -> dict[str, Any]:
    """Returns the post-processor of `tokenizer.json` that appends the token `piece`, of id `index`,
    to every text.
    """
    end = {"SpecialToken": {"id": piece, "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    return {
        "type": "TemplateProcessing",
        "single": [first, end],
        "pair": [first, end, second, end],
        "special_tokens": {piece: {"id": piece, "ids": [index], "tokens": [piece]}},
    }
