"""A model that begins with the weights of another: the folder of it is the argument.

    python launch.py train --config=configs/pretrained.py:FOLDER --workdir=runs/tuned --config.data=text --config.data.directory=my/folder

FOLDER is as `transformers` of Hugging Face writes it (`save_pretrained`): config.json, safetensors, tokenizer.json; GPT-2, Llama,
Mistral, Qwen 2 and 3, Gemma 1 to 3; BERT with the head of a masked language model, or of a classifier of texts, whose labels are
those of your table; T5 and BART, which read pairs (--config.data=json, say); ViT, and
ResNet in the names of torchvision, whose data are folders of images. FOLDER:classification and FOLDER:tagging give a BERT with
another head a new one for labels of your own. The system is the model's, the vocabulary its
tokenizer. `import` makes a run of it that has not been trained, for `generate` and `inspect`, and `evaluate` once data is
named; `export RUN --to=transformers` writes a run as such a folder.
"""

from pathlib import Path
from typing import Any

from attnlab import weights
from attnlab.errors import UserError


def get_config(argument: str = "") -> dict[str, Any]:
    """The configuration of the model in a folder; "FOLDER:TASK" for another head."""
    folder, colon, task = argument.rpartition(":")
    if not colon or Path(argument).expanduser().exists():
        folder, task = argument, ""
    if not folder:
        raise UserError("configs/pretrained.py:FOLDER needs the folder of a model behind the colon")
    return weights.run_config(Path(folder).expanduser(), task)
