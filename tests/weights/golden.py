"""Golden numbers of `transformers`: what its models compute from tiny configs and from parameters
that both sides draw by `rule.py`.

It runs where torch and transformers are installed, without attnlab:

    python -m tests.weights.golden write [NAME ...]      golden/NAME.json and golden/NAME.npz anew
    python -m tests.weights.golden check FOLDER          does transformers load each folder FOLDER/NAME that attnlab has written from
                                                         the golden model NAME, whole, and compute the same logits to the last bit?

`golden_files.py` says what NAME.json has; NAME.npz has
    ids [2,13], logits [2,13,V], loss (mean over 2 x 12 next tokens), greedy [100] after ids[0,:5],
    grad_norm [P] and grad_along [P]: |g| and g . u of the gradient of each tensor in the order of NAME.json, u from `rule.uniform`.
"""

from typing import Any

import numpy as np
import torch

from tests.weights import golden_files, rule


def computed(model: Any, config: dict[str, Any]) -> dict[str, np.ndarray]:
    """The numbers of NAME.npz, without those of gradients."""
    ids = rule.tokens(config["vocab_size"], 2, 13)
    batch = torch.from_numpy(ids).long()
    logits = model(batch).logits
    loss = torch.nn.functional.cross_entropy(
        logits[:, :-1].reshape(-1, logits.shape[-1]), batch[:, 1:].reshape(-1)
    )
    loss.backward()
    chosen, prompt = [], batch[:1, :5]
    with torch.no_grad():
        for _ in range(100):
            last = model(prompt, use_cache=False).logits[0, -1]
            chosen.append(int(last.argmax()))
            prompt = torch.cat([prompt, last.argmax()[None, None]], dim=1)
    return {
        "ids": ids,
        "logits": logits.detach().numpy(),
        "loss": np.float64(loss.item()),
        "greedy": np.array(chosen, np.int32),
    }


if __name__ == "__main__":
    golden_files.main("", computed)
