"""`tang-edge demo`: the demo site, built and served."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from tang_edge.bundle import trust
from tang_edge.cli import console, site_build, site_server

EXAMPLE = """\b
Examples:
  tang-edge demo --open
  tang-edge demo --port 8080 --isolate
  tang-edge demo --build site"""

Build = Annotated[
    Path | None,
    typer.Option("--build", metavar="DIR", help="Write the site into this folder and end: static files for any host and path."),
]
Port = Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="Where to serve; 0 for any free port.")]
Host = Annotated[
    str,
    typer.Option("--host", metavar="ADDRESS", help="Address to serve on; over the network browsers want HTTPS for WebGPU."),
]
Isolate = Annotated[
    bool, typer.Option("--isolate", help="Send the headers that isolate the page (COOP, COEP): WebAssembly threads work then.")
]
Open = Annotated[bool, typer.Option("--open", help="Open the site in the browser.")]
Models = Annotated[
    Path | None,
    typer.Option("--models", metavar="DIR", help="Where the ONNX models are, or are fetched to; the cache if not given."),
]


def command(
    build: Build = None,
    models: Models = None,
    port: Port = 8137,
    host: Host = "127.0.0.1",
    isolate: Isolate = False,
    open_browser: Open = False,
    as_json: console.AsJson = False,
) -> None:
    """Build the demo site if needed, and serve it on this machine.

    The first build fetches about 100 MB (models, Python for WebAssembly, ONNX Runtime Web), each file checked against its
    SHA-256, and packs the models. What is there is kept: a build that was cut goes on.
    """
    cache = trust.private_dir(trust.cache_dir())
    if build is None:
        site_server.application(cache, isolate)  # says what serving lacks before the long part begins
    with console.progress(as_json) as stage:
        built = site_build.build(build or cache / "site", models or cache / "models", stage)
    for name, why in built.missing.items():
        console.err.print(f"[yellow]left out:[/] {name}: {escape(why)}", soft_wrap=True)
    facts = {"site": str(built.site), "packed": built.made, "missing": built.missing}
    if build is not None:
        if as_json:
            console.print_json(facts)
        else:
            console.out.print(f"[bold]{escape(str(built.site))}[/] holds the site: put it on any web server, at any path")
        return

    def started(address: str) -> None:
        if as_json:
            console.print_json({**facts, "address": address})
        else:
            console.out.print(f"[bold]{address}[/]  (Ctrl+C ends)")

    site_server.serve(site_server.application(built.site, isolate), host, port, started, open_browser)
