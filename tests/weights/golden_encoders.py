"""Golden numbers of the encoders of `transformers`, as `golden.py` has them of its language models;
it runs in the same way:

    python -m tests.weights.golden_encoders write [NAME ...]     golden/encoders/NAME.json and NAME.npz anew
    python -m tests.weights.golden_encoders check FOLDER         does transformers load each FOLDER/NAME whole, and compute the same?

NAME.npz has ids and types [2,13] (a row begins with the id 3, its second text at token 5), outputs
(logits of tokens [2,13,V], or of texts [2,C]), labels, related [2,2] where there is a head for
pairs, loss (mean cross-entropy of outputs against labels, and of related against 0 and 1), grad_norm
and grad_along as in `golden.py`.
"""

from typing import Any

import numpy as np
import torch

from tests.weights import golden_files, rule

BEGIN = 3  # the id that begins every row; token 5 begins the second text


def computed(model: Any, config: dict[str, Any]) -> dict[str, np.ndarray]:
    """The numbers of NAME.npz, without those of gradients."""
    ids = rule.tokens(config["vocab_size"], 2, 13)
    ids[:, 0] = BEGIN
    types = np.broadcast_to(np.arange(13) >= 5, (2, 13)).astype(np.int32)
    given = (torch.from_numpy(one.copy()).long() for one in (ids, types))
    actual = model(**dict(zip(("input_ids", "token_type_ids"), given, strict=True)))
    outputs = actual.logits if "logits" in actual else actual.prediction_logits
    labels = torch.from_numpy(rule.tokens(outputs.shape[-1], 2, 13)).long()
    labels = labels if outputs.ndim == 3 else labels[:, 0]
    cost = torch.nn.functional.cross_entropy
    loss = cost(outputs.reshape(-1, outputs.shape[-1]), labels.reshape(-1))
    related = {}
    if "seq_relationship_logits" in actual:
        loss = loss + cost(actual.seq_relationship_logits, torch.tensor([0, 1]))
        related = {"related": actual.seq_relationship_logits.detach().numpy()}
    loss.backward()
    return {
        "ids": ids,
        "types": types,
        "outputs": outputs.detach().numpy(),
        "labels": labels.numpy(),
        **related,
        "loss": np.float64(loss.item()),
    }


if __name__ == "__main__":
    golden_files.main("encoders", computed)
