"""Texts from files of JSON lines: one object a line, with a field for each text and for the label.

{"source": "not bad at all", "target": "pas mal du tout", "label": 4}
"""

import dataclasses
import json

from attnlab.data.files import find_file, read_lines
from attnlab.errors import UserError, nearest


@dataclasses.dataclass(frozen=True)
class JsonLines:
    """Fields of the objects in `<split>.jsonl`, plain, .gz or .xz.

    Attributes:
      directory: where the files lie; "" for the current folder.
      train, valid, test: the file of each split.
      source, target: the fields of the two texts; `target` is "" where single texts are labelled.
      label: the field of the label, a text or a number.
    """

    directory: str = ""
    train: str = "train.jsonl"
    valid: str = "valid.jsonl"
    test: str = "test.jsonl"
    source: str = "source"
    target: str = "target"
    label: str = "label"

    @property
    def sentences(self):
        return 2 if self.target else 1

    def pairs(self, split):
        return self._read(split, self.source, self.target)

    def texts(self, split):
        return [text for (text,) in self._read(split, self.source)]

    def labelled(self, split):
        texts = (self.source, self.target)[: self.sentences]
        return [(tuple(found), label) for *found, label in self._read(split, *texts, self.label)]

    def _read(self, split, *fields):
        path, rows = find_file(self.directory, getattr(self, split)), []
        for number, line in enumerate(read_lines(path), 1):
            try:
                record = json.loads(line)
            except ValueError as error:
                raise UserError(f"{path}, line {number}: no JSON ({error})") from error
            if not isinstance(record, dict):
                raise UserError(f"{path}, line {number}: expected an object, {{...}}")
            for field in fields:
                if field not in record:
                    raise UserError(
                        f"{path}, line {number}: no field {field!r}; {nearest(field, record)}"
                    )
            rows.append(tuple(str(record[field]) for field in fields))
        return rows
