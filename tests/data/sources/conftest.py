"""Small files in the formats of the big sets, and a web server that can misbehave."""

import gzip
import io
import json
import struct
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

BATCHES = [f"data_batch_{number}" for number in range(1, 6)]


class Writers:
    """Writers of small files, each the shape of an official one."""

    @staticmethod
    def tar(path: Path, members: Mapping[str, bytes]) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path, "w:gz") as archive:
            for name, data in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        return path

    @staticmethod
    def python2_pickle(value: Mapping[str, Any]) -> bytes:
        """A dictionary as Python 2 pickled it: byte strings, arrays through numpy.core."""

        def text(string: str) -> bytes:
            return b"U" + bytes([len(string)]) + string.encode()

        def array(values: np.ndarray) -> bytes:
            data = values.tobytes()
            shape = b"".join(b"J" + struct.pack("<i", size) for size in values.shape)
            kind = b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR"
            kind += b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
            start = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
            bytes_of = b"T" + struct.pack("<I", len(data)) + data
            return start + b"(K\x01(" + shape + b"t" + kind + b"\x89" + bytes_of + b"tb"

        def item(thing: Any) -> bytes:
            if isinstance(thing, np.ndarray):
                return array(thing)
            if isinstance(thing, str):
                return text(thing)
            return b"](" + b"".join(b"K" + bytes([number]) for number in thing) + b"e"

        body = b"".join(text(key) + item(thing) for key, thing in value.items())
        return b"\x80\x02}(" + body + b"u."

    @staticmethod
    def idx(values: np.ndarray) -> bytes:
        sizes = b"".join(struct.pack(">I", size) for size in values.shape)
        return bytes([0, 0, 8, values.ndim]) + sizes + values.tobytes()

    @staticmethod
    def png(pixels: np.ndarray) -> bytes:
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        return file.getvalue()

    def cifar10_binary(self, arrays: Mapping[str, np.ndarray]) -> dict[str, bytes]:
        images = np.concatenate([arrays["train_images"], arrays["test_images"]]).reshape(-1, 3072)
        labels = np.concatenate([arrays["train_labels"], arrays["test_labels"]])
        rows = np.concatenate([labels[:, None], images], axis=1)
        names = [*(f"{name}.bin" for name in BATCHES), "test_batch.bin"]
        return {name: part.tobytes() for name, part in zip(names, np.split(rows, 6), strict=True)}

    def cifar10_python(self, arrays: Mapping[str, np.ndarray]) -> dict[str, bytes]:
        images = np.concatenate([arrays["train_images"], arrays["test_images"]]).reshape(-1, 3072)
        labels = np.concatenate([arrays["train_labels"], arrays["test_labels"]])
        parts = zip(np.split(images, 6), np.split(labels, 6), strict=True)
        return {
            name: self.python2_pickle({"batch_label": name, "labels": given.tolist(), "data": rows})
            for name, (rows, given) in zip([*BATCHES, "test_batch"], parts, strict=True)
        }

    def cifar10_strips(self, arrays: Mapping[str, np.ndarray]) -> dict[str, bytes]:
        images = np.concatenate([arrays["train_images"], arrays["test_images"]])
        strips = images.reshape(-1, 3, 1024).transpose(0, 2, 1)
        names = [*(f"{name}.png" for name in BATCHES), "test_batch.png"]
        files = {
            name: self.png(np.ascontiguousarray(part))
            for name, part in zip(names, np.split(strips, 6), strict=True)
        }
        for part in ("train", "test"):
            files[f"{part}_lables.json"] = json.dumps(arrays[f"{part}_labels"].tolist()).encode()
        return files

    def mnist_files(self, arrays: Mapping[str, np.ndarray]) -> dict[str, bytes]:
        files = {}
        for part, prefix in (("train", "train"), ("test", "t10k")):
            files[f"{prefix}-images-idx3-ubyte.gz"] = self.idx(arrays[f"{part}_images"][:, 0])
            files[f"{prefix}-labels-idx1-ubyte.gz"] = self.idx(arrays[f"{part}_labels"])
        return {name: gzip.compress(data, mtime=0) for name, data in files.items()}


@pytest.fixture
def writers() -> Writers:
    return Writers()


@pytest.fixture
def small_cifar() -> dict[str, np.ndarray]:
    """Ten training and two test images with random pixels."""
    generator = np.random.Generator(np.random.PCG64(1))
    return {
        "train_images": generator.integers(0, 256, (10, 3, 32, 32), np.uint8),
        "train_labels": generator.integers(0, 10, 10, np.uint8),
        "test_images": generator.integers(0, 256, (2, 3, 32, 32), np.uint8),
        "test_labels": generator.integers(0, 10, 2, np.uint8),
    }


class Server:
    """A web server on this machine whose files and faults a test sets.

    ``files``: contents by path; ``break_after``: bytes after which the next answers break off;
    ``ranges``: whether it can resume; ``requests``: what was asked, path and range.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.break_after: list[int] = []
        self.ranges = True
        self.requests: list[tuple[str, str | None]] = []
        self.url = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        asked = request.headers.get("Range")
        self.requests.append((request.path, asked))
        data = self.files.get(request.path)
        if data is None:
            request.send_error(404)
            return
        start = int(asked[len("bytes=") : -1]) if asked and self.ranges else 0
        if start >= len(data) > 0:
            request.send_error(416)
            return
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        request.send_header("Content-Length", str(len(data) - start))
        request.end_headers()
        stop = start + self.break_after.pop(0) if self.break_after else len(data)
        request.wfile.write(data[start:stop])


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.answer(self)

        def log_message(self, *arguments: object) -> None:
            del arguments

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as web:
        state.url = f"http://127.0.0.1:{web.server_address[1]}"
        thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield state
        web.shutdown()
        thread.join()


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Puts a program of this name, with a shell script as its body, first on the path."""
    folder = tmp_path / "programs"
    folder.mkdir()

    def make(name: str, body: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)

    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return make
