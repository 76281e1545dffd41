"""`generate` writes a line for each line it reads, wherever the lines come from and go to."""

import io
import os
import stat
import sys
import threading
from pathlib import Path

import pytest

from attnlab.commands import main
from attnlab.data.generated_pairs import Dates
from tests.commands.tiny import CommandResult, completed, refused, run_command, under


def generated(run: Path, *flags: str, stdin: str = "3 of may 1967\n") -> CommandResult:
    return run_command(["generate", f"--workdir={run}", *flags], stdin)


def test_a_line_out_for_each_line_in(trained: Path, tmp_path: Path) -> None:
    """The test split gives translations.txt again; blank lines stay blank, in place; a missing last
    line end is no matter.
    """
    sources = [source for source, _ in Dates(examples=160, valid=10, test=4).pairs("test")]
    expected = (trained / "translations.txt").read_text().splitlines()
    lines = [sources[0], "", *sources[1:3], "  ", sources[3]]
    ended = completed(["generate", f"--workdir={trained}"], "\n".join(lines))
    assert ended.out == "\n".join([expected[0], "", *expected[1:3], "", expected[3], ""])

    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n")
    files = [f"--input={tmp_path / 'in.txt'}", f"--output={tmp_path / 'out.txt'}"]
    quiet = run_command(["generate", f"--workdir={trained}", *files])
    assert (quiet.code, quiet.out, (tmp_path / "out.txt").read_text()) == (0, "", ended.out)


def test_several_hypotheses_of_each_line(searched: Path) -> None:
    """Line number, score, text, best first; a blank line has none."""
    settings = under("decoding", method="beam", beam=20, n_best=3)
    flags = [f"--config.{setting}" for setting in settings]
    ended = generated(searched, *flags, stdin="3 of may 1967\n\n4.5.1999\n")
    assert ended.code == 0, ended.err
    rows = [line.split("\t") for line in ended.out.splitlines()]
    assert [int(number) for number, _, _ in rows] == [1, 1, 1, 3, 3, 3]
    for first in (0, 3):
        scores = [float(score) for _, score, _ in rows[first : first + 3]]
        assert scores == sorted(scores, reverse=True) and scores[0] < 0
    assert len({text for _, _, text in rows[:3]}) == 3


@pytest.mark.full
def test_samples_repeat_with_the_seed(searched: Path) -> None:
    flags = ["--config.decoding.method=sample", "--config.decoding.n_best=2"]
    command = ["generate", f"--workdir={searched}", *flags]
    one, again, other = (
        run_command([*command, f"--config.decoding.seed={seed}"], "3 of may 1967\n").out
        for seed in (0, 0, 1)
    )
    assert one == again != other and one.count("\n") == 2


@pytest.mark.parametrize("method", ["greedy", pytest.param("sample", marks=pytest.mark.full)])
def test_answers_as_they_are_written(searched: Path, method: str) -> None:
    """The same lines in the end, and one line of refusal where nothing can be shown as it grows."""
    command = ["generate", f"--workdir={searched}", f"--config.decoding.method={method}"]
    lines = "3 of may 1967\n\n4.5.1999\n"
    plain, streamed = run_command(command, lines), run_command([*command, "--stream"], lines)
    assert streamed.code == 0, streamed.err
    assert streamed.out == plain.out
    for flag, why in {
        "--config.decoding.method=beam": "only one hypothesis can be shown",
        "--score": "leave out --score",
        "--output=x": "leave out --output",
    }.items():
        assert why in refused(*command, "--stream", flag, stdin=lines)


def test_only_what_reads_prompts_takes_special_tokens(searched: Path) -> None:
    words = "generate --special and --chat: for tasks language_modelling, text_to_text only"
    assert words in refused("generate", f"--workdir={searched}", "--special", stdin="x\n")


def test_nothing_in_nothing_out(searched: Path) -> None:
    assert run_command(["generate", f"--workdir={searched}"], "").out == ""
    assert run_command(["generate", f"--workdir={searched}"], "\n\n").out == "\n\n"


def test_where_the_answers_go(searched: Path, tmp_path: Path) -> None:
    """Into a pipe and into what a link leads to, which stay what they are; a private file stays
    private.
    """
    fifo, private, link = (tmp_path / name for name in ("fifo", "private", "link"))
    os.mkfifo(fifo)
    private.touch(0o600)
    link.symlink_to(private)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(fifo.read_text()), daemon=True)
    reader.start()
    for path in (fifo, link):
        ended = generated(searched, f"--output={path}")
        assert (ended.code, ended.out, ended.err) == (0, "", "")
    reader.join(10)
    assert got == [private.read_text()] and got[0].count("\n") == 1
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert link.is_symlink()
    assert stat.S_IMODE(private.stat().st_mode) == 0o600


def test_a_file_in_a_folder_that_may_not_be_written_to(
    searched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replacing a file needs its folder; that is asked before the work."""
    (tmp_path / "out").touch(0o666)
    # tests may run as root, who may write anywhere
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    line = refused("generate", f"--workdir={searched}", f"--output={tmp_path / 'out'}")
    assert f"error: --output={tmp_path / 'out'}: you may not write there; name" in line


def test_streams_that_a_caller_has_closed_or_made_ascii(
    searched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers are UTF-8 wherever they go, as in a file: what an ascii stdout lacks is neither lost
    nor escaped.
    """
    out, err = io.BytesIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="ascii"))
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["generate", f"--workdir={searched}"]) == 2
    assert "error: stdin is closed; send the lines there, or name a file of" in err.getvalue()
    assert not out.getvalue()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("grün\t1967\n".encode())))
    assert main(["generate", "--score", f"--workdir={searched}"]) == 0, err.getvalue()
    assert out.getvalue().decode().endswith("\tgrün\t1967\n")
