"""An independent translator agrees with the grammar, and neither way loses anything; the tags of made-up
sentences tell what words do not show.
"""

import pytest

from attnlab.data import grammar as module
from attnlab.data.grammar import Agreement, Grammar, read_target, source_words, target_words
from attnlab.data.tagged import ROOT, TaggedTexts

EXAMPLE = (
    "the big old dogs that see a cat will sleep tomorrow",
    "alba nova kani vete gore ke un mitso vidis dormis va",
)


class Translator:
    """Source text to target text straight from the words, sharing only the word tables with the
    generator.
    """

    def __init__(self, text: str) -> None:
        self.words = text.split()
        self.nouns = {row[n]: (row[2 + n], n) for row in module.NOUNS for n in (0, 1)}
        self.adjectives = {row[0]: row[2:] for row in module.ADJECTIVES}
        self.verbs = {row[n]: row[2:] for row in module.VERBS for n in (0, 1)}
        self.third = {row[0] for row in module.VERBS}
        self.intransitive = {row[n] for row in module.INTRANSITIVE for n in (0, 1)}
        self.determiners = {row[n]: row[2 + n] for row in module.DETERMINERS for n in (0, 1)}
        self.adverbs = dict(module.ADVERBS)

    def sentence(self) -> str:
        adverb = self.adverbs[self.words.pop()] if self.words[-1] in self.adverbs else ""
        subject, number = self.phrase()
        message = f"{adverb} {subject} {self.clause(number)}"
        assert not self.words
        return " ".join(message.split())

    def phrase(self) -> tuple[str, int]:
        determiner = self.words.pop(0)
        adjectives = []
        while self.words[0] in self.adjectives:
            adjectives.insert(0, self.adjectives[self.words.pop(0)])
        noun, number = self.nouns[self.words.pop(0)]
        if determiner in ("a", "this", "some", "these"):
            assert number == (determiner in ("some", "these"))
        message = [self.determiners[determiner], noun, *(forms[number] for forms in adjectives)]
        if self.words and self.words[0] == "that":
            self.words.pop(0)
            message += ["ke", self.clause(number)]
        return " ".join(message), number

    def clause(self, number: int) -> str:
        future = self.words[0] == "will"
        if future:
            self.words.pop(0)
        verb = self.words.pop(0)
        assert (verb in self.third) == (number == 0 and not future)
        patient = "" if verb in self.intransitive else self.phrase()[0]
        return f"{patient} {self.verbs[verb][number]} {'va' if future else ''}"


@pytest.mark.quick
def test_an_independent_translator_agrees_on_ten_thousand_sentences() -> None:
    pairs = Grammar(examples=8_000, depth=2).pairs("train") + Grammar(examples=2_000).pairs("train")
    for source, target in pairs:
        assert Translator(source).sentence() == target


def test_the_target_says_all_that_the_source_says() -> None:
    for source, target in Grammar(examples=2_000, depth=2).pairs("train"):
        sentence = read_target(target)
        assert " ".join(word for word, _ in source_words(sentence)) == source
        assert " ".join(word for word, _ in target_words(sentence)) == target


def test_the_example_of_the_docstring_and_its_alignment() -> None:
    assert Translator(EXAMPLE[0]).sentence() == EXAMPLE[1]
    assert all(text in (Grammar.__doc__ or "") for text in EXAMPLE)
    source, target = (text.split() for text in EXAMPLE)
    linked = {f"{source[i]}-{target[j]}" for i, j in Grammar().alignment(EXAMPLE)}
    expected = (
        *("tomorrow-alba", "tomorrow-nova", "dogs-kani", "old-vete", "big-gore", "that-ke"),
        *("a-un", "cat-mitso", "see-vidis", "sleep-dormis", "will-va"),
    )
    assert linked == {*expected}
    with pytest.raises(ValueError, match="does not translate"):
        Grammar().alignment(("the dog sleeps", "mitso dormas"))


def test_every_target_word_has_one_partner_and_only_the_has_none() -> None:
    source = Grammar(depth=2)
    crossing = 0
    for pair in source.pairs("valid"):
        links = sorted(source.alignment(pair))
        words = pair[0].split()
        assert sorted(j for _, j in links) == list(range(len(pair[1].split())))
        assert {words[i] for i in range(len(words)) if i not in {i for i, _ in links}} <= {"the"}
        crossing += [j for _, j in links] != sorted(j for _, j in links)
    assert crossing > 850  # nearly all are reordered


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kani dormas", "transitive verb|a noun"),  # number of the verb
        ("kano gore dormas", "a noun"),  # number of the adjective
        ("uni kano dormas", "number of its determiner, found 'kano'"),
        ("kano mitso dormas", "transitive verb"),
        ("kano dormas va va", "word 4: expected the end"),
        ("kano", "expected a noun, found 'the end'"),
        ("kano blorg", "expected a noun, found 'blorg'"),
        ("", "expected a noun"),
    ],
)
def test_what_is_no_target_sentence(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_target(text)


def test_depth_bounds_the_nesting_and_the_vocabulary_is_closed() -> None:
    deepest = []
    for depth in range(3):
        pairs = Grammar(examples=600, depth=depth).pairs("train")
        deepest.append(max(target.split().count("ke") for _, target in pairs))
    assert deepest[0] == 0 < deepest[1] <= 2 < deepest[2]  # one in the subject, one in the object
    pairs = Grammar(examples=3_000).pairs("train")
    assert len(dict(pairs)) == len(pairs) == 3_000  # none is repeated
    assert len({word for source, _ in pairs for word in source.split()}) == 50
    assert len({word for _, target in pairs for word in target.split()}) == 56


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
