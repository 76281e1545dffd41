"""Span corruption, on sentences of a made-up language unless told otherwise: how T5 is pretrained.

    python launch.py train --config=configs/span_corruption.py:t5 --workdir=runs/corrupted

Arguments: those of `configs/text_to_text.py`. Your own text (train.txt, valid.txt, test.txt, plain or .gz),
or a corpus prepared by `launch.py prepare --reserved=100 --to=FOLDER/train --from=FILES`:

    --config.data=text --config.data.directory=my/folder --config.vocabulary.kind=bpe --config.vocabulary.reserved=100
    --config.data=shards --config.data.directory=FOLDER --config.batch.max_length=512

Tuning on pairs goes on from the run: configs/text_to_text.py with --config.pretrained.folder=RUN and
the settings of its vocabulary. `generate` tells what stands in the place of <extra_id_0>,
<extra_id_1>, ... in the lines of its input.
"""

from ml_collections import ConfigDict

from attnlab.config import merge, read_config_file


def get_config(system: str = "t5") -> ConfigDict:
    """The configuration for one system; see `configs/text_to_text.py` for the names."""
    return merge(
        SHARED, {"system": read_config_file(f"configs/text_to_text.py:{system}")["system"]}
    )


SHARED = {
    "task": "span_corruption",
    "data": "one_side",
    "vocabulary": {"kind": "word", "size": 10_000, "min_frequency": 1, "reserved": 8},
    "batch": {"max_length": 32, "size": 64},
    "schedule": {"name": "cosine", "peak": 3e-3, "warmup": 100},
    "training": {"steps": 1000},
}
"""What does not depend on the system."""
