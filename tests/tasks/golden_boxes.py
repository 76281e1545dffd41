"""Average precision of random sets by COCO's own evaluation code, once and for all:

    python -m venv V && V/bin/pip install numpy pycocotools==2.0.11
    V/bin/python -m tests.tasks.golden_boxes     golden_boxes.npz anew, in the root of the repository

`precisions` [200,3,10] is AP by set, class and threshold of IoU; nan for a class without objects. The
sets have whole pixels, so that no number is rounded before it is compared, and few scores, so that many
are equal. Objects are crowd regions or have no extent now and then; some say `ignore`. In some images
a class has more answers than count.
"""

import random
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_suffix(".npz")
SETS, CLASSES = 200, 3
Listed = list[dict[str, Any]]


def drawn(number: int) -> tuple[int, Listed, Listed]:
    """The number of images of set `number`, its objects and its answers, each with `image_id`,
    `category_id`, `bbox` (first column, first row, width, height), and `iscrowd` or `score`.
    """
    rng = random.Random(number)

    def below(count: int) -> int:  # of all draws only this one is the same in every Python
        return int(rng.random() * count)

    images, objects, answers = 1 + below(5), Listed(), Listed()
    for image in range(1, images + 1):
        for _ in range(below(6)):
            category = 1 + below(CLASSES - number % 2)
            box = [below(40), below(40), below(24), 1 + below(24)]
            flags = {name: int(below(5) == 0) for name in ("iscrowd", "ignore")}
            one = {"image_id": image, "category_id": category, "bbox": box}
            objects.append({**one, **flags})
            for _ in range(40 if number % 20 == 0 else below(4)):
                moved = [max(0, side + below(5) - 2) for side in box]
                other = category if below(5) else 1 + below(CLASSES)
                answers.append({**one, "category_id": other, "bbox": moved})
        for _ in range(below(3)):
            box = [below(40), below(40), below(24), below(24)]
            answers.append({"image_id": image, "category_id": 1 + below(CLASSES), "bbox": box})
    return images, objects, [{**one, "score": below(10) / 10} for one in answers]


def judged(images: int, *both: Listed) -> np.ndarray:
    """AP of a set by class and threshold, [3,10], as `pycocotools` has it."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    def indexed(listed: Listed) -> COCO:
        numbered = {"images": images, "categories": CLASSES}
        actual = COCO()
        actual.dataset = {
            **{name: [{"id": at + 1} for at in range(most)] for name, most in numbered.items()},
            "annotations": [
                {"iscrowd": 0, **one, "id": at, "area": one["bbox"][2] * one["bbox"][3]}
                for at, one in enumerate(listed, 1)
            ],
        }
        actual.createIndex()
        return actual

    judge = COCOeval(*map(indexed, both), "bbox")
    judge.evaluate()
    judge.accumulate()
    precision = judge.eval["precision"][:, :, :, 0, -1].mean(axis=1).T
    return np.where(precision < 0, np.nan, precision)


if __name__ == "__main__":
    np.savez_compressed(FILE, precisions=np.stack([judged(*drawn(one)) for one in range(SETS)]))
