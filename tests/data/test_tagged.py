"""Tagged sentences as rows of ids, tags and heads."""

from attnlab.data.learned import Learned
from attnlab.data.tagged import ROOT, Sentence, encode
from attnlab.data.vocabulary import Vocabulary


def test_the_first_piece_of_a_word_has_its_tag_and_its_head() -> None:
    vocabulary = Vocabulary.train(["it is no dog"], kind="char", min_frequency=1)
    rows = [Sentence(("is", "dog"), ("AUX", "NOUN"), (1, ROOT)), Sentence(("no",), ("X",), (ROOT,))]
    actual = encode(Learned.of_vocabulary(vocabulary, classes=("AUX", "NOUN")), rows)
    source, target, heads = (actual.packed(name) for name in ("source", "target", "heads"))
    tokens = vocabulary.tokens(source[0])
    assert [tokens[1:3], tokens[4:7]] == [["i", "s"], ["d", "o", "g"]]  # a blank is the word's
    assert target[0].tolist() == [0, 1, 0, 2, 0, 0, 0, 0]
    assert heads[0].tolist() == [ROOT, 3, 1, ROOT, 3, 3, 3, ROOT]
    assert target[1][1] == 3  # a tag that training does not have
