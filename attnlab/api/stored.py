"""A trained run as its folder holds it: its config, what of that may be changed, the runs that join
it; and its model card, a README.md as the Hub of Hugging Face reads it. Imports no jax.
"""

import dataclasses
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from attnlab import config as configs
from attnlab.errors import UserError, visible
from attnlab.records import provenance
from attnlab.records.files import check_folder, write_atomic
from attnlab.records.items import Items
from attnlab.records.json_kinds import read_file
from attnlab.records.manifest import Manifest
from attnlab.records.measures import RECORDED, is_finite
from attnlab.records.sealed import check_test_split, sweep_of, trial_behind
from attnlab.tasks.schemas import Settings

_IMPORTED: WeakKeyDictionary[ModuleType, tuple[ModuleSpec | None, str]] = WeakKeyDictionary()
"""How each module of the user was found, and the hash of its file."""
CHANGEABLE = ("data", "decoding", "parallel", "training.metrics")
"""What may change between training a model and using it."""


@dataclasses.dataclass(frozen=True)
class Origin:
    """What a run was made from, and the user's code that it needs as that is now."""

    manifest: Manifest
    record: provenance.Record | None  # of the user's code that is needed
    code: provenance.Code


@dataclasses.dataclass(frozen=True)
class Stored:
    """A trained run that was found, nothing of it read but the config.

    Attributes:
      config: the one it was trained with, with overrides of how it is used.
      workdir: its folder.
      members: the folders of more runs, which count with it as one, and the config of each.
      origins: by folder, of it and of the members.
    """

    config: Settings
    workdir: Path
    members: Mapping[Path, Settings]
    origins: Mapping[Path, Origin]

    @classmethod
    def find(
        cls,
        workdir: Path,
        overrides: Sequence[str] = (),
        config: str | None = None,
        ensemble: Sequence[Path] = (),
        accept_changed_code: bool = False,
    ) -> "Stored":
        """Returns the run in `workdir` and its `ensemble` as a `Stored`; overrides or `config` may
        change `data` (not of a sweep's trial), `decoding`, `parallel` and `training.metrics`;
        raises `UserError` for other changes, `Changed` if vocabulary or (unaccepted) code changed.

        Args:
          workdir: the folder.
          overrides: "decoding.beam=8" each; of how the run is used.
          config: a config file with its argument; with all overrides it must say what the run was
            trained with, apart from how it is used.
          ensemble: folders of more trained runs.
          accept_changed_code: continue although the user's code has changed.

        Raises:
          UserError: no such run, an override that changes the model, or a folder of the ensemble
            without a run or named twice.
          Changed: the vocabulary of a run, or the user's code that it needs, has changed since
            training.
        """
        check_folder("--workdir", workdir)
        advice = f"train one there with 'train --config=... --workdir={workdir}'"
        manifest = Manifest.of_run(workdir, advice)
        # a trial's test files are no other split's either
        closed = sweep_of(workdir) or trial_behind(workdir)
        changeable = CHANGEABLE if closed is None else CHANGEABLE[1:]
        origins = {workdir: _origin(manifest, workdir, overrides, accept_changed_code)}
        members = {}
        for folder, other in _members(workdir, ensemble).items():
            # before the user's code is imported
            origins[folder] = _origin(other, folder, overrides, accept_changed_code)
            members[folder] = configs.prepare(configs.from_dict(other.config), [])
        if config is not None:
            wanted = configs.as_stored(configs.load(config, overrides), manifest.config, overrides)
            manifest.check_config(wanted, workdir, ignore=changeable)
            return cls(wanted, workdir, members, origins)
        for override in overrides:
            key = override.partition("=")[0]  # "data" itself names another source
            if not configs.is_below(key, changeable):
                raise UserError(
                    f"config.{key} cannot change after training; these can:"
                    f" {', '.join(part + '.*' for part in changeable)}"
                )
        source = _other_source(manifest, overrides)
        # the user's own file may no longer exist
        stored = manifest.config | ({"data": {"name": source}} if source else {})
        return cls(configs.prepare(configs.from_dict(stored), overrides), workdir, members, origins)

    @property
    def vocabulary_folder(self) -> Path | None:
        """The folder that has the run's vocabulary; None if its config alone says it."""
        return self.workdir

    def check_splits(self, splits: Sequence[str]) -> None:
        """Raises `UserError` if "test" is among the splits and the run, or a run of its ensemble,
        is a trial of a sweep whose test split is still closed.
        """
        if "test" in splits:
            for folder in (self.workdir, *self.members):
                check_test_split(folder)

    def check_data(self, fingerprints: Mapping[str, str]) -> None:
        """Raises `Changed` if a split of the run's own data has another fingerprint now than in
        training; data from an override is not checked.

        Args:
          fingerprints: by split.
        """
        manifest = self.origins[self.workdir].manifest
        manifest.check_same_data(self.config, fingerprints, self.workdir)

    def notes(self) -> list[str]:
        """Notes for a person who uses the run with the present code."""
        records = ((origin.record, origin.code, folder) for folder, origin in self.origins.items())
        return [line for record in records for line in provenance.notes(*record)]

    def remember_imports(self) -> None:
        """Records the hashes of the user's modules that this process has imported, to notice later
        edits of their files; to be called after the run's task was imported.
        """
        for origin in self.origins.values():
            _check_imports(origin.code)

    def changed_code(self) -> dict[str, dict[str, Any]]:
        """Returns, by module, the accepted changes of the user's code since training began (see
        `provenance.summary`), to be shown with the scores; {} for none.
        """
        changes: dict[str, dict[str, Any]] = {}
        for origin in self.origins.values():
            changes |= provenance.summary(origin.record, origin.code)
        return changes


def _origin(manifest: Manifest, folder: Path, overrides: Sequence[str], accept: bool) -> Origin:
    """Returns the `Origin` of a run: its manifest, its record of user code and that code as it is
    now; raises `Changed` if the vocabulary or, unless `accept`, that code is not that of training,
    or if a module was edited after its import. The code of its data source counts only if no
    override replaces it.
    """
    manifest.check_vocabulary(folder)
    other_data = _other_source(manifest, overrides) is not None
    parts = {key: x for key, x in manifest.config.items() if not (key == "data" and other_data)}
    code = provenance.code(parts, accept=accept)
    _check_imports(code)
    record = provenance.without_unread(manifest.own_code, code) if other_data else manifest.own_code
    provenance.check(record, code, folder)
    return Origin(manifest, record, code)


def _check_imports(code: provenance.Code) -> None:
    """Raises `Changed` if the file of a module that this process imported differs from its hash at
    the first call, so that the module in memory is an older one; records the hash of each module at
    its first call.

    A module is compared with its file at the first call; a reloaded module is compared again.
    """
    for name, source in code.modules.items():
        module = sys.modules.get(name)
        if module is None:
            continue
        spec, digest = _IMPORTED.get(module, (None, ""))
        if digest and spec is module.__spec__ and digest != source.sha256:
            raise provenance.Changed(
                f"{source.file} is not what it was when this process imported it; restart Python,"
                f" or reload {name}"
            )
        _IMPORTED[module] = (module.__spec__, source.sha256)


def _other_source(manifest: Manifest, overrides: Sequence[str]) -> str | None:
    """Returns the name of the data source that overrides select in place of that of the run, or
    None if they select none or the same.
    """
    pairs = (override.partition("=") for override in overrides)
    named = [value for name, _, value in pairs if name in ("data", "data.name")]
    return named[-1] if named and named[-1] != manifest.config["data"]["name"] else None


def _members(workdir: Path, folders: Sequence[Path]) -> dict[Path, Manifest]:
    """Reads the manifests of an ensemble's further runs, by folder; raises `UserError` for a folder
    without a run or named twice (`workdir` counts).
    """
    named = [workdir, *folders]
    manifests = {}
    for number, folder in enumerate(folders, start=1):
        manifest = Manifest.read(folder) if folder.is_dir() else None
        if manifest is None:
            raise UserError(
                f"--ensemble: {folder} holds no run; name folders of trained runs, with commas"
                " between them"
            )
        if folder.resolve() in {earlier.resolve() for earlier in named[:number]}:
            raise UserError(f"--ensemble: {folder} is named twice; a run counts once")
        manifests[folder] = manifest
    return manifests


RESAMPLES = 1000
_CARD = """\
# {name}

A `{system}` of attnlab {version}, trained for {task} on `{data}` with seed {seed}; used is step {step}.{begun}

| measure ({split} split) | value | 95 % interval over examples |
|---|---:|---:|
{rows}

Intervals are percentiles over {resamples:,} test sets drawn from the examples (Wilson's for a share of the examples; "-" where
all these sets have one score); how seeds differ is not in them. This command
{trains} it again and compares bit by bit (config {hash}):

    {command}
"""


def write_card(workdir: Path, folder: Path) -> Path:
    """Writes a model card, README.md, for the run in `workdir`, from its records alone, into
    `folder` (made if absent), and returns its path; raises `UserError` for a run without scores or
    if a README.md exists there.

    Raises:
      UserError: no run, one without scores, or a README.md is there.
    """
    manifest, file = Manifest.read(workdir), folder / "README.md"
    scored = [x for x in (workdir / "results.json", workdir / "valid.json") if x.exists()]
    results = read_file(scored[0], dict[str, Any], "put back a good copy") if scored else None
    if manifest is None or results is None:
        raise UserError(f"{workdir} holds no run with scores; train one there to its end")
    check_folder("--out", folder)
    if file.exists():
        raise UserError(f"{file} is there; remove it, or name another --out")
    config, split, trial = manifest.config, results["split"], sweep_of(workdir)
    path = workdir.resolve()
    name = path.name if trial is None else "/".join((trial.name, *path.parts[-2:]))
    named = results.get(RECORDED, results)
    scores = {key: results[key] for key in named if is_finite(results.get(key))}
    system, task, source = config["system"]["name"], config["task"], config["data"]
    base, lora = config.get("pretrained", {}).get("folder"), config.get("lora", {})
    data = source.get("files") or source.get("train") or source["name"]
    begun = f" It began with the weights of `{base}`." if base else ""
    if rank := lora.get("rank"):
        begun += f" Trained were {', '.join(('lora', *lora['also']))} alone, lora with rank {rank}."
    measured = {
        "task": {"type": task.replace("_", "-")},
        "dataset": {"name": data, "type": source["name"], "split": split},
        "metrics": [{"type": key, "value": value} for key, value in scores.items()],
    }
    index = [{"name": name, "results": [measured]}]
    head = {"library_name": "attnlab", "tags": ["attnlab", system], "model-index": index}
    head |= {"base_model": base} if base else {}
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in head.items()]
    program, verb = (*manifest.command, "", "")[:2]
    ours = Path(program).stem in ("launch", "attnlab") and verb in ("train", "continue")
    command = manifest.command if ours else ["launch.py", "verify", str(workdir)]
    cores = manifest.devices.get("cores")  # which decide how sums round
    text = _CARD.format(
        **{"name": name, "system": system, "task": task.replace("_", " "), "data": data},
        **{"split": split, "step": results["step"], "seed": config["seed"], "resamples": RESAMPLES},
        begun=begun,
        rows="\n".join(_score_rows(scores, Items.read(workdir) if split == "test" else None)),
        command=f"NPROC={cores} " * (not ours and cores is not None)
        + shlex.join([*["python"] * command[0].endswith(".py"), *command]),
        trains="has trained it, and `verify` trains" if ours else "trains",
        version=manifest.packages.get("attnlab", ""),
        hash=manifest.config_hash,
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(file, visible(f"---\n{''.join(lines)}---\n\n{text}"))
    return file


def _score_rows(scores: dict[str, float], items: Items | None) -> list[str]:
    """Returns a row of a Markdown table, "| name | score | low to high |", for each of `scores`
    (name to value), with "-" for the bootstrap interval where the `Items` of the split are None or
    lack that score.
    """
    rows = []
    for name, value in scores.items():
        interval = "-"
        if items is not None and name in items.rules:
            low, high = items.interval(name, RESAMPLES, shares=True)
            interval = f"{low:.4g} to {high:.4g}" if low < high else "-"
        rows.append(f"| {name} | {value:.4g} | {interval} |")
    return rows
