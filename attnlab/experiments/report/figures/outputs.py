"""The answers of the variants to the first test examples, side by side; an answer is shown once,
with all variants that gave it.
"""

import difflib
from collections.abc import Sequence

from attnlab.experiments.define import grouped
from attnlab.experiments.report.answers import Answer
from attnlab.experiments.report.comparison import Comparison
from attnlab.experiments.report.figures.colours import ranked
from attnlab.pages.html import Figure, fold_after, literal
from attnlab.pages.svg import Look, cut, swatch

SHOWN = 3  # examples that are not folded away
DIFFERENT = 8  # answers to an example that are not folded away
LONGEST = 400  # characters of a text that are shown


def outputs(comparison: Comparison, looks: Sequence[Look], seed: int) -> Figure | None:
    """Returns the figure of the answers of each row's first seed to the first test examples, side
    by side, equal ones once, in the rows' styles `looks`, or None where no variant has answered;
    `seed` is only named in a note.
    """
    answered = {place: trial.answers for place, trial in comparison.shown.items()}
    number = max((len(answers) for answers in answered.values()), default=0)
    if not number:
        return None
    order = [place for place in ranked(comparison) if place in answered]
    given = [
        {place: answered[place][index] for place in order if index < len(answered[place])}
        for index in range(number)
    ]
    groups = [(place, alike) for place, each in enumerate(given) for alike in _by_example(each)]
    blocks = [_example(place, alike, looks) for place, alike in groups]
    body = fold_after(SHOWN, "examples", '<div class="outputs">', blocks, "</div>")
    referred = any(answer.reference for answers in answered.values() for answer in answers)
    remarks = (
        f"The first examples of the test split as answered with seed {seed}, the best parameters on"
        " validation. Equal answers stand once.",
        "Marked: what is not in the reference." * referred,
    )
    return Figure("Answers side by side", body, remarks)


def _by_example(given: dict[int, Answer]) -> list[dict[int, Answer]]:
    """Groups the answers (by row index) to examples of one number by source and reference; variants
    with other test data have other examples.
    """
    examples = grouped(((each.source, each.reference), (row, each)) for row, each in given.items())
    return list(map(dict, examples.values()))


def _example(number: int, given: dict[int, Answer], looks: Sequence[Look]) -> str:
    """Returns one test example as HTML: its `number` (from 0), source and reference, and each
    different answer in `given` (row index to answer) with the variants that gave it.
    """
    example = next(iter(given.values()))
    lines = [("source", example.source), ("reference", example.reference)]
    head = "".join(f"<dt>{name}</dt><dd>{_broken(text)}</dd>" for name, text in lines if text)
    by_text = grouped((answer.answer, place) for place, answer in given.items())
    rows = [_answer(text, places, example.reference, looks) for text, places in by_text.items()]
    table = fold_after(DIFFERENT, "answers", "<table><tbody>", rows, "</tbody></table>")
    heading = f"<h3>example {number + 1}</h3>{f'<dl>{head}</dl>' if head else ''}"
    return f"<article>{heading}{table}</article>"


def _answer(text: str, places: Sequence[int], reference: str, looks: Sequence[Look]) -> str:
    """Returns a table row as HTML with an answer, marked against the reference and as right if
    equal, and the variants that gave it.
    """
    names = " ".join(_who(looks[place]) for place in places)
    right = ' <b class="right">right</b>' if reference and text == reference else ""
    answer = f'<td data-label="answer">{marked(text, reference)}{right}</td>'
    return f'<tr>{answer}<td data-label="by">{names}</td></tr>'


def _who(look: Look) -> str:
    name = f"{swatch(look) if look.shown else ''}{literal(look.name)}"
    return f'<span class="who" data-row="{look.row}">{name}</span>'


def marked(answer: str, reference: str) -> str:
    """Returns an answer as HTML, cut to `LONGEST` characters, with `<mark>` around the words that
    are not in the reference (characters, where both are one word); an empty answer is
    "<i>nothing</i>", and without a reference no word is marked.
    """
    answer = cut(answer, LONGEST)
    if not answer:
        return "<i>nothing</i>"
    if not reference:
        return _broken(answer)
    single = len(answer.split()) < 2 and len(reference.split()) < 2
    ours, theirs = ([*text] if single else text.split(" ") for text in (answer, reference))
    join = "" if single else " "
    parts = []
    matcher = difflib.SequenceMatcher(None, ours, theirs, autojunk=False)
    for same, begin, end, *_ in matcher.get_opcodes():
        piece = literal(join.join(ours[begin:end]))
        if end > begin:
            parts.append(piece if same == "equal" else f"<mark>{piece}</mark>")
    return join.join(parts)


def _broken(text: str) -> str:
    return literal(cut(text, LONGEST)).replace("\n", "<br>")
