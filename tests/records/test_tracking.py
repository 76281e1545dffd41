"""`--track`: what it takes, what the folder keeps, and the process beside the work."""

import json
import sys
from pathlib import Path

import pytest

from attnlab.errors import UserError
from attnlab.records import tracking
from attnlab.records.tracking import Tracking
from tests.experiments.report.trackers.offline import stand_in
from tests.refusals import check_refused


@pytest.fixture(autouse=True)
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins of all trackers, and nothing in the environment that names a store."""
    stand_in(monkeypatch, tmp_path / "packages")
    monkeypatch.chdir(tmp_path)
    for name in ("WANDB_DIR", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.quick
def test_what_the_flag_takes_and_the_folder_keeps(tmp_path: Path) -> None:
    assert Tracking.choose(tmp_path, None).to == {}
    plain = Tracking.choose(tmp_path, "wandb,mlflow,trackio")
    database = f"sqlite:///{tmp_path}/mlflow.db"
    assert plain.to == {"wandb": str(tmp_path), "mlflow": database, "trackio": "local"}
    chosen = Tracking.choose(tmp_path, "wandb:online,mlflow:http://here:5000")
    assert chosen.to == {"wandb": "online", "mlflow": "http://here:5000"}
    (tmp_path / "tracking.json").write_text(json.dumps({"to": chosen.to, "id": chosen.id}))
    assert Tracking.choose(tmp_path, None) == chosen
    assert Tracking.choose(tmp_path, "wandb") == Tracking({"wandb": str(tmp_path)}, chosen.id)
    assert Tracking.choose(tmp_path, "none") == Tracking({}, chosen.id)
    (tmp_path / "tracking.json").write_text("{")
    check_refused("tracking.json is damaged", Tracking.choose, tmp_path, None)


MISTAKES = {
    "wandbb": "--track=wandbb: no tracker 'wandbb'; did you mean 'wandb'",
    "wandb,": "no tracker ''; choose from: mlflow, trackio, wandb",
    "wandb:offlin": "--track=wandb:offlin: wandb:offlin; write wandb, mlflow, trackio",
    "mlflow:file.db": "mlflow:http://HOST:PORT",
    "trackio:x://y": "--track=trackio:x://y: trackio:x://y; write",
    "wandb": r"--track=wandb needs wandb: pip install 'attnlab\[wandb]'",
    "mlflow": r"--track=mlflow needs sqlalchemy: pip install 'attnlab\[mlflow]'",
}


def test_mistakes_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a folder that W&B has left, which Python takes for a package, and an extra of which a
    part is missing.
    """
    for name in ("wandb", "sqlalchemy"):
        monkeypatch.setitem(sys.modules, name, None)
    for flag, words in MISTAKES.items():
        check_refused(words, Tracking.choose, tmp_path, flag)
    assert not (tmp_path / "tracking.json").exists()


ADDRESSES = ("http://user:pass-word@here:5000", "https://pass-word@here")
STORES = ("postgresql://user:pass-word@h/d", "postgresql://h/d?user=u&password=pass-word")


def test_a_password_is_never_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one that stands in the environment, or in a file of before."""
    (tmp_path / "before").mkdir()
    for address in (*ADDRESSES, *STORES):
        content = {"to": {"mlflow": address}, "id": "0"}
        (tmp_path / "before" / "tracking.json").write_text(json.dumps(content))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        for folder, flag in (("x", f"mlflow:{address}"), ("x", "mlflow"), ("before", None)):
            with pytest.raises(UserError, match="set MLFLOW_TRACKING_USERNAME and") as error:
                Tracking.choose(tmp_path / folder, flag)
            assert "pass-word" not in str(error.value)
    other = "sqlite:////here/a:b@c.db"
    assert Tracking.choose(tmp_path, f"mlflow:{other}").to == {"mlflow": other}


def test_what_is_not_told_in_time_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And Ctrl-C waits for nothing."""
    (tmp_path / "packages" / "wandb.py").write_text("import time\ntime.sleep(600)")
    chosen = Tracking.choose(tmp_path, "wandb")
    with pytest.raises(KeyboardInterrupt), chosen.beside(tmp_path):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(tracking, "_LONGEST", 0.1)
    with chosen.beside(tmp_path):
        pass
    line = f"wandb: not at the end after 0.1 s; 'export {tmp_path} --to=wandb' writes all of it\n"
    assert capsys.readouterr().err == line


def test_the_process_beside_the_work_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its line is printed; the folder is none of a run, so there is nothing to tell."""
    (tmp_path / "packages" / "wandb.py").write_text("raise RuntimeError('no\\nway')")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path / "store"))
    directory = tmp_path / "run"
    directory.mkdir()
    chosen = Tracking.choose(directory, "wandb")
    with chosen.beside(directory):
        pass
    error = capsys.readouterr().err
    assert "wandb: RuntimeError: no way; the run goes on, and 'export" in error
    assert Tracking.choose(directory, None) == chosen
