"""What commands share: which folder is a run; which config a run has is tested in `api`."""

from pathlib import Path

from attnlab import config as configs
from attnlab.api.training import existing_run
from attnlab.records.manifest import Manifest
from tests.refusals import check_refused


def test_which_folder_is_new_which_a_run_and_which_neither(tmp_path: Path) -> None:
    """What a kill before the manifest leaves is no run and not in the way; anything else in the
    folder is somebody's.
    """
    config = configs.load("configs/translation.py:rnnsearch", ["training.steps=7"])
    (run := tmp_path / "run").mkdir()
    Manifest.build(config, devices={}, data={}, command=[]).write(run)
    manifest = existing_run(run)
    assert manifest is not None and manifest.config["training"]["steps"] == 7
    begun = tmp_path / "begun"
    assert existing_run(begun) is None
    (begun / "vocabulary").mkdir(parents=True)
    (begun / "code").mkdir()
    for name in (".lock", ".manifest.json.tmp"):
        (begun / name).write_text("")
    assert existing_run(begun) is None
    (begun / "thesis.tex").write_text("")
    words = "is not empty and holds no run .thesis.tex is there.; name a new or empty folder"
    check_refused(words, existing_run, begun)
