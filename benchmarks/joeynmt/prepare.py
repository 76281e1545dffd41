"""Multi30k for JoeyNMT: the very pieces that attnlab trains on, as files of words, and their
vocabulary.

    python -m benchmarks.joeynmt.prepare MULTI30K FOLDER        (in attnlab's environment, from the repository's root)

Writes FOLDER/data/{train,val,test_2016_flickr}.{de,en} and FOLDER/data/vocab.txt with the
vocabulary of configs/multi30k.py (lower-cased byte-pair pieces, shared by both languages), and
FOLDER/reference.en, the lower-cased references that BLEU is computed on.
"""

import sys
from pathlib import Path

from attnlab import config as configs
from attnlab.data.corpus import Corpus
from attnlab.data.vocabulary import SPECIAL
from attnlab.tasks.schemas import TextSettings


def main(multi30k: str, folder: str) -> None:
    """Write all files."""
    config = configs.load("configs/multi30k.py:rnnsearch", [f"data.directory={multi30k}"])
    assert isinstance(config, TextSettings)
    texts = Corpus.load(config.data, config.vocabulary, None, ("train", "valid", "test"))
    vocabulary = texts.vocabulary
    data = Path(folder) / "data"
    data.mkdir(parents=True, exist_ok=True)
    for split, pairs in texts.rows.items():
        for side, language in enumerate((config.data.source, config.data.target)):
            lines = [
                " ".join(vocabulary.tokens(ids))
                for ids in vocabulary.encode_all(pair[side] for pair in pairs)
            ]
            write(data / f"{config.data[split]}.{language}", lines)
    pieces = vocabulary.tokens(range(len(SPECIAL), vocabulary.size))
    write(data / "vocab.txt", ["<unk>", "<pad>", "<s>", "</s>", *pieces])  # in JoeyNMT's order
    write(
        Path(folder) / "reference.en",
        [vocabulary.normalize(target) for _, target in texts.rows["test"]],
    )


def write(path: Path, lines: list[str]) -> None:
    """One line each."""
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    print(f"{path}: {len(lines)} lines")


if __name__ == "__main__":
    main(*sys.argv[1:])
