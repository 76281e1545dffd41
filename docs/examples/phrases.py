"""A dataset of one's own in the format of TensorFlow Datasets, prepared and read without TensorFlow.

python phrases.py FOLDER        writes FOLDER/phrases/1.0.0, from train.jsonl and valid.jsonl in the folder you stand in
"""

import json
import pathlib
import sys

import numpy as np
import tensorflow_datasets as tfds


class Phrases(tfds.core.GeneratorBasedBuilder):
    """Pairs of texts with a label; the name of the dataset is that of the class, in small letters."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "The first."}

    def _info(self):
        text = tfds.features.Text()
        features = {
            "source": text,
            "target": text,
            "label": text,
            "words": tfds.features.Scalar(dtype=np.int32),
        }
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {
            "train": self._generate_examples("train.jsonl"),
            "validation": self._generate_examples("valid.jsonl"),
        }

    def _generate_examples(self, path):
        for number, line in enumerate(pathlib.Path(path).read_text(encoding="utf-8").splitlines()):
            record = json.loads(line)
            texts = {field: str(record[field]) for field in ("source", "target", "label")}
            yield number, {**texts, "words": len(texts["source"].split())}


if __name__ == "__main__":
    builder = Phrases(
        data_dir=sys.argv[1], file_format="array_record"
    )  # the format that is read without TensorFlow
    builder.download_and_prepare()
    print(f"prepared in {builder.data_dir}")
