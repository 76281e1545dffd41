"""What becomes of examples that are longer than `batch.max_length`: one rule for all splits, said
before the first step.

    score      training leaves them out, scores take them whole; refused where the system cannot read
               them (what configs of earlier versions mean)
    leave_out  they are left out of every split
    cut        every text of them ends early: its first tokens and its end are kept; of sentences with
               tags whole words
    windows    a text is read in as many rows as it takes, so that each token is predicted once
    refuse     an error counts them

Only rows that are whole texts can be longer: a stream is cut into rows of `max_length` in any case.
"""

import hashlib
from typing import Any

import numpy as np

from attnlab.data.dataset import Split
from attnlab.data.settings import AnyBatch, Batch
from attnlab.errors import UserError

_DONE = {
    "score": "scored whole",
    "leave_out": "left out",
    "cut": "cut",
    "windows": "read in windows of that length",
}


def treat_long_examples(data: Any, batch: AnyBatch, extra_tokens: int = 0) -> tuple[Any, list[str]]:
    """Returns the data with examples longer than `batch.max_length` - `extra_tokens` left out, cut
    or only counted, as `batch.longer` says ("refuse" raises `UserError`), and a list with a line of
    text about each affected split. Windows are only counted here: batches cut them.

    Args:
      data: an object of the class `loads` of a task; it is not changed.
      batch: the config node; without `longer` nothing is done.
      extra_tokens: tokens of a row that are not the example's.

    Raises:
      UserError: there are long examples and the rule is "refuse", or nothing else in a split.
    """
    rule = getattr(batch, "longer", None)
    if not isinstance(batch, Batch) or rule is None or getattr(batch, "texts", "apart") != "apart":
        return data, []
    limit, lines = batch.max_length - extra_tokens, []
    for split, examples in data.examples.items():
        lengths = examples.lengths
        longer = np.flatnonzero(lengths > limit)
        if not len(longer) or (rule == "score" and split == "train"):  # batches count those
            continue
        summary = (
            f"{split}: {len(longer):,} of {len(lengths):,} {data.things} longer than"
            f" batch.max_length={batch.max_length} tokens (up to {lengths.max() + extra_tokens:,})"
        )
        if rule == "refuse":
            raise UserError(
                f"{summary}, and config.batch.longer=refuse; raise batch.max_length, or let"
                " batch.longer say what becomes of them ('show' has its values)"
            )
        lines.append(f"{summary} are {_DONE[rule]}")
        if rule == "leave_out":
            data = _leave_out(data, split, longer)
        elif rule == "cut" and hasattr(data, "cut"):
            data, lost = data.cut(split, limit)
            lines[-1] += f": {lost:,} words are neither trained on nor scored"
        elif rule == "cut":
            data = data.with_splits(
                {split: data.stored(split)._replace(examples=examples.cut(limit))}
            )
    return data, lines


def _leave_out(data: Any, split: str, longer: np.ndarray) -> Any:
    """Returns a copy of the data without the examples numbered `longer` of a split, whose
    fingerprint changes; raises `UserError` if none is left.
    """
    stored: Split = data.stored(split)
    remaining = np.delete(np.arange(len(stored.examples)), longer)
    if not len(remaining):
        raise UserError(
            f"config.batch.longer=leave_out: the {split} split has no example of at most"
            " config.batch.max_length tokens; raise it"
        )
    identity = f"{stored.fingerprint} {remaining.tolist()}"
    part = stored._replace(
        rows=[stored.rows[number] for number in remaining.tolist()],
        examples=stored.examples.chosen(remaining),
        fingerprint=hashlib.sha256(identity.encode()).hexdigest(),
    )
    return data.with_splits({split: part})
