"""All commands work on runs that classify texts of one's own and pairs, from training to labels, maps
and scores again.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.commands.tiny import CommandResult, completed, refused, run_command, train, under

SMALL = [
    *under("system", embedding=8, width=8, hidden=8),
    *under("system.attention", hops=2, hidden=8),
    *under("batch", size=16, buckets=16, max_length=16),
    *under("training", steps=12, log_every=3, evaluate_every=6),
    *("schedule.warmup=2", "checkpoint.every=4"),
]


def arguments(file: str, workdir: Path, *overrides: str) -> list[str]:
    """The train command of a tiny run."""
    return train(f"{file}.py:self_attentive", workdir, *SMALL, *overrides)


@pytest.fixture(scope="module", params=["classification", "inference"])
def run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path, CommandResult]]:
    """A finished run: single texts from a table of the user's, or generated pairs."""
    folder = tmp_path_factory.mktemp(request.param)
    overrides = ["data.examples=160", "data.valid=10", "data.test=4"]
    if request.param == "classification":
        for split, count in (("train", 40), ("valid", 10), ("test", 4)):
            lines = [
                f"{'good' if n % 2 else 'bad'} film number {n}\t{'pos' if n % 2 else 'neg'}\n"
                for n in range(count)
            ]
            (folder / f"{split}.tsv").write_text("text\tlabel\n" + "".join(lines))
        table = under("data", directory=folder, target=0, label=2, header=1)
        overrides = ["data=table", *table]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attnlab.analysis.results.PICTURED", 3)
        ended = run_command(arguments(request.param, folder / "run", *overrides))
    assert ended.code == 0, ended.err
    yield request.param, folder / "run", ended


@pytest.mark.full
def test_a_run_leaves_scores_predictions_and_pictures(run: tuple[str, Path, CommandResult]) -> None:
    file, workdir, ended = run
    results = json.loads((workdir / "results.json").read_text())
    scores = {"loss", "accuracy", "macro_f1", "confusion"}
    assert scores | {"step", "parameters", "decoding_seconds"} <= set(results)
    assert results["examples"] == 4 == sum(sum(r.values()) for r in results["confusion"].values())
    rows = [line.split("\t") for line in (workdir / "predictions.tsv").read_text().splitlines()]
    assert len(rows) == 4
    assert np.mean([label == answer for label, answer in rows]) == results["accuracy"]
    assert "share of labels right" in ended.out and "label \\ answer" in ended.out
    maps = ["attention"] if file == "classification" else ["attention", "attention_1"]
    for name in (f"test2-{one}.png" for one in maps):
        assert (workdir / "maps" / name).read_bytes().startswith(b"\x89PNG") and name in ended.out
    assert ("train: 40 texts" if file == "classification" else "train: 160 pairs") in ended.err


@pytest.mark.full
def test_generate_gives_the_label_of_each_line(run: tuple[str, Path, CommandResult]) -> None:
    file, workdir, _ = run
    command = ["generate", f"--workdir={workdir}"]
    if file == "classification":
        lines, labels, fields = ["good film", "", "bad film"], {"pos", "neg"}, 1
    else:
        lines = ["anna sings\tanna sleeps", "", "ben runs and emma waits\tben jogs"]
        labels, fields = {"entailment", "neutral", "contradiction"}, 2
    ended = completed(command, "\n".join(lines))
    first, blank, last = ended.out.splitlines()
    assert blank == "" and {first, last} <= labels
    assert "expected" in refused(*command, stdin="\t".join(["a"] * (3 - fields)))
    long = run_command(command, "\t".join(["a " * 30] * fields))
    note = "note: 1 of 1 examples are longer than the 16 tokens of training"
    assert long.code == 0 and note in long.err


@pytest.mark.full
def test_inspect_draws_the_hops(run: tuple[str, Path, CommandResult], tmp_path: Path) -> None:
    file, workdir, _ = run
    command = ["inspect", f"--workdir={workdir}", f"--output={tmp_path}", "--source=anna sings"]
    pair = [*command, "--target=anna does not sing"]
    right, wrong = (command, pair) if file == "classification" else (pair, command)
    ended = completed(right)
    arrays = np.load(tmp_path / "0.npz")
    assert arrays["attention"].shape == (1, 2, len(arrays["source_tokens"]))
    assert (tmp_path / "0-attention.png").is_file()
    if file == "inference":
        assert arrays["attention_1"].shape == (1, 2, len(arrays["target_tokens"])) == (1, 2, 5)
        assert "anna sings  ->  anna does not sing" in ended.out.splitlines()
    assert "expected" in refused(*wrong)
