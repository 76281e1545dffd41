"""The tags of made-up sentences tell what words do not show."""

from attnlab.data.agreement import Agreement
from attnlab.data.tagged import ROOT, TaggedTexts


def test_a_made_up_number_is_that_of_a_noun_that_the_heads_lead_to() -> None:
    hidden = 0
    about = TaggedTexts.load({"name": "agreement", "examples": 30}, {"kind": "spaced"}).about
    assert about("train").endswith(" tags, with trees")
    for one in Agreement(examples=60).tagged("train"):
        assert one.heads is not None and one.heads.count(ROOT) == 1
        kinds = [tag.partition("-")[0] for tag in one.tags]
        assert kinds[one.heads.index(ROOT)] == "VERB"
        for word, (kind, tag) in enumerate(zip(kinds, one.tags, strict=True)):
            if kind in ("DET", "ADJ", "AUX"):
                above = one.tags[one.heads[word]]
                assert above.endswith(tag.partition("-")[2])
                hidden += one.words[word] in ("the", "will")
            if tag == "VERB-one" and "AUX" not in kinds[word - 1]:
                assert one.words[word].endswith("s")
    assert hidden > 30
