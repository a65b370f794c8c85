"""Serves a folder of static files: byte ranges, the right types, and, when asked, headers that isolate the page."""

from __future__ import annotations

import mimetypes
import socket
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tang_edge.errors import InputError

TYPES: Final = {
    ".wasm": "application/wasm",
    ".mjs": "text/javascript",
    ".js": "text/javascript",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
    ".svg": "image/svg+xml",
    ".tang": "application/octet-stream",
    ".onnx": "application/octet-stream",
    ".whl": "application/octet-stream",
}
# a new build must be seen at once; what did not change is answered by 304
PLAIN: Final = {b"cache-control": b"no-cache"}
ISOLATED: Final = {
    **PLAIN,
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-embedder-policy": b"require-corp",
    b"cross-origin-resource-policy": b"same-origin",
}


@contextmanager
def needs_server() -> Iterator[None]:
    """Around the import of the server's packages. Raises InputError that says which extra is missing."""
    try:
        yield
    except ImportError as error:
        raise InputError(
            f"serving needs the package {error.name!r}, which is not installed",
            remedy="Run: pip install 'tang-edge[serve]', or build the site (--build DIR) and use any web server.",
        ) from error


def application(folder: Path, isolate: bool) -> Any:
    """The ASGI application. Raises InputError when the extra `serve` is missing."""
    with needs_server():
        from starlette.applications import Starlette
        from starlette.routing import Mount
        from starlette.staticfiles import StaticFiles
    for suffix, kind in TYPES.items():
        # the system's own table may say otherwise
        mimetypes.add_type(kind, suffix)
    files = Starlette(routes=[Mount("/", StaticFiles(directory=folder, html=True))])
    return _with_headers(files, ISOLATED if isolate else PLAIN)


def _with_headers(inner: Any, headers: dict[bytes, bytes]) -> Any:
    async def outer(scope: Any, receive: Any, send: Any) -> None:
        async def marked(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *headers.items()]
            await send(message)

        if scope["type"] == "http":
            await inner(scope, receive, marked)

    return outer


def serve(app: Any, host: str, port: int, started: Callable[[str], None], open_browser: bool) -> None:
    """Serve until interrupted; `started` gets the address. Raises InputError when the port cannot be had."""
    with needs_server():
        import uvicorn
    listener = listen(host, port)
    name = f"[{host}]" if ":" in host else host
    address = f"http://{name}:{listener.getsockname()[1]}/"
    config = uvicorn.Config(app, log_level="warning", lifespan="off", access_log=False)
    started(address)
    if open_browser:
        webbrowser.open(address)
    with listener:
        uvicorn.Server(config).run(sockets=[listener])


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 is any free one. Raises InputError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise InputError(
            f"cannot listen on {host} port {port} ({error.strerror})", remedy="Choose another with --port, 0 for any free one."
        ) from error
    return listener
