"""Files that hold their own hash show their damage."""

import json
from pathlib import Path

import pytest

from attnlab.data.learned import Learned, has_learned, load_vocabularies
from attnlab.data.sealed import digest_of
from attnlab.errors import UserError
from tests.refusals import check_refused

LABELS = Learned(classes=("no", "yes"), sentences=2)
IMAGES = Learned(classes=("a", "b"), shape=(2, 3, 1), mean=(0.5,), deviation=(0.25,))


@pytest.mark.quick
@pytest.mark.parametrize(
    ("learned", "part", "verb", "its"),
    [(LABELS, "labels", "are", "their"), (IMAGES, "images", "is", "its")],
)
def test_what_was_kept_and_is_damaged(
    tmp_path: Path, learned: Learned, part: str, verb: str, its: str
) -> None:
    learned.save(tmp_path)
    assert Learned.load(tmp_path, (part,)) == learned and has_learned(tmp_path, (part,))
    path = tmp_path / "vocabulary" / f"{part}.json"
    path.write_text(path.read_text().replace(learned.classes[1], "c"))
    words = rf"{part}.json {verb} damaged \({its} checksum does not match\); put back a good copy"
    check_refused(words, Learned.load, tmp_path, (part,))
    for content in ('{"labels"', json.dumps({"classes": "ab", "labels": 3})):
        path.write_text(content)
        with pytest.raises(UserError, match=f"{part}.json {verb} damaged .*put back a good copy"):
            Learned.load(tmp_path, (part,))
    path.unlink()
    check_refused(f"cannot read .*{part}.json", Learned.load, tmp_path, (part,))
    check_refused(r"cannot read the vocabulary .*source\.json", load_vocabularies, tmp_path)


def test_a_digest_is_of_the_values() -> None:
    assert digest_of({"a": 1, "b": [2]}) == digest_of(json.loads('{"b":[2], "a" :1}'))
    assert digest_of({"a": 1}) != digest_of({"a": 2})
