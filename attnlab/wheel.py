"""How a wheel is built, which `pyproject.toml` names: it carries the files of `configs/` and
`experiments/`, inside the package.
"""

from pathlib import Path

from setuptools.command.build_py import build_py


class BuildWithFiles(build_py):
    """Copies them to `attnlab/_shipped`, where `attnlab.config` looks; an editable install finds
    them in the clone.
    """

    def run(self) -> None:
        """Builds the modules of the package and copies the Python files of `configs` and
        `experiments` to `attnlab/_shipped`; not in an editable install.
        """
        super().run()
        if self.editable_mode:
            return
        for folder in ("configs", "experiments"):
            target = str(Path(self.build_lib, "attnlab", "_shipped", folder))
            self.mkpath(target)
            for file in sorted(Path(folder).glob("*.py")):
                self.copy_file(str(file), target)
