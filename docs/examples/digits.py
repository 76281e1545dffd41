"""Writes train.jsonl, valid.jsonl and test.jsonl into the folder you stand in: digits, the same in order, and their mean."""

import json
import random

draw = random.Random(0)
for split, count in {"train": 4000, "valid": 200, "test": 200}.items():
    with open(f"{split}.jsonl", "w", encoding="utf-8") as file:
        for _ in range(count):
            digits = [draw.randrange(10) for _ in range(draw.randint(3, 9))]
            texts = {
                "source": " ".join(map(str, digits)),
                "target": " ".join(map(str, sorted(digits))),
            }
            print(json.dumps({**texts, "label": round(sum(digits) / len(digits), 4)}), file=file)
