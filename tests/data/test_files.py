"""The user's files are read as they are, and each thing that can be wrong with them is one line."""

import gzip
import logging
import lzma
from pathlib import Path

import pytest

from attnlab.data import files
from attnlab.data.files import ParallelFiles, TabFiles, TextFiles, contents, find_file
from tests.refusals import check_refused

GERMAN, ENGLISH = "Ein Hund.\nZwei Hunde.\n", "A dog.\nTwo dogs.\n"
PAIRS = [("Ein Hund.", "A dog."), ("Zwei Hunde.", "Two dogs.")]


def write(
    folder: Path, german: str | bytes = GERMAN, english: str | bytes = ENGLISH, split: str = "train"
) -> ParallelFiles:
    for side, text in (("de", german), ("en", english)):
        (folder / f"{split}.{side}").write_bytes(text.encode() if isinstance(text, str) else text)
    return ParallelFiles(str(folder))


@pytest.mark.quick
@pytest.mark.parametrize("end,pack", [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)])
def test_plain_and_packed_files(tmp_path: Path, end: str, pack: type[bytes]) -> None:
    """Parallel ones, a table by its columns, and plain text, which keeps its lines: blank ones and
    the white space at their ends too.
    """
    (tmp_path / f"train.de{end}").write_bytes(pack(GERMAN.encode()))
    (tmp_path / "train.en").write_text(ENGLISH)
    assert ParallelFiles(str(tmp_path)).pairs("train") == PAIRS
    table = b"1\tA dog.\tEin Hund.\r\n\t\t\n2\tTwo dogs.\tZwei Hunde. \textra\n\n"
    (tmp_path / f"train.tsv{end}").write_bytes(pack(table))
    assert TabFiles(str(tmp_path), source=3, target=2).pairs("train") == PAIRS
    (tmp_path / f"valid.txt{end}").write_bytes(pack(b"  To be,\r\n\nor not \n"))
    assert TextFiles(str(tmp_path)).texts("valid") == ["  To be,", "", "or not "]


@pytest.mark.parametrize(
    ("german", "english", "message"),
    [
        ("a\n\nb\n", "1\n2\n3\n", "{de}, line 2: blank, while {en}"),
        ("a\nb\n", "1\n \n", "{en}, line 2: blank"),
        ("\n\n", "\n\n", "hold nothing but blank lines"),
        ("a\nb\nc\n", "1\n2\n", "{de} has 3 lines, but {en} has 2"),
        (b"a\n\n\xf6\n", "a\n\nb\n", "{de}, line 3: not UTF-8 .byte 0xf6.; convert the file"),
        (b"\xff", "a", "{de}, line 1: not UTF-8"),
        ("a", "", "{en} is empty"),
    ],
)
def test_what_is_wrong_with_parallel_files(
    tmp_path: Path, german: str | bytes, english: str, message: str
) -> None:
    names = {language: tmp_path / f"train.{language}" for language in ("de", "en")}
    check_refused(message.format(**names), write(tmp_path, german, english).pairs, "train")


def test_prefixes_and_languages_by_field(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "news.fr").write_text("Un chien")
    (tmp_path / "dev" / "news.en").write_text("A dog")
    source = ParallelFiles(str(tmp_path), valid="dev/news", source="en", target="fr")
    assert source.pairs("valid") == [("A dog", "Un chien")]
    # lines end at newline alone, and are stripped
    source = write(tmp_path, "\ufeff  a\u2028b\x0bc \r\nd\x85e", " 1 \n2\t\n")
    assert source.pairs("train") == [("a\u2028b\x0bc", "1"), ("d\x85e", "2")]


def test_blank_pairs_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        expected = [("a", "1"), ("b", "2")]
        assert write(tmp_path, "a\n \nb\n\n", "1\n\n2\n\n").pairs("train") == expected
    assert "skipped 2 blank lines" in caplog.text


def test_damaged_and_empty_packed_files(tmp_path: Path) -> None:
    (tmp_path / "train.en").write_text(ENGLISH)
    for ending, content in (
        (".gz", b"no gzip at all"),
        (".gz", gzip.compress(GERMAN.encode() * 100)[:-20]),
        (".gz", gzip.compress(b"abc" * 99, mtime=0)[:15] + b"\xff" * 30),
        (".gz", b""),
        (".xz", lzma.compress(GERMAN.encode())[:-9]),
    ):
        path = tmp_path / f"train.de{ending}"
        path.write_bytes(content)
        words = f"{path} is damaged or no {ending} file" if content else f"{path} is empty"
        check_refused(words, ParallelFiles(str(tmp_path)).pairs, "train")
        path.unlink()


@pytest.mark.parametrize("ending", [".gz", ".xz"])
def test_a_small_file_cannot_fill_the_memory(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten million equal bytes are refused beyond the bound; text that packs as texts do is read."""
    pack = {".gz": gzip.compress, ".xz": lzma.compress}[ending]
    path = tmp_path / f"large{ending}"
    path.write_bytes(pack(bytes(10**7)))
    assert contents(path) == bytes(10**7)
    monkeypatch.setattr(files, "MOST_UNPACKED", 1 << 20)
    check_refused(r"large.* holds more than \d+ MiB in \d+ bytes", contents, path)
    text = "\n".join(map(str, range(300_000))).encode()
    path.write_bytes(pack(text))
    assert contents(path) == text


def test_a_missing_file_names_what_was_tried_and_what_is_near(tmp_path: Path) -> None:
    words = "tried train.de, train.de.gz, train.de.xz.*did you mean 'trian.de'"
    check_refused(words, write(tmp_path, split="trian").pairs, "train")
    for i in range(100):
        (tmp_path / f"{i}_something_else").touch()
    words = "the folder has 102 entries, none with a similar name"
    check_refused(words, find_file, str(tmp_path), "qqqq")


def test_a_missing_folder_and_an_unreadable_file(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    words = f"the folder {absent} cannot be read .No such file or directory"
    check_refused(words, ParallelFiles(str(absent)).pairs, "train")
    (tmp_path / "train.de").mkdir()
    (tmp_path / "train.en").write_text(ENGLISH)
    words = f"^cannot read {tmp_path / 'train.de'}: Is a directory$"
    check_refused(words, ParallelFiles(str(tmp_path)).pairs, "train")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\nc\n", "train.tsv, line 2: 1 columns, but column 2 is asked for"),
        ("a\tb\nc\t \n", "column 2 of .*train.tsv, line 2: blank, while column 1"),
        ("\tb\n", "column 1 of .*train.tsv, line 1: blank"),
        ("\n\n", "nothing but blank lines"),
        ("", "train.tsv is empty"),
    ],
)
def test_what_can_be_wrong_with_a_table(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "train.tsv").write_text(text)
    check_refused(message, TabFiles(str(tmp_path)).pairs, "train")
    check_refused("columns, counted from 1", TabFiles(str(tmp_path), source=0).pairs, "train")


def test_parts_of_one_file_are_all_of_it(tmp_path: Path) -> None:
    (tmp_path / "all.txt").write_text("".join(f"{number}\n" for number in range(33)))
    source = TextFiles(
        str(tmp_path), train="all.txt[:80%]", valid="all.txt[80%:95%]", test="all.txt[95%:]"
    )
    parts = [source.texts(split) for split in ("train", "valid", "test")]
    whole = [str(number) for number in range(33)]
    assert parts == [whole[:26], whole[26:31], whole[31:]]
    assert TextFiles(str(tmp_path), train="all.txt[:]").texts("train") == whole


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("all.txt[50%:50%]", "the part begins at 50 % and ends at 50 %"),
        ("all.txt[:101%]", "ends at 101 %"),
        ("all.txt[1%:40%]", "no text in 1 of the 4 lines"),
        ("al.txt", "did you mean 'all.txt'"),
        ("all.txt[:0.5]", "cannot find"),
    ],
)
def test_what_can_be_wrong_with_plain_text(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "all.txt").write_text("\n \na\nb\n")
    check_refused(message, TextFiles(str(tmp_path), train=name).texts, "train")
