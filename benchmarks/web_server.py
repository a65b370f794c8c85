"""A static server in a thread for benchmarks/web.py: folders under prefixes, HTTP ranges, bytes counted."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

ISOLATION = ((b"cross-origin-opener-policy", b"same-origin"), (b"cross-origin-embedder-policy", b"require-corp"))


class Server:
    """Serves ``folders`` (prefix -> folder) on a free port of the loopback interface; a context manager.

    ``sent`` has the body bytes of the paths served since `reset`.
    """

    def __init__(self, folders: Mapping[str, Path], isolated: bool = False) -> None:
        self.sent: dict[str, int] = {}
        self._isolated = isolated
        routes = [Mount(prefix, StaticFiles(directory=folder, html=True)) for prefix, folder in folders.items()]
        self._app = Starlette(routes=routes)
        self._server = uvicorn.Server(
            uvicorn.Config(self._count, port=0, log_level="warning", lifespan="off", interface="asgi3")
        )
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    async def _count(self, scope: Any, receive: Any, send: Any) -> None:
        async def counting(message: Any) -> None:
            if message["type"] == "http.response.start" and self._isolated:
                message["headers"] = [*message["headers"], *ISOLATION]
            if message["type"] == "http.response.body":
                path = scope["path"]
                self.sent[path] = self.sent.get(path, 0) + len(message.get("body", b""))
            await send(message)

        await self._app(scope, receive, counting)

    def reset(self) -> None:
        """Forget what was counted."""
        self.sent.clear()

    @property
    def url(self) -> str:
        """The address, without a slash at its end."""
        return f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"

    def __enter__(self) -> Server:
        self._thread.start()
        while not self._server.started:
            self._thread.join(0.02)
            if not self._thread.is_alive():
                raise RuntimeError("the server did not start")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.should_exit = True
        self._thread.join()
