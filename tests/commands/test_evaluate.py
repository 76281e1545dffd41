"""The evaluate command gives the numbers that training gave, and writes nothing."""

import json
from pathlib import Path
from typing import Any

from attnlab.records.stream import read_records
from tests.commands.tiny import completed, run_command, under


def listing(folder: Path) -> dict[str, float]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


def evaluated(workdir: Path, *flags: str) -> dict[str, Any]:
    ended = completed(["evaluate", f"--workdir={workdir}", "--json", *flags])
    found: dict[str, Any] = json.loads(ended.out)
    return found


def test_test_split_as_in_results_json(trained: Path) -> None:
    before = listing(trained)
    found = evaluated(trained)
    stored = json.loads((trained / "results.json").read_text())
    assert set(stored) - set(found) == {"parameters", "measures"} and set(found) <= set(stored)
    found["decoding_seconds"] = stored["decoding_seconds"]
    assert found.items() <= stored.items()
    assert listing(trained) == before


def test_valid_split_as_in_the_record_of_the_best_step(trained: Path) -> None:
    found = evaluated(trained, "--split=valid")
    valid = {
        record["step"]: record
        for record in read_records(trained / "metrics.jsonl")
        if record["split"] == "valid"
    }
    assert found["step"] == min(valid, key=lambda step: valid[step]["loss"])
    for name in ("loss", "perplexity", "accuracy"):
        assert found[name] == valid[found["step"]][name]


def test_table_for_people_and_other_decoding(searched: Path) -> None:
    flags = [f"--config.{setting}" for setting in under("decoding", method="beam", beam=2)]
    ended = run_command(["evaluate", f"--workdir={searched}", *flags])
    assert ended.code == 0 and f"{searched}, test split" in ended.out
    rows = {line.split()[0]: line for line in ended.out.splitlines()[3:]}
    assert "nats per target token" in rows["loss"] and "split" not in rows
    assert rows["perplexity"].endswith("  per target token")
    assert "nrefs:1" in rows["bleu"]
    assert "share of sentences" in rows["exact"]
