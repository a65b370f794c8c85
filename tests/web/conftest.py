"""Real headless Chromium with a software WebGPU adapter, the built package, and a server with faults.

Fixtures for tests of pages: `chromium` (the browser), `context` and `page` (fresh storage for each test), `server` (with the
built package at /dist/ and an empty page at /), `web_dist` (the built package's folder).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from server import Server

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "web"
PAGE = "<!doctype html><meta charset=utf-8><title>tang-edge</title><link rel=icon href=data:,>"

ARGUMENTS = [
    "--headless=new",
    "--enable-unsafe-webgpu",
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-extensions",
]


def chromium_path() -> str | None:
    """Where Chromium is: $CHROMIUM, else what the system has."""
    named = os.environ.get("CHROMIUM")
    return named or next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)


@pytest.fixture(scope="session")
def web_dist() -> Path:
    """The folder of the built package."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is missing (tools/system_packages.sh node)")
    installed, wanted = WEB / "node_modules" / ".package-lock.json", WEB / "package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < wanted.stat().st_mtime:
        subprocess.run([npm, "ci", "--no-audit", "--no-fund", "--loglevel=error"], cwd=WEB, check=True)
    subprocess.run([npm, "run", "build", "--silent"], cwd=WEB, check=True)
    return WEB / "dist"


# One a module, not one a session: while it is open its event loop would be in the way of other tests' own.
@pytest.fixture(scope="module")
def chromium() -> Iterator[object]:
    """A browser."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is missing (pip install tang-edge[dev])")
    path = chromium_path()
    if path is None:
        pytest.skip("Chromium is missing (tools/system_packages.sh chromium)")
    with api.sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=path, headless=True, ignore_default_args=["--headless", "--disable-gpu"], args=ARGUMENTS
        )
        yield browser
        browser.close()


@pytest.fixture
def server(web_dist: Path) -> Iterator[Server]:
    """The built package at /dist/, an empty page at /, and whatever the test puts there."""
    made = Server()
    made.mount("/dist", web_dist)
    made.put("/", PAGE)
    yield made
    made.close()


@pytest.fixture
def context(chromium, server):
    """Fresh storage; anything that asks another host than the server fails the test."""
    made = chromium.new_context()
    made.set_default_timeout(60_000)
    strangers: list[str] = []

    def seen(request) -> None:
        if not request.url.startswith((server.url, "data:", "blob:", "about:")):
            strangers.append(request.url)

    made.on("request", seen)
    yield made
    made.close()
    assert not strangers, f"requests to other hosts: {strangers}"


@pytest.fixture
def page(context, server):
    """The empty page at /, with what it logs printed, and errors that nobody caught failing the test."""
    opened = context.new_page()
    errors: list[str] = []
    opened.on("console", lambda message: print(f"[{message.type}] {message.text}"))
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.goto(server.url + "/")
    yield opened
    assert not errors, errors
