"""`inspect` draws a picture of every map and writes an archive of every pair."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import attnlab
from tests.commands.tiny import Runs, arguments, completed, refused, run_command

SLOTS = [f"{slot}_attention" for slot in ("decoder_0/cross", "decoder_0/self", "encoder_0/self")]
PNG = b"\x89PNG\r\n\x1a\n"


def test_a_given_pair(trained: Path, tmp_path: Path) -> None:
    """Every map as PNG and all of them in one archive that numpy reads, with the tokens."""
    flags = ["--source=3 of may 1967", "--target=1967-05-03", f"--output={tmp_path / 'maps'}"]
    ended = completed(["inspect", f"--workdir={trained}", *flags])
    arrays = np.load(tmp_path / "maps" / "0.npz")
    names = [name for name in arrays.files if name not in ("source_tokens", "target_tokens")]
    assert sorted(names) in (["attention"], SLOTS)
    assert arrays["source_tokens"].tolist() == [*"3\u2423of\u2423may\u24231967", "</s>"]
    assert arrays["target_tokens"].tolist() == [*"1967-05-03", "</s>"]
    for name in names:
        assert arrays[name].ndim == 3 and np.allclose(arrays[name].sum(-1), 1.0, atol=1e-5)
        assert (tmp_path / "maps" / f"0-{name.replace('/', '-')}.png").read_bytes().startswith(PNG)
    arcs = [name for name in names if "self" in name]
    assert all(
        (tmp_path / "maps" / f"0-{name.replace('/', '-')}-arcs.png").read_bytes().startswith(PNG)
        for name in arcs
    )
    assert len(list((tmp_path / "maps").iterdir())) == len(names) + len(arcs) + 3
    assert ended.out.splitlines()[2] == "3 of may 1967  ->  1967-05-03"
    assert (tmp_path / "maps" / "atlas.html").read_text().startswith("<!doctype html>")
    both = np.load(tmp_path / "maps" / "maps.npz")
    np.testing.assert_array_equal(both[f"0/{names[0]}"], arrays[names[0]])
    assert str(tmp_path / "maps" / "0.npz") in ended.out


def test_a_file_of_pairs_and_translations_of_its_own(searched: Path, tmp_path: Path) -> None:
    """Without a target the system translates first; numbers count the lines; the default folder is
    in the workdir.
    """
    (tmp_path / "pairs.tsv").write_text("3 of may 1967\t1967-05-03\n4.5.1999\n")
    ended = completed(["inspect", f"--workdir={searched}", f"--pairs={tmp_path / 'pairs.tsv'}"])
    own = run_command(["generate", f"--workdir={searched}"], "4.5.1999\n").out.removesuffix("\n")
    expected = ["3 of may 1967  ->  1967-05-03", f"4.5.1999  ->  {own}"]
    assert [line for line in ended.out.splitlines() if "->" in line] == expected
    for number, target in ((0, "1967-05-03"), (1, own)):
        arrays = np.load(searched / "maps" / f"{number}.npz")
        assert "".join(arrays["target_tokens"][:-1]).replace("\u2423", " ") == target
        assert arrays["attention"].shape == (1, len(target) + 1, len(arrays["source_tokens"]))
    flags = ["--pairs=-", f"--output={tmp_path / 'piped'}"]
    piped = run_command(["inspect", f"--workdir={searched}", *flags], "4.5.1999\n")
    assert piped.code == 0 and (tmp_path / "piped" / "0-attention.png").is_file()


@pytest.mark.full
def test_a_run_without_attention_has_sensitivities_when_asked(tmp_path: Path) -> None:
    completed(arguments("rnn_encoder_decoder", tmp_path / "run", "training.steps=2"))
    assert (tmp_path / "run" / "results.json").is_file()
    assert not (tmp_path / "run" / "maps").exists()
    completed(["inspect", f"--workdir={tmp_path / 'run'}", "--source=4.5.1999"])
    for side in ("source", "target_in"):
        assert (tmp_path / "run" / "maps" / f"0-sensitivity_to-{side}.png").is_file()


def test_chosen_maps_of_two_runs(runs: Runs, tmp_path: Path) -> None:
    """One page has the same text in both; only chosen heads are read."""
    text, first = "--text=3 of may 1967", runs("rnnsearch")[0]
    flags = [text, "--target=1967-05-03", f"--output={tmp_path / 'maps'}", "--heads=0"]
    flags += ["--maps=*ttention", f"--compare={runs('transformer')[0]}"]
    completed(["inspect", str(first), *flags])
    arrays = np.load(tmp_path / "maps" / "maps.npz")
    assert {name for name in arrays.files if name[-1] == "n"} == {
        "0/attention",
        *(f"1/{name}" for name in SLOTS),
    }
    assert {len(arrays[name]) for name in arrays.files if name[-1] == "n"} == {1}
    assert "Only heads 0 of the layer" in (tmp_path / "maps" / "atlas.html").read_text()


def test_pages_of_one_and_of_two_runs_lie_apart(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default, under the name of the other run, of a trial with that of its candidate; and
    pictures are of the kind that was asked for.
    """
    bare = shutil.ignore_patterns("maps*")  # of another test
    first = shutil.copytree(runs("rnnsearch")[0], tmp_path / "one", ignore=bare)
    given = ["inspect", str(first), "--text=3 of may 1967", "--target=1967-05-03"]
    shutil.copytree(first, tmp_path / "dot-1a2b" / "seed0")
    monkeypatch.chdir(first)
    for more in ("--format=svg", "--compare=.", "--compare=../dot-1a2b/seed0"):
        assert run_command([*given, more]).code == 0
    assert (first / "maps" / "0-attention.svg").read_text().startswith("<?xml")
    assert not list((first / "maps").glob("0-*.png")) and (first / "maps" / "atlas.html").exists()
    names = {"maps", "maps-beside-one", "maps-beside-dot-1a2b-seed0"}
    assert {path.name for path in first.glob("maps*")} == names
    beside = {path.name for path in (first / "maps-beside-one").iterdir()}
    assert {"atlas.html", "maps.npz", "0-attention.png"} <= beside


def test_a_wrong_choice_gets_one_line(
    searched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the system writes the target that is missing."""
    monkeypatch.setattr(attnlab.Run, "examples_from_text", None)
    given = ["inspect", str(searched), "--text=3 of may 1967"]
    given.append(f"--output={tmp_path / 'maps'}")
    for flag, line in {
        "--layers=3": "no map fits '*_3/*'; there are attention",
        "--layers=x": "expected numbers with commas between them",
        "--heads=7": "attention has no head 7; heads are 0 to 0",
        "--maps=decoder*": "no map fits 'decoder*'; there are attention",
        "--format=svgz": "did you mean 'svg'",
        "--compare=absent": "absent",
    }.items():
        assert line in refused(*given, flag)
    assert not (tmp_path / "maps").exists()
