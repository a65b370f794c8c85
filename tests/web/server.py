"""A static file server on this machine whose faults a test sets: what a delivery must survive."""

from __future__ import annotations

import hashlib
import mimetypes
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

mimetypes.add_type("text/javascript", ".js")
mimetypes.add_type("application/wasm", ".wasm")

_BLOCK = 64 << 10


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the server saw it: ``sent`` counts the bytes of the body."""

    method: str
    path: str
    range: str | None
    status: int
    sent: int


@dataclass
class Faults:
    """What goes wrong, until a test says otherwise. Each concerns paths that end with ``only`` (default: ``.tang``)."""

    ranges: bool = True
    etag: bool = True
    gone: bool = False  # connections are closed without an answer
    status: int | None = None  # this status instead of an answer
    cut_after: int | None = None  # close the connection after so many bytes of a body, `cuts` times
    cuts: int = 1
    flip: int | None = None  # this byte of the file is wrong on the wire, `flips` times
    flips: int = 1
    latency: float = 0.0  # seconds before each answer
    bytes_per_second: float | None = None
    isolated: bool = False  # COOP and COEP: the page becomes cross-origin isolated
    only: str = ".tang"


@dataclass
class _State:
    mounts: dict[str, Path] = field(default_factory=dict)
    contents: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)
    log: list[Request] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Server:
    """``http://127.0.0.1:PORT``: files below mounted folders, and contents given directly.

    Attributes:
        url: without a slash at the end.
    """

    def __init__(self) -> None:
        self._state = _State()
        state = self._state
        handler = type("Handler", (_Handler,), {"state": state})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def faults(self) -> Faults:
        """The faults, to be changed in place."""
        return self._state.faults

    @property
    def log(self) -> list[Request]:
        """The requests so far, in the order in which their answers ended."""
        with self._state.lock:
            return list(self._state.log)

    def requests(self, suffix: str = ".tang") -> list[Request]:
        """The requests for paths that end so."""
        return [r for r in self.log if r.path.endswith(suffix)]

    def sent(self, suffix: str = ".tang") -> int:
        """Bytes of bodies sent for paths that end so."""
        return sum(r.sent for r in self.requests(suffix))

    def mount(self, prefix: str, folder: Path) -> None:
        """Serve the files below ``folder`` at ``prefix`` ("/dist")."""
        self._state.mounts[prefix.rstrip("/")] = folder

    def put(self, path: str, content: bytes | str, kind: str = "text/html; charset=utf-8") -> str:
        """Serve this content at ``path``; returns its URL."""
        self._state.contents[path] = (content.encode() if isinstance(content, str) else content, kind)
        return self.url + path

    def folder(self, prefix: str) -> Path:
        """The folder mounted there."""
        return self._state.mounts[prefix]

    def reset_log(self) -> None:
        """Forget the requests so far."""
        with self._state.lock:
            self._state.log.clear()

    def reset(self) -> None:
        """No faults, no log, no contents but the mounts."""
        state = self._state
        with state.lock:
            state.faults = Faults()
            state.log.clear()
            state.contents.clear()

    def close(self) -> None:
        """Stop."""
        self._http.shutdown()
        self._http.server_close()


class _Handler(BaseHTTPRequestHandler):
    state: _State
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: tests look at the log of the server."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        hit = path.endswith(self.state.faults.only)
        faults = self.state.faults if hit else Faults(isolated=self.state.faults.isolated)
        time.sleep(faults.latency)
        if faults.gone:
            self._log(0, 0)
            self.close_connection = True
            self.connection.close()
            return
        found = self._find(path)
        if faults.status is not None or found is None:
            self._plain(faults.status or 404)
            return
        self._file(*found, faults)

    def _find(self, path: str) -> tuple[int, str, str, Callable[[int, int], bytes]] | None:
        """Size, tag, kind and reader of what lies at the path."""
        given = self.state.contents.get(path)
        if given is not None:
            data, kind = given
            return len(data), hashlib.sha256(data).hexdigest()[:16], kind, lambda at, n: data[at : at + n]
        for prefix, folder in self.state.mounts.items():
            if not path.startswith(prefix + "/"):
                continue
            file = (folder / path[len(prefix) + 1 :]).resolve()
            if file.is_dir():
                file = file / "index.html"
            if file.is_file() and file.is_relative_to(folder.resolve()):
                info = file.stat()
                kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
                return info.st_size, f"{info.st_mtime_ns:x}-{info.st_size:x}", kind, partial(_read, file)
        return None

    def _file(self, size: int, tag: str, kind: str, read: Callable[[int, int], bytes], faults: Faults) -> None:
        etag = f'"{tag}"' if faults.etag else None
        if etag is not None and self.headers.get("If-None-Match") == etag:
            self._plain(304, {"ETag": etag})
            return
        wanted = _range(self.headers.get("Range"), size) if faults.ranges else None
        if wanted == "unsatisfiable":
            self._plain(416, {"Content-Range": f"bytes */{size}"})
            return
        start, stop = wanted if isinstance(wanted, tuple) else (0, size)
        headers = {"Content-Type": kind, "Content-Length": str(stop - start), "Cache-Control": "no-cache"}
        if faults.ranges:
            headers["Accept-Ranges"] = "bytes"
        if etag is not None:
            headers["ETag"] = etag
        if isinstance(wanted, tuple):
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        status = 206 if isinstance(wanted, tuple) else 200
        self._head(status, headers)
        self._body(status, start, stop if self.command == "GET" else start, read, faults)

    def _body(self, status: int, start: int, stop: int, read: Callable[[int, int], bytes], faults: Faults) -> None:
        at = start
        try:
            while at < stop:
                want = min(_BLOCK, stop - at)
                if faults.cut_after is not None and faults.cuts > 0 and at - start + want > faults.cut_after:
                    want = faults.cut_after - (at - start)
                    self.wfile.write(read(at, want))
                    at += want
                    faults.cuts -= 1
                    self.close_connection = True
                    self.connection.close()
                    return
                block = read(at, want)
                if faults.flip is not None and faults.flips > 0 and at <= faults.flip < at + want:
                    where = faults.flip - at
                    block = block[:where] + bytes([block[where] ^ 0x10]) + block[where + 1 :]
                    faults.flips -= 1
                self.wfile.write(block)
                at += want
                if faults.bytes_per_second:
                    time.sleep(want / faults.bytes_per_second)
        except (ConnectionError, ValueError):
            self.close_connection = True
        finally:
            self._log(status, at - start)

    def _plain(self, status: int, headers: dict[str, str] | None = None) -> None:
        body = b"" if status == 304 or self.command == "HEAD" else f"{status}\n".encode()
        self._head(status, {"Content-Length": str(len(body)), "Content-Type": "text/plain", **(headers or {})})
        self.wfile.write(body)
        self._log(status, len(body))

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if self.state.faults.isolated:
            self.send_header("Cross-Origin-Opener-Policy", "same-origin")
            self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
            self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.end_headers()

    def _log(self, status: int, sent: int) -> None:
        path = unquote(urlsplit(self.path).path)
        with self.state.lock:
            self.state.log.append(Request(self.command, path, self.headers.get("Range"), status, sent))


def _read(file: Path, at: int, count: int) -> bytes:
    with file.open("rb") as opened:
        opened.seek(at)
        return opened.read(count)


def _range(header: str | None, size: int) -> tuple[int, int] | str | None:
    """Start and stop of a single range; None where the whole file is meant."""
    found = re.fullmatch(r"bytes=(\d*)-(\d*)", header or "")
    if found is None or found.group(0) == "bytes=-":
        return None
    first, last = found.groups()
    if not first:
        return max(0, size - int(last)), size
    start, stop = int(first), min(size, int(last) + 1 if last else size)
    return (start, stop) if start < stop else "unsatisfiable"
