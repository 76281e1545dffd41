"""Average precision of random sets by COCO's own evaluation code, once and for all:

    python -m venv V && V/bin/pip install numpy pycocotools==2.0.11
    V/bin/python -m tests.tasks.golden_boxes     golden_boxes.npz anew, in the root of the repository

`precisions` [200,3,10] is AP by set, class and threshold of IoU; nan for a class without objects. The
sets have whole pixels, so that no number is rounded before it is compared, and few scores, so that many
are equal. Objects are crowd regions or have no extent now and then; some say `ignore`. In some images
a class has more answers than count.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FILE = Path(__file__).with_suffix(".npz")
SETS, CLASSES = 200, 3


class Set(NamedTuple):
    """Objects and answers, each a box (first column, first row, width, height) with `image`,
    `category`, and `iscrowd` or `score`.
    """

    images: int
    objects: list[dict[str, Any]]
    answers: list[dict[str, Any]]


def drawn(number: int) -> Set:
    """Set `number`."""
    rng = random.Random(number)

    def below(count: int) -> int:  # of all draws only this one is the same in every Python
        return int(rng.random() * count)

    images, objects, answers = 1 + below(5), list[dict[str, Any]](), list[dict[str, Any]]()
    for image in range(1, images + 1):
        for _ in range(below(6)):
            category = 1 + below(CLASSES - number % 2)
            box = [below(40), below(40), below(24), 1 + below(24)]
            crowd, ignore = int(below(5) == 0), int(below(5) == 0)
            one = {"image_id": image, "category_id": category, "bbox": box}
            objects.append({**one, "iscrowd": crowd, "ignore": ignore, "area": box[2] * box[3]})
            for _ in range(40 if number % 20 == 0 else below(4)):
                moved = [max(0, side + below(5) - 2) for side in box]
                other = category if below(5) else 1 + below(CLASSES)
                answers.append({**one, "category_id": other, "bbox": moved})
        for _ in range(below(3)):
            box = [below(40), below(40), below(24), below(24)]
            answers.append({"image_id": image, "category_id": 1 + below(CLASSES), "bbox": box})
    return Set(images, objects, [{**one, "score": below(10) / 10} for one in answers])


def judged(given: Set) -> np.ndarray:
    """AP of a set by class and threshold, [3,10], as `pycocotools` has it."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    truth = COCO()
    truth.dataset = {
        "images": [{"id": number} for number in range(1, given.images + 1)],
        "categories": [{"id": number} for number in range(1, CLASSES + 1)],
        "annotations": [{"id": at, **one} for at, one in enumerate(given.objects, 1)],
    }
    truth.createIndex()
    found = COCO()
    found.dataset = {
        **truth.dataset,
        "annotations": [
            {"id": at, "area": one["bbox"][2] * one["bbox"][3], "iscrowd": 0, **one}
            for at, one in enumerate(given.answers, 1)
        ],
    }
    found.createIndex()
    judge = COCOeval(truth, found, "bbox")
    judge.evaluate()
    judge.accumulate()
    precision = judge.eval["precision"][:, :, :, 0, -1].mean(axis=1).T
    return np.where(precision < 0, np.nan, precision)


if __name__ == "__main__":
    np.savez_compressed(FILE, precisions=np.stack([judged(drawn(one)) for one in range(SETS)]))
