"""What the variants make of the first test examples: their answers side by side (an answer is shown
once, with all variants that gave it), and their attention maps, as many as fit a page.
"""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path

from attnlab.experiments.define import grouped
from attnlab.experiments.report.answers import Answer
from attnlab.experiments.report.comparison import Comparison
from attnlab.experiments.report.figures.colours import ranked
from attnlab.pages.html import Figure, fold, fold_after, literal, picture
from attnlab.pages.svg import Look, cut, swatch

SHOWN = 3  # examples that are not folded away
DIFFERENT = 8  # answers to an example that are not folded away
LONGEST = 400  # characters of a text that are shown
VARIANTS = 12  # whose pictures are shown
BYTES = 700_000  # of all pictures together; base64 in the page takes four thirds of it
_HALF = 600  # pixels
_ASIDE = "self"  # self-attention maps come after the others, folded
Pictures = Mapping[int, Mapping[str, Path]]  # by example and map


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


def maps(comparison: Comparison, looks: Sequence[Look], seed: int) -> Figure | None:
    """Returns the figure of attention maps for the first test examples, as many as fit the page, of
    the first seed's trial of each row, under the rows' styles `looks`, or None without any; `seed`
    is only named in a note.

    The best variants come first, and the baseline with them; the first example of all before the
    second of any.
    """
    shown = comparison.shown.items()
    images = {place: trial.pictures for place, trial in shown if trial.pictures}
    order = [place for place in ranked(comparison) if place in images]
    order = sorted(order, key=lambda place: looks[place].kind != "base")[:VARIANTS]
    if not order:
        return None
    taken = _fitting({place: images[place] for place in order})
    order = [place for place in ranked(comparison) if place in taken]
    blocks = "".join(_block(looks[place], taken[place]) for place in order)
    left_out = [place for place in ranked(comparison) if place in images and place not in taken]
    missing = [looks[place].name for place in left_out]
    count = {place: sum(map(len, images[place].values())) for place in order}
    fewer = sum(count[place] > sum(map(len, taken[place].values())) for place in order)
    remarks = (
        f"Test split, seed {seed}, best parameters on validation. Rows look at columns.",
        f"Left out, as a page cannot carry all: {', '.join(missing)}." if missing else "",
        f"Of {fewer} variants only the first pictures are here, for the same reason." * bool(fewer),
        "Every picture lies in its trial's folder, in maps/." if missing or fewer else "",
    )
    return Figure("Attention", f'<div class="figures">{blocks}</div>', remarks)


def _fitting(images: Mapping[int, Pictures]) -> dict[int, Pictures]:
    """Returns those pictures of each variant (by row index) that fit into `BYTES` bytes for all
    together: first maps between two texts of the first example, then its self-attention, then other
    examples; the first variant always has its first picture, and a variant without any is left out.
    """
    taken: dict[int, dict[int, dict[str, Path]]] = {}
    left = BYTES
    for example in sorted({example for pictures in images.values() for example in pictures}):
        for part in (0, 1):
            for place, pictures in images.items():
                wanted = _parts(pictures.get(example, {}))[part]
                size = sum(path.stat().st_size for path in wanted.values())
                if wanted and (size <= left or not taken) and (example == 0 or place in taken):
                    taken.setdefault(place, {}).setdefault(example, {}).update(wanted)
                    left -= size
    return dict(taken)


def _parts(pictures: Mapping[str, Path]) -> tuple[Mapping[str, Path], Mapping[str, Path]]:
    """Divides maps into those between two texts and self-attention maps; if all are self-attention
    they are the first part.
    """
    between = {name: path for name, path in pictures.items() if _ASIDE not in name} or pictures
    return between, {name: path for name, path in pictures.items() if name not in between}


def _block(look: Look, pictures: Pictures) -> str:
    """Returns the pictures of a variant (by example and then by map, paths of PNG files) as an HTML
    article under the name in `look`: those of its first example, with its self-attention and the
    other examples folded.
    """
    (first, shown), *others = sorted(pictures.items())
    between, aside = _parts(shown)
    more = fold("self-attention", _images(look.name, first, aside)) if aside else ""
    more += "".join(
        fold(f"example {number + 1}", _images(look.name, number, paths)) for number, paths in others
    )
    several = ' class="several"' if len(between) > 1 or any(map(_is_long, between.values())) else ""
    heading = f"<h3>{literal(look.name)}</h3>"
    images = _images(look.name, first, between)
    return f'<article{several} data-row="{look.row}">{heading}{images}{more}</article>'


def _images(variant: str, example: int, pictures: Mapping[str, Path]) -> str:
    """Returns an HTML `img` element for each of a variant's pictures of one example (name of the
    map to PNG file), with the file embedded as base64.
    """
    return "".join(
        picture(path, f"{variant}: {name}, example {example + 1}", "long" * _is_long(path))
        for name, path in pictures.items()
    )


def _is_long(picture: Path) -> bool:
    """Whether a PNG is too wide to be read in half a page; its header has the width."""
    with picture.open("rb") as file:
        return int.from_bytes(file.read(20)[16:]) > _HALF
