"""Serves the review page on this machine only, and writes decisions as they are made."""

import hmac
import http.server
import json
import secrets
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from imae.audit.cards import Rows
from imae.audit.correct import Sample
from imae.audit.decisions import (
    DECISIONS,
    Decision,
    decide,
    read_decisions,
    write_decisions,
)
from imae.audit.page import Overview, page_name, render, saved_data
from imae.audit.result import Audit
from imae.errors import DataError

_HOST = "127.0.0.1"
_PICTURE = "picture/"
_DECIDED = "decided"
_MOST_BYTES = 16_000_000  # of a request
_DIGITS = len(str(_MOST_BYTES))  # int() raises for thousands of them
_LONGEST_TIME = 40  # characters of a time
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "frame-ancestors 'none'",
}


class Review:
    """The decisions about one audit, in memory and in a file.

    Args:
        audit: The audit.
        path: File of the decisions; those already in it are kept.
        sample: For the check: the sample; then nothing else is shown.
        rows: The rows as people see them.
        about: Name of the data and the date, for the title.

    Raises:
        DataError: If the file is not of this audit, or damaged.
    """

    def __init__(
        self,
        audit: Audit,
        path: Path,
        *,
        sample: Sample | None = None,
        rows: Rows | None = None,
        about: str = "",
    ) -> None:
        self.audit = audit
        self.path = path
        self.sample = sample
        self.rows = rows or Rows()
        self.about = about
        self.overview = Overview(audit)
        self.decisions = read_decisions(audit, [path]) if path.exists() else {}
        self._places = {row_id: place for place, row_id in enumerate(audit.row_ids.tolist())}
        self._numbers = {name: number for number, name in enumerate(audit.class_names)}
        self._lock = threading.Lock()

    @property
    def num_parts(self) -> int:
        """Number of pages."""
        return 1 if self.sample is not None else self.overview.num_pages

    def page(self, part: int) -> str:
        """The page with what was decided so far."""
        with self._lock:
            saved = dict(self.decisions)
        return render(
            self.overview,
            part=part,
            sample=self.sample,
            saved=saved,
            preview=self.rows.preview,
            about=self.about,
        )

    def decided(self) -> list[dict[str, object]]:
        """What was decided so far, as the script of the page reads it."""
        with self._lock:
            return saved_data(self.audit, self.decisions)

    def picture(self, row_id: str) -> bytes | None:
        """A large picture of a row as JPEG, if it has one."""
        return self.rows.picture(row_id) if row_id in self._places else None

    def change(self, content: object) -> None:
        """Adopts the decisions of a page and writes the file; all of them or none.

        Args:
            content: What the page sent: ``identity`` and ``changes``, each with ``row_id``,
                ``decision`` (None to undo it), ``label`` and ``time``.

        Raises:
            DataError: If it is from the page of another run, or names an unknown row or class.
        """
        changes = self._checked(content)
        with self._lock:
            changed = dict(self.decisions)
            for row, decision in changes:
                changed.pop(row, None)  # the last decision comes last
                if decision is not None:
                    changed[row] = decision
            write_decisions(self.audit, changed, self.path)
            self.decisions = changed

    def _checked(self, content: object) -> list[tuple[int, Decision | None]]:
        if not isinstance(content, dict) or not isinstance(content.get("changes"), list):
            raise DataError("the request holds no decisions")
        if content.get("identity") != self.overview.identity:
            raise DataError("this page belongs to another run or other labels; reload it")
        return [self._change(each) for each in content["changes"]]

    def _change(self, each: object) -> tuple[int, Decision | None]:
        if not isinstance(each, dict):
            raise DataError("the request holds something that is not a decision")
        row_id, name = each.get("row_id"), each.get("decision")
        label, time = each.get("label"), each.get("time")
        if not isinstance(row_id, str) or row_id not in self._places:
            raise DataError(f"row {row_id!r} is not a row of this run")
        row = self._places[row_id]
        if name is None:
            return row, None
        if name not in DECISIONS:
            raise DataError(f"row {row_id!r}: {name!r} is not a decision")
        number = None
        if name in ("accept", "relabel"):
            if not isinstance(label, str) or label not in self._numbers:
                raise DataError(f"row {row_id!r}: {label!r} is not one of the classes")
            number = self._numbers[label]
        shown_time = time[:_LONGEST_TIME] if isinstance(time, str) and time.isprintable() else ""
        given = int(self.audit.given[row])
        return row, decide(name, number, given, by="person", time=shown_time)


class Server(http.server.ThreadingHTTPServer):
    """Serves a review on this machine only, to clients that know the token in the address.

    Args:
        review: What is reviewed.
        port: Port, or 0 for any that is free.
    """

    daemon_threads = True

    def __init__(self, review: Review, *, port: int = 0) -> None:
        self.review = review
        self.token = secrets.token_urlsafe(32)
        super().__init__((_HOST, port), _Handler)

    @property
    def address(self) -> str:
        """The address to open, token included."""
        return f"http://{_HOST}:{self.server_port}/{self.token}/"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names by which a browser on this machine may address the server."""
        return (f"{_HOST}:{self.server_port}", f"localhost:{self.server_port}")

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores a browser that closed its connection."""
        del request, client_address


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Server
    server_version = "imae"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def log_message(self, format: str, *args: Any) -> None:
        del format, args  # the terminal is for the user

    def _answer(self, respond: Callable[[str], None]) -> None:
        """Answers if the request comes from this machine's browser and knows the token."""
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or hosts[0] not in self.server.hosts:
            self._send(403, "this server answers only on its own machine")
            return
        token, slash, place = self.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self._send(403, "the address lacks its token; use the one that imae printed")
        elif not slash:  # without it the page would send its decisions to an address without token
            self._send(307, "", further={"Location": f"/{token}/"})
        else:
            respond(place)

    def _get(self, place: str) -> None:
        review = self.server.review
        if place.startswith(_PICTURE):
            picture = review.picture(urllib.parse.unquote(place.removeprefix(_PICTURE)))
            if picture is None:
                self._send(404, "there is no such picture")
            else:
                self._send(200, picture, kind="image/jpeg")
            return
        if place == _DECIDED:
            self._send(200, json.dumps(review.decided()), kind="application/json")
            return
        parts = {"": 0} | {page_name(part): part for part in range(review.num_parts)}
        if place not in parts:
            self._send(404, "there is no such page")
            return
        self._send(200, review.page(parts[place]), kind="text/html; charset=utf-8")

    def _post(self, place: str) -> None:
        origin = self.headers.get("Origin")
        length = self.headers.get("Content-Length", "")
        if origin is not None and origin not in [f"http://{host}" for host in self.server.hosts]:
            self._send(403, "decisions are accepted from the served page only")
        elif place != "decisions" or self.headers.get_content_type() != "application/json":
            self._send(404, "only decisions can be sent, as JSON")
        elif not length.isdecimal() or len(length) > _DIGITS or int(length) > _MOST_BYTES:
            self._send(413, f"a request has at most {_MOST_BYTES} bytes")
        else:
            self._save(self.rfile.read(int(length)))

    def _save(self, body: bytes) -> None:
        try:
            self.server.review.change(json.loads(body))
        except DataError as error:
            self._send(409, str(error))
        except (ValueError, RecursionError):
            self._send(400, "the request is not JSON")
        except OSError as error:
            self._send(500, f"the decisions cannot be written ({error.strerror or error})")
        else:
            self._send(204, "")

    def _send(
        self,
        code: int,
        content: str | bytes,
        *,
        kind: str = "text/plain; charset=utf-8",
        further: Mapping[str, str] | None = None,
    ) -> None:
        content = content.encode("utf-8") if isinstance(content, str) else content
        self.send_response(code)
        for name, value in {**_HEADERS, **(further or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
