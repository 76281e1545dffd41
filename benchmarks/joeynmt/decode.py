"""JoeyNMT's beam search over the test split: seconds of search and batching, start-up and loading
apart, and BLEU.

    python REPOSITORY/benchmarks/joeynmt/decode.py REPOSITORY/benchmarks/joeynmt/rnn.yaml      (in prepare.py's folder, after training)

Decodes with the best checkpoint and the beam of the config (5, length penalty 1, batch 64). Prints
`seconds X`, so that it can follow `--versus` of benchmarks/decoding.py, and `bleu X` as attnlab
computes it.
"""

import logging
import sys
import time
from pathlib import Path

import joeynmt.prediction
import patched  # noqa: F401 - before anything is built
import torch
from joeynmt.config import load_config, parse_global_args
from joeynmt.data import load_data
from joeynmt.helpers import load_checkpoint
from joeynmt.model import build_model
from sacrebleu.metrics.bleu import BLEU

if len(sys.argv) != 2:
    sys.exit(__doc__)
logging.disable(logging.INFO)
config = load_config(Path(sys.argv[1]))
config["data"]["train"] = config["data"]["dev"] = None  # the test split only
arguments = parse_global_args(config, rank=0, mode="train")
source, target, _, _, test = load_data(arguments.data, datasets=["test"])
model = build_model(arguments.model, src_vocab=source, trg_vocab=target)
checkpoint = (Path(config["model_dir"]) / "best.ckpt").resolve()
model.load_state_dict(load_checkpoint(checkpoint, map_location=torch.device("cpu"))["model_state"])
model.loss_function = ("crossentropy", config["training"]["label_smoothing"])

flags = {"device": arguments.device, "n_gpu": 0, "compute_loss": False, "normalization": "tokens"}
clock = time.perf_counter()
hypotheses = joeynmt.prediction.predict(
    model=model, data=test, args=arguments.test, autocast=arguments.autocast, **flags
)[2]
seconds = time.perf_counter() - clock
references = Path("reference.en").read_text(encoding="utf-8").split("\n")[:-1]
score = BLEU(lowercase=True).corpus_score(hypotheses, [references])
Path(f"hypotheses.{config['name']}.en").write_text(
    "".join(line + "\n" for line in hypotheses), encoding="utf-8"
)
print("parameters", sum(leaf.numel() for leaf in model.parameters()))
print("sentences", len(hypotheses))
print("bleu", f"{score.score:.6g}")
print("seconds", f"{seconds:.6g}")
