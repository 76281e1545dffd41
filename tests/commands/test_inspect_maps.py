"""`inspect` draws a picture of every map and writes an archive of every pair."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.commands.tiny import arguments, run_command

SLOTS = [f"{slot}_attention" for slot in ("decoder_0/cross", "decoder_0/self", "encoder_0/self")]
PNG = b"\x89PNG\r\n\x1a\n"


def test_a_given_pair(trained: Path, tmp_path: Path) -> None:
    """Every map as PNG and all of them in one archive that numpy reads, with the tokens."""
    flags = ["--source=3 of may 1967", "--target=1967-05-03", f"--output={tmp_path / 'maps'}"]
    ended = run_command(["inspect", f"--workdir={trained}", *flags])
    assert ended.code == 0, ended.err
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
    assert len(list((tmp_path / "maps").iterdir())) == len(names) + len(arcs) + 1
    assert ended.out.splitlines()[0] == "3 of may 1967  ->  1967-05-03"
    assert str(tmp_path / "maps" / "0.npz") in ended.out


def test_a_file_of_pairs_and_translations_of_its_own(searched: Path, tmp_path: Path) -> None:
    """Without a target the system translates first; numbers count the lines; the default folder is
    in the workdir.
    """
    (tmp_path / "pairs.tsv").write_text("3 of may 1967\t1967-05-03\n4.5.1999\n")
    ended = run_command(["inspect", f"--workdir={searched}", f"--pairs={tmp_path / 'pairs.tsv'}"])
    assert ended.code == 0, ended.err
    own = run_command(["generate", f"--workdir={searched}"], "4.5.1999\n").out.removesuffix("\n")
    expected = ["3 of may 1967  ->  1967-05-03", f"4.5.1999  ->  {own}"]
    assert [line for line in ended.out.splitlines() if "->" in line] == expected
    for number, target in ((0, "1967-05-03"), (1, own)):
        arrays = np.load(searched / "maps" / f"{number}.npz")
        assert "".join(arrays["target_tokens"][:-1]).replace("\u2423", " ") == target
        assert arrays["attention"].shape == (1, len(target) + 1, len(arrays["source_tokens"]))
    piped = run_command(
        ["inspect", f"--workdir={searched}", "--pairs=-", f"--output={tmp_path / 'piped'}"],
        "4.5.1999\n",
    )
    assert piped.code == 0 and (tmp_path / "piped" / "0-attention.png").is_file()


@pytest.mark.full
def test_a_run_without_attention_has_sensitivities_when_asked(tmp_path: Path) -> None:
    ended = run_command(arguments("rnn_encoder_decoder", tmp_path / "run", "training.steps=2"))
    assert ended.code == 0, ended.err
    assert (tmp_path / "run" / "results.json").is_file()
    assert not (tmp_path / "run" / "maps").exists()
    ended = run_command(["inspect", f"--workdir={tmp_path / 'run'}", "--source=4.5.1999"])
    assert ended.code == 0, ended.err
    for side in ("source", "target_in"):
        assert (tmp_path / "run" / "maps" / f"0-sensitivity_to-{side}.png").is_file()
