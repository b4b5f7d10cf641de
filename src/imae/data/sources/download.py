"""Where data sets are stored; downloads that are resumed, checked by hash and atomic."""

import contextlib
import hashlib
import http.client
import importlib.util
import os
import re
import shlex
import sys
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, final

from imae.errors import DataError, import_extra


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """The folder that holds the data sets.

    Args:
        root: Folder given by the user, or None for ``$IMAE_DATA``, and ``~/.cache/imae`` where
            that is not set.

    Examples:
        >>> data_root("photos").name
        'photos'
    """
    if root is not None:
        return Path(root).expanduser()
    given = os.environ.get("IMAE_DATA")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "imae"


def fetch_command(name: str, root: Path) -> str:
    """The command that fetches a set into this folder.

    Examples:
        >>> fetch_command("cifar10", Path("my sets"))
        "imae data fetch cifar10 --root 'my sets'"
    """
    words = ["imae", "data", "fetch", name]
    return shlex.join(words if root == data_root() else [*words, "--root", str(root)])


def places(name: str, root: Path) -> tuple[Path, ...]:
    """Folders in which the files of a set may be: one of its own in ``root``, or ``root``."""
    return (root / name, root)


class Origin(ABC):
    """A source from which the files of a set can be downloaded."""

    @property
    @abstractmethod
    def label(self) -> str:
        """Short name for listings and messages."""

    @abstractmethod
    def fetch(self, folder: Path) -> tuple[Path, ...]:
        """Puts the files into ``folder``, each completely or not at all, and returns their paths.

        Raises:
            DataError: If they are not available, or not the published ones.
            OSError: If the network or the disk fails.
        """


@final
@dataclass(frozen=True)
class PackageOrigin(Origin):
    """An installed package that contains the files, so that nothing is downloaded.

    Args:
        package: Name of the package.
        module: Module that must be installed.
    """

    package: str
    module: str

    @property
    def label(self) -> str:
        """Name of the package."""
        return self.package

    def fetch(self, folder: Path) -> tuple[Path, ...]:  # noqa: ARG002
        """Does nothing, if the package is installed.

        Raises:
            MissingExtraError: If it is not.
        """
        import_extra(self.module, extra="data")
        return ()


@contextlib.contextmanager
def byte_progress(label: str, *, done: int, total: int | None) -> Iterator[Callable[[int], None]]:
    """A function that takes the number of bytes done so far and shows it on standard error.

    It shows nothing when standard error is not a terminal or ``rich`` is not installed.

    Args:
        label: What is being fetched.
        done: Bytes already downloaded.
        total: Total number of bytes, or None if unknown.
    """
    if importlib.util.find_spec("rich") is None:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    columns = ("{task.description}", BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True
    ) as bar:
        task = bar.add_task(label, total=total, completed=done)
        yield lambda count: bar.update(task, completed=count)


_ATTEMPTS = 5
_BLOCK_BYTES = 1 << 18
_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True)
class RemoteFile:
    """A file at an address.

    Args:
        url: Its address.
        max_bytes: Its size, or an upper limit if the size is not published.
        sha256: Its published hash, or None if there is none; the decoded arrays are
            checked against a published hash in either case.
    """

    url: str
    max_bytes: int
    sha256: str | None = None

    @property
    def name(self) -> str:
        """File name on the disk: the last part of the address."""
        return self.url.rsplit("/", 1)[1]


@final
@dataclass(frozen=True)
class WebOrigin(Origin):
    """Files at web addresses.

    Args:
        files: All files of the set.
    """

    files: tuple[RemoteFile, ...]

    @property
    def label(self) -> str:
        """The host, for example ``www.cs.toronto.edu``."""
        return self.files[0].url.split("/")[2]

    def fetch(self, folder: Path) -> tuple[Path, ...]:
        """Downloads the files, except those that already exist with the right hash."""
        return tuple(download(file, folder) for file in self.files)


def download(file: RemoteFile, folder: Path) -> Path:
    """Downloads a file into ``folder`` and returns its path.

    Raises:
        DataError: If the address has no such file, the download keeps breaking off, or the file
            is not the published one.
        OSError: If the disk fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / file.name
    part = folder / f"{file.name}.part"
    if file.sha256 is not None and target.is_file() and _problem(file, target) is None:
        return target
    is_resumed = part.exists()
    _complete(file, part)
    problem = _problem(file, part)
    if problem and is_resumed:  # the part was left by another version of the file
        part.unlink()
        _complete(file, part)
        problem = _problem(file, part)
    if problem:
        part.unlink()
        raise DataError(f"{file.url}: {problem}")
    # The download is written to a .part file that survives a crash, so that it can be resumed.
    with part.open("rb") as finished:
        os.fsync(finished.fileno())
    os.replace(part, target)
    return target


def _complete(file: RemoteFile, part: Path) -> None:
    """Appends to the part until the server has sent everything."""
    reason = ""
    for _ in range(_ATTEMPTS):
        try:
            return _append(file, part)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != 416:  # the part is longer than what the server has
                raise DataError(
                    f"{file.url}: the server says {error.code} {error.reason}"
                ) from error
            part.unlink(missing_ok=True)
            reason = "the server refuses to resume"
        except (
            urllib.error.URLError,
            http.client.HTTPException,
            ConnectionError,
            TimeoutError,
        ) as error:
            reason = str(getattr(error, "reason", "") or error) or type(error).__name__
            if not part.exists():
                break  # nothing was received: another attempt has no better chance
    if not part.exists():
        raise DataError(f"{file.url}: cannot be reached ({reason})")
    raise DataError(
        f"{file.url}: broke off after {part.stat().st_size} bytes ({reason}); run the command "
        "again to resume it"
    )


def _append(file: RemoteFile, part: Path) -> None:
    start = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "imae", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(file.url, headers=headers)
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
        if start and not _continues(response, start):
            start = 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length and length.isdigit() else None
        with (
            part.open("ab" if start else "wb") as output,
            byte_progress(file.name, done=start, total=total) as report,
        ):
            _copy(response, output, done=start, total=total, limit=file.max_bytes, report=report)


def _continues(response: http.client.HTTPResponse, start: int) -> bool:
    """Whether the server sends the rest; one that cannot resume sends the file from the start."""
    match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return response.status == 206 and match is not None and int(match[1]) == start


def _copy(
    response: http.client.HTTPResponse,
    output: BinaryIO,
    *,
    done: int,
    total: int | None,
    limit: int,
    report: Callable[[int], None],
) -> None:
    while done <= limit and (block := response.read(_BLOCK_BYTES)):
        output.write(block)
        done += len(block)
        report(done)
    if total is not None and done < min(total, limit):
        raise ConnectionError(f"the connection closed {total - done} bytes before the end")


def _problem(file: RemoteFile, part: Path) -> str | None:
    """What is wrong with a finished part, if anything."""
    size = part.stat().st_size
    if size > file.max_bytes:
        return f"has more than {file.max_bytes} bytes, which the published file does not"
    if size == 0:
        return "is empty"
    if file.sha256 is None:
        return None
    digest = hashlib.sha256()
    with part.open("rb") as data:
        while block := data.read(_BLOCK_BYTES):
            digest.update(block)
    if digest.hexdigest() != file.sha256:
        return (
            f"is not the published file (sha256 {digest.hexdigest()[:12]}, "
            f"expected {file.sha256[:12]})"
        )
    return None
