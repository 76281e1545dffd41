"""`manifest.json`: what a run was made from, so that a number can be traced and a workdir holds one
config only.
"""

import dataclasses
import hashlib
import importlib.metadata
import json
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from attnlab.config.schema import Node
from attnlab.config.tree import config_hash, differing, flat, is_below
from attnlab.errors import UserError
from attnlab.records.files import timestamp, write_atomic
from attnlab.records.json_kinds import RUN, Damaged, Natural, fit, parsed, read_file, versioned
from attnlab.records.provenance import Changed, Record
from attnlab.records.sealed import sweep_of

_PACKAGES = (
    *("attnlab", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "ml-collections"),
    *("tensorflow-datasets", "numpy", "tokenizers", "sacrebleu", "ml-dtypes", "tensorstore"),
)
PACKAGE = Path(__file__).parents[1]
_SHOWN = 5
LOOK = "look.json"
"""What the last look of a sweep has read of the test split, beside the manifest of each trial that it has scored."""
_VOCABULARY = "vocabulary"  # where tasks keep in a run what they have learned from the data


class Lineage(TypedDict):
    """Where a run that goes on from another one has begun.

    Attributes:
      workdir, config_hash: of the parent.
      step: of the state that was taken.
      data_from: the step at which the data begins with the 0th step of its plan.
      joined: whether the parent's records up to `step` are the child's own.
      before: the steps, below `step`, at which the runs before it have gone on from another one.
      trial: the sweep's trial that the parent is, or goes on from; its test split may be closed.
    """

    workdir: str
    config_hash: str
    step: Natural
    data_from: Natural
    joined: bool
    before: NotRequired[list[Natural]]
    trial: NotRequired[str | None]


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The origin of a run.

    Attributes:
      config: the whole resolved config as nested dicts of JSON values.
      config_hash: of `attnlab.config.tree`.
      code: {"revision": git commit, for a person, "tree": git's hash of the package in it, "dirty": changed or new
        code in the package}, or None when the package is not in a repository. In version 1 "tree" may be
        absent.
      packages: versions of what is installed of the packages that matter.
      python, platform: of the process.
      devices: as the caller describes them, by name.
      data: fingerprints of the data, as the caller computes them, by name.
      command: the command line.
      created: UTC, ISO 8601.
      vocabulary: file of the folder "vocabulary" to its fingerprint, see `vocabulary_prints`; in
        version 1 it may be None.
      own_code: the user's code, see `attnlab.records.provenance`; in version 1 it may be None.
      pruned: what is left of its states, see `attnlab.training.pruning`; None for all.
      version: of all records of the run, see `attnlab.records.json_kinds`.
      parent: of a run that goes on from another one; None for others.
    """

    config: dict[str, Any]
    config_hash: str
    code: dict[str, Any] | None
    packages: dict[str, str]
    python: str
    platform: str
    devices: dict[str, Any]
    data: dict[str, Any]
    command: list[str]
    created: str
    vocabulary: dict[str, str] | None = None
    own_code: Record | None = None
    pruned: str | None = None
    version: Natural = RUN
    parent: Lineage | None = None

    @classmethod
    def build(
        cls,
        config: Mapping[str, Any] | Node,
        *,
        devices: Mapping[str, Any],
        data: Mapping[str, Any],
        command: Sequence[str] | None = None,
        own_code: Record | None = None,
    ) -> "Manifest":
        """Builds the manifest of a run that this process begins: the given config, devices, data,
        command line and record of own code, and what it finds out: the config's hash, the code's
        commit, versions of packages and Python, the platform and the time.

        Args:
          config: nested mapping of JSON values, or settings.
          devices: names and anything JSON can hold, for example kind and count.
          data: names and anything JSON can hold.
          command: default `sys.argv`.
          own_code: see `attnlab.records.provenance`.
        """
        return cls(
            config=plain(config),
            config_hash=config_hash(config),
            code=code_revision(),
            packages=package_versions(),
            python=platform.python_version(),
            platform=platform.platform(),
            devices=plain(devices),
            data=plain(data),
            command=list(sys.argv if command is None else command),
            created=timestamp(),
            own_code=own_code,
        )

    @classmethod
    def of_run(cls, folder: Path, advice: str = "name the folder of a run") -> "Manifest":
        """Reads and returns the manifest of the run in `folder`; raises `UserError`, with `advice`
        where nothing is there, and of a sweep with where its runs are.

        Raises:
          UserError: there is none, or it cannot be read.
        """
        if manifest := cls.read(folder):
            return manifest
        if (folder / "plan.json").exists():
            raise UserError(f"{folder} is a sweep; name a trial: {folder}/trials/CANDIDATE/seed0")
        raise UserError(f"{folder} holds no run; {advice}")

    def write(self, workdir: str | Path) -> None:
        """Write `<workdir>/manifest.json` atomically."""
        fields = {"version": self.version, **dataclasses.asdict(self)}
        write_atomic(Path(workdir) / "manifest.json", json.dumps(fields, indent=1) + "\n")

    @classmethod
    def read(cls, workdir: str | Path) -> "Manifest | None":
        """Reads `manifest.json` of a workdir, checks its version, form and config hash, and returns
        it, or None if the file does not exist; raises UserError if a check fails.

        Raises:
          UserError: the file cannot be read as a manifest, or is of a newer version, or its config
            no longer has the hash that stands beside it.
        """
        path = Path(workdir) / "manifest.json"
        try:
            manifest: Manifest = fit(versioned(path.read_bytes(), RUN, path), cls)
            hashes = config_hash(manifest.config), config_hash(manifest.config, whole=True)
            if manifest.config_hash not in hashes:
                raise Damaged("the config does not have the recorded hash")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as error:  # `Damaged` is one
            raise UserError(
                f"{path} is damaged ({error}): put back a good copy, or use another --workdir"
            ) from error
        return manifest

    def check_config(
        self,
        config: Mapping[str, Any] | Node,
        workdir: str | Path,
        ignore: Sequence[str] = ("parallel",),
    ) -> None:
        """Raises `UserError` with up to five differing fields if this manifest's config differs
        from `config`, apart from nodes with the dotted names `ignore`; `workdir` is for the
        message.
        """
        lines = changed(self.config, config, ignore)
        if lines:
            suffix = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
            raise UserError(
                f"workdir {workdir} holds another config: {'; '.join(lines[:_SHOWN])}{suffix}. Use"
                " another --workdir"
            )

    def check_states(self, workdir: str | Path, enough: str = "") -> None:
        """Raises `UserError`, since training cannot go on from it, if this manifest's run was
        pruned, unless the `--keep` value of that pruning is `enough`; `workdir` is for the message.
        """
        if self.pruned not in (None, enough):
            lost = "optimizer's state" if self.pruned != "best" else "newest state"
            raise UserError(
                f"{workdir} was pruned (--keep={self.pruned}): its {lost} is gone, so it cannot go on;"
                " evaluate, generate and export take it as it is"
            )

    def check_vocabulary(self, workdir: str | Path) -> None:
        """Raises `Changed` if a vocabulary file in `workdir` (this manifest's) is not the one with
        which the run was trained; files that are lost, damaged or not in the record pass.

        One that is lost or damaged is for the task to miss.
        """
        now, recorded = vocabulary_prints(workdir), self.vocabulary or {}
        altered = [name for name, digest in now.items() if recorded.get(name, digest) != digest]
        if altered:
            advice = (
                ", or delete it and run the 'train' command of this workdir again, which learns it"
                " from the same data"
            )
            remedy = f"put back a good copy{advice if sweep_of(workdir) is None else ''}"
            raise Changed(
                f"{Path(workdir) / _VOCABULARY / altered[0]} is not the one that this run was trained"
                f" with; {remedy}"
            )

    def read_data(self, workdir: str | Path) -> dict[str, str]:
        """Returns, by split, the fingerprint of all data that the run in `workdir` (this
        manifest's) has read, for training and, in a sweep, for the final test; raises Changed if
        the record of that test cannot be read.

        Raises:
          Changed: what was kept of the last look cannot be read, so that nobody can tell whether
            data is the same.
        """
        remedy = "put back a good copy, it says what test data was looked at"
        look = read_file(Path(workdir) / LOOK, _Look, remedy, Changed)
        return self.data | (look["data"] if look is not None else {})

    def check_data(self, prints: Mapping[str, str], workdir: str | Path) -> None:
        """Raises `Changed` if a split's fingerprint now, in `prints`, differs from that recorded
        when the run in `workdir` (this manifest's) read it; splits without a record pass.

        Args:
          prints: the fingerprint now by split; those that the run has not read are left alone.
          workdir: for the message.
        """
        saved = self.read_data(workdir)
        splits = [split for split, digest in prints.items() if saved.get(split, digest) != digest]
        if splits:
            where = f"the data of workdir {workdir} has changed since it began"
            raise Changed(
                f"{where} (split {', '.join(splits)}), or this version reads it in another way"
                " (CHANGELOG.md); put it back, or use another --workdir"
            )

    def check_same_data(
        self, config: Mapping[str, Any] | Node, prints: Mapping[str, str], workdir: str | Path
    ) -> None:
        """Raises `Changed`, as `check_data`, if data has changed, but checks nothing if `config`
        names other data than this manifest.
        """
        if not any(line.startswith("data.") for line in changed(self.config, config)):
            self.check_data(prints, workdir)

    def environment_changes(self, current: "Manifest") -> list[str]:
        """Returns a text "a.b: saved 3, wanted 4" for each difference between this manifest and
        `current` in packages, Python, devices, data or code, which may break bit-for-bit equality
        on resume. Cores that were not recorded, as in older runs, are no change; nor is another
        commit with the same package.
        """
        parts = ("packages", "python", "devices", "data", "code")
        trees = [(manifest.code or {}).get("tree") for manifest in (self, current)]
        extra = ("code.revision",) if trees[0] is not None and trees[0] == trees[1] else ()
        return differences(
            {part: getattr(self, part) for part in parts},
            {part: getattr(current, part) for part in parts},
            # other trees are told by their commits
            ignore=("code.tree", *extra, *(() if "cores" in self.devices else ("devices.cores",))),
        )


class _Look(TypedDict):
    """What is read of `LOOK`."""

    data: dict[str, str]


def vocabulary_prints(workdir: str | Path) -> dict[str, str]:
    """Returns a fingerprint of each file in `<workdir>/vocabulary/` by file name: the field
    "sha256" of a JSON file that has one, else the SHA-256 of its bytes; leaves out files that
    cannot be read; {} without such a folder.

    It is the checksum that stands in them, which their readers verify; of a file without one, the
    SHA-256 of its bytes. JSON that cannot be read is left out: it is damaged, which its reader
    says.
    """
    prints = {}
    for path in sorted(filter(Path.is_file, (Path(workdir) / _VOCABULARY).glob("[!.]*"))):
        try:
            content = path.read_bytes()
            fields = parsed(content) if path.suffix == ".json" else None
        except (OSError, Damaged):  # as its reader says
            continue
        recorded = fields.get("sha256") if isinstance(fields, dict) else None
        prints[path.name] = str(recorded or hashlib.sha256(content).hexdigest())
    return prints


def plain(config: Any) -> Any:
    """Returns a config as JSON gives it back: dicts with string keys, lists, numbers, strings,
    booleans, None.
    """
    return json.loads(json.dumps(config, default=lambda node: node.to_dict()))


def differences(
    saved: Mapping[str, Any],
    current: Mapping[str, Any] | Node,
    ignore: Sequence[str] = ("parallel",),
) -> list[str]:
    """Returns a text "a.b: saved 3, wanted 4" for each value that differs between the nested
    configs `saved` and `current`, apart from those in `ignore`, in the order of `current`, then of
    `saved`.

    Args:
      saved: nested mapping.
      current: nested mapping.
      ignore: dotted names of fields or whole nodes that may differ.
    """
    values = differing(flat(plain(current)), flat(plain(saved)))
    return [
        f"{name}: saved {old}, wanted {new}"
        for name, (new, old) in values.items()
        if not is_below(name, ignore)
    ]


def changed(
    saved: Mapping[str, Any],
    current: Mapping[str, Any] | Node,
    ignore: Sequence[str] = ("parallel",),
) -> list[str]:
    """Returns `differences(saved, current, ignore)`, texts such as "a.b: saved 3, wanted 4", but a
    setting that `saved` lacks counts as its default if the saved config can be completed.
    """
    lines = differences(saved, current, ignore)
    if not any(": saved nothing, " in line for line in lines):
        return lines
    from attnlab import config as configs  # which imports the components that a config names

    try:
        complete = configs.to_dict(configs.prepare(configs.from_dict(plain(saved)), []))
    except UserError:
        return lines
    return differences(complete, current, ignore)


def package_versions() -> dict[str, str]:
    """Returns the installed version, by name, of each package that affects results; those not
    installed are left out.
    """
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def code_revision(folder: Path = PACKAGE) -> dict[str, Any] | None:
    """Returns {"revision": git's commit, "tree": git's hash of `folder` in it, "dirty": whether the
    folder has changed files or new modules}, or None without git or a commit that has the folder.
    Nothing else in the clone counts: no run imports it from there, and what a run reads of the
    user's (config, experiment, modules) is kept by `provenance`. So two versions of the code are
    told apart by "tree", not by the commit.

    None without git, outside a repository, or where no commit holds the folder (before the first
    one, or installed in a venv inside a repository).
    """
    hashes = _git(folder, "rev-parse", "HEAD", "HEAD:./")
    if not hashes:
        return None
    revision, tree = hashes.split()
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ".")
    new = _git(folder, "ls-files", "--others", "--exclude-standard", "--", "*.py", "*.so")
    return {"revision": revision, "tree": tree, "dirty": bool(changed or new)}


def _git(folder: Path, *arguments: str) -> str | None:
    """Returns the output of `git` with these arguments, run in `folder`, without outer blanks, or
    None if it fails or takes over 10 s.
    """
    try:
        process = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout.strip()
