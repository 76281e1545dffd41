"""Golden numbers of scores: log P of every token by `transformers`, in windows as the evaluation
harness cuts them, and what the harness's own back end finds on local tasks.

It runs where torch, transformers, accelerate and lm-eval are installed, without attnlab:

    python -m tests.weights.golden_scores        golden/scores/NAME.json anew, for each of `models.SCORED`

NAME.json has "windows" (of each of `WINDOWS` the log P of each token of each text), "pairs" (log P of
each second text and whether greedy search would write it), and
"tasks" (the measures of each task, and what the model answered to each question).
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from lm_eval import simple_evaluate
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from lm_eval.utils import get_rolling_token_windows

from tests.weights import models

os.environ["HF_DATASETS_OFFLINE"] = os.environ["HF_HUB_OFFLINE"] = "1"


def of_tokens(harness: Any, text: str, window: int | None, stride: int | None) -> list[float]:
    """log P of each token of a text, given what begins it."""
    ids = harness.tok_encode(text, add_special_tokens=False)
    window = window or harness.max_length
    stride = stride or window
    log_probs: list[float] = []
    for read, scored in get_rolling_token_windows(
        ids, harness.prefix_token_id, window, window - stride + 1
    ):
        with torch.no_grad():
            logits = harness.model(torch.tensor([read])).logits[0].double()
        every = torch.log_softmax(logits, dim=-1)[-len(scored) :]
        log_probs += every.gather(1, torch.tensor(scored)[:, None])[:, 0].tolist()
    return log_probs


def asked(kind: str, *arguments: Any) -> Instance:
    """A request of the harness."""
    return Instance(request_type=kind, doc={}, arguments=arguments, idx=0)  # type: ignore[arg-type]


def numbers(name: str, path: Path) -> dict[str, Any]:
    """The content of NAME.json."""
    folder = str(models.tokenized(name, path / name))
    harness = HFLM(pretrained=folder, device="cpu", dtype="float32", batch_size=2)
    names = models.tasks(path / "tasks")
    actual = simple_evaluate(
        model=harness,
        tasks=list(names),
        task_manager=TaskManager(include_path=str(path / "tasks"), include_defaults=False),
        bootstrap_iters=0,
    )
    kept = {
        task: {
            "measures": {
                key: float(value)
                for key, value in actual["results"][task].items()
                if "," in key and "stderr" not in key
            },
            "answers": [sample["resps"] for sample in actual["samples"][task]],
        }
        for task in names
    }
    return {
        "windows": [
            [of_tokens(harness, text, *window) for text in models.TEXTS]
            for window in models.WINDOWS
        ],
        "pairs": harness.loglikelihood([asked("loglikelihood", *pair) for pair in models.PAIRS]),
        "tasks": kept,
    }


def main() -> None:
    """Write the files."""
    torch.set_num_threads(1)
    for name in models.SCORED:
        with tempfile.TemporaryDirectory() as path:
            content = numbers(name, Path(path))
        (models.GOLDEN / "scores").mkdir(exist_ok=True)
        (models.GOLDEN / "scores" / f"{name}.json").write_text(json.dumps(content) + "\n")
        print(name, json.dumps({task: c["measures"] for task, c in content["tasks"].items()}))


if __name__ == "__main__":
    main()
