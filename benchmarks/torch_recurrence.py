"""The other side of `benchmarks.recurrence`: the same training step by torch's nn.LSTM.

    python -P benchmarks/torch_recurrence.py [--width=650 ...]          in an environment with torch; imports nothing of attnlab

Prints the median seconds as a line `seconds_per_step X`, eager, with torch's own number of threads.
"""

import argparse
import statistics
import time
from typing import Any

import torch

SIZES = {
    "width": 650,
    "layers": 2,
    "rows": 20,
    "steps": 35,
    "vocabulary": 10000,
}  # as in recurrence.py


class Model(torch.nn.Module):
    """Embedding, LSTM layers, output layer."""

    def __init__(self, width: int, layers: int, vocabulary: int) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(vocabulary, width)
        self.reader = torch.nn.LSTM(width, width, layers)
        self.out = torch.nn.Linear(width, vocabulary)

    def forward(self, tokens: Any, state: Any) -> Any:
        """Tokens [T,B] to logits [T,B,V] and the state after them."""
        outputs, state = self.reader(self.embed(tokens), state)
        return self.out(outputs), state


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    chosen = parser.parse_args()
    model = Model(chosen.width, chosen.layers, chosen.vocabulary)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    text = torch.randint(chosen.vocabulary, (chosen.steps + 1, chosen.rows))
    state = tuple(torch.zeros(chosen.layers, chosen.rows, chosen.width) for _ in range(2))
    taken: list[float] = []
    while len(taken) < 9 or sum(taken[2:]) < 5.0:  # the first two do not count
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        logits, state = model(text[:-1], state)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), text[1:].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        state = tuple(part.detach() for part in state)
        taken.append(time.perf_counter() - start)
    print(f"seconds_per_step {statistics.median(taken[2:]):.6g}", flush=True)


if __name__ == "__main__":
    main()
