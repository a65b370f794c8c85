"""Measure tang-edge in the browser against onnxruntime-web, in one page of headless Chromium.

    python -m benchmarks.web [--models go2-policy,ppocr-cls] [--quick] [--json out.json]

Steady state: all sides are loaded in one page and take turns (benchmarks/measure.py); every run brings its outputs back to
JavaScript. Cold start: each side in a browser context of its own with empty caches and storage, several times in turns:
from the import of the runtime to the first result, with the bytes that the server sent and the JavaScript heap afterwards.
Answers are compared with ONNX Runtime's CPU provider before and after; a side that differs gets no figure.

Chromium has a software adapter where there is no GPU (SwiftShader): the report names it. onnxruntime-web comes from npm.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Browser, BrowserContext, Error, Page, sync_playwright

from benchmarks import report
from benchmarks.measure import QUICK, Disagreement, Effort, check, measure, reference
from benchmarks.sides import OrtCpu, pack
from benchmarks.web_server import Server
from tests.models import real_inputs

ROOT = Path(__file__).resolve().parents[1]
PEER = ROOT / ".peer-web"
ORT = "onnxruntime-web@1.30.0"
SIDES = ("tang-webgpu", "ort-webgpu", "tang-wasm", "ort-wasm")
PAIRS = (("WebGPU", "tang-webgpu", "ort-webgpu"), ("WebAssembly", "tang-wasm", "ort-wasm"))
FLAGS = (
    *("--headless=new", "--enable-unsafe-webgpu", "--no-sandbox", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--disable-extensions"),
)
# The usual sizes take minutes a run on a software adapter; these are the small ones that --quick takes instead.
SMALL = {
    "ppocr-det": (1, 3, 64, 64),
    "ppocr-rec": (1, 3, 48, 48),
    "oww-melspec": (1, 1760),
}
TOLERANCE = 2e-3
TOLERANCES = {"reachy-fk-int8": 5e-2}  # rounds to a grid inside: see benchmarks/run.py
CALL = 900_000  # milliseconds that one call in the page may take


class Failed(Exception):
    """A side cannot be measured."""


class InPage:
    """One contestant in a page, as a `benchmarks.sides.Side`."""

    def __init__(self, page: Page, name: str, model: str, feeds: Sequence[dict[str, Any]], threads: int) -> None:
        self.name = name
        self._page = page
        args = [name, model, [_packed(f) for f in feeds], threads]
        self.opened: dict[str, Any] = _call(page, "a => bench.open(...a)", args, name)

    def time(self, runs: int, feed: int) -> list[float]:
        """Seconds of each run."""
        return [ms / 1e3 for ms in _call(self._page, "a => bench.time(...a)", [self.name, runs, feed], self.name)]

    def outputs(self) -> list[Any]:
        """The arrays of the last run."""
        found = _call(self._page, "a => bench.outputs(a)", self.name, self.name)
        return [_array(x) for x in found]

    def close(self) -> None:
        """Free the side."""
        _call(self._page, "a => bench.close(a)", self.name, self.name)


def _call(page: Page, script: str, argument: Any, side: str) -> Any:
    try:
        return page.evaluate(script, argument)
    except Error as error:
        raise Failed(f"{side}: {' '.join(error.message.split())[:300]}") from error


def _packed(feed: dict[str, Any]) -> dict[str, Any]:
    return {k: {"shape": list(v.shape), "data": base64.b64encode(v.tobytes()).decode()} for k, v in feed.items()}


_TYPES = {"BigInt64Array": np.int64, "Uint8Array": np.uint8, "Int32Array": np.int32, "Float32Array": np.float32}


def _array(x: dict[str, Any]) -> Any:
    return np.frombuffer(base64.b64decode(x["data"]), _TYPES[x["type"]]).reshape(x["shape"])


def main(argv: list[str] | None = None) -> int:
    """The command line; 0 when every side of every model could be measured, else 1."""
    options = _parser().parse_args(argv)
    sides = options.sides.split(",")
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as play:
        folders = _folders(Path(scratch), sides)
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("chrome"),
            ignore_default_args=["--headless", "--disable-gpu"],
            args=list(FLAGS),
        )
        results = []
        with Server(folders, options.threads > 1) as server:
            for model in options.models.split(","):
                results.append(_case(browser, server, model, sides, options, folders["/bundles"]))
                print(report.progress(results[-1]), file=sys.stderr, flush=True)
        document = {"machine": {**_machine(browser), "threads": options.threads}, "results": results}
        browser.close()
    document["means"] = _means(results)
    _show(document)
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if any(result["problems"] for result in results) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.web", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--models", default=",".join(real_inputs.MODELS))
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--threads", type=int, default=1, help="threads of WebAssembly; more than one isolates the page")
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds")
    parser.add_argument("--cold", type=int, default=3, help="cold starts of each side; 0 for none")
    parser.add_argument("--budget", type=float, help="seconds of steady state for each side and model")
    parser.add_argument("--json", type=Path)
    return parser


def _folders(scratch: Path, sides: Sequence[str]) -> dict[str, Path]:
    """What the server serves; the peer is installed and the web runtime built where that is missing."""
    ort = PEER / "node_modules" / "onnxruntime-web" / "dist"
    if not ort.is_dir():
        PEER.mkdir(exist_ok=True)
        subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(PEER), ORT], check=True
        )
    found = {"/ort": ort, "/models": real_inputs.models_dir(), "/bundles": scratch}
    if any(s.startswith("tang") for s in sides):
        web = ROOT / "web"
        if not (web / "node_modules").is_dir():
            subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=web, check=True)
        subprocess.run(["npm", "run", "--silent", "build"], cwd=web, check=True)
        found["/tang"] = web / "dist"
    return {**found, "/": Path(__file__).parent / "page"}


def _case(
    browser: Browser, server: Server, model: str, sides: Sequence[str], options: argparse.Namespace, bundles: Path
) -> dict[str, Any]:
    size = real_inputs.Size("small", SMALL[model]) if options.quick and model in SMALL else real_inputs.SIZES[model][0]
    kinds: tuple[real_inputs.Kind, ...] = ("random", "real")
    feeds = [
        real_inputs.inputs(model, size, kind=k, seed=s) for s, k in enumerate(kinds if size.label != "small" else kinds[:1])
    ]
    path = real_inputs.models_dir() / f"{model}.onnx"
    pack(path, bundles / f"{model}.tang", ["--target", "browser"])
    judge = OrtCpu(path, feeds, 1)
    answers = reference(judge, len(feeds))
    tolerance = TOLERANCES.get(model, TOLERANCE)
    effort = QUICK if options.quick else Effort()
    effort = replace(effort, pause=0.0, budget=options.budget or effort.budget)
    label = "x".join(map(str, size.shape))
    result: dict[str, Any] = {"case": f"{model}@{label}", "problems": [], "figures": {}, "cold": {}}
    result["cold"] = _cold(browser, server, model, feeds, sides, options, result["problems"])
    page = _page(browser.new_context(), server)
    opened: list[InPage] = []
    for name in sides:
        try:
            side = InPage(page, name, model, feeds, options.threads)
            check(side, answers, tolerance)
            opened.append(side)
        except (Failed, Disagreement) as error:
            result["problems"].append(str(error))
    try:
        for figure in measure(opened, answers, tolerance, effort):
            result["figures"][figure.side] = {
                "median": figure.median,
                "low": figure.low,
                "high": figure.high,
                "runs": figure.runs,
            }
    except (Failed, Disagreement) as error:
        result["problems"].append(str(error))
    result["about"] = {s.name: s.opened["about"] for s in opened}
    page.context.close()
    judge.close()
    return result


def _page(context: BrowserContext, server: Server) -> Page:
    page = context.new_page()
    page.set_default_timeout(CALL)
    page.goto(server.url + "/", timeout=30_000)
    page.wait_for_function("() => window.bench")
    return page


def _cold(
    browser: Browser,
    server: Server,
    model: str,
    feeds: Sequence[dict[str, Any]],
    sides: Sequence[str],
    options: argparse.Namespace,
    problems: list[str],
) -> dict[str, Any]:
    """Medians of cold starts: milliseconds to the first result, bytes of the runtime and of the model, JavaScript heap."""
    seen: dict[str, list[dict[str, Any]]] = {s: [] for s in sides}
    for _ in range(options.cold):
        for name in sides:
            context = browser.new_context()
            page = _page(context, server)
            server.reset()
            try:
                opened = InPage(page, name, model, feeds[:1], options.threads).opened
                own = {k: v for k, v in server.sent.items() if not k.startswith(("/bundles", "/models"))}
                heap = page.evaluate("() => { globalThis.gc?.(); return performance.memory.usedJSHeapSize }")
                total = sum(server.sent.values())
                entry = {"first": opened["first"], "runtime_bytes": sum(own.values()), "all_bytes": total, "heap": heap}
                seen[name].append(entry)
            except Failed as error:
                problems.append(f"cold {error}")
            finally:
                context.close()
    return {s: {k: statistics.median(x[k] for x in found) for k in found[0]} for s, found in seen.items() if found}


def _means(results: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Geometric means of the peer's figures over ours, by pair and kind."""
    out: dict[str, dict[str, float]] = {}
    for title, ours, peer in PAIRS:
        steady = [r for r in (report.ratio(x, ours, peer) for x in results) if r is not None]
        both = [x["cold"] for x in results if ours in x["cold"] and peer in x["cold"]]
        row: dict[str, float] = {"models": len(steady)}
        if steady:
            row |= {"steady": report.geometric_mean(steady), "steady_worst": min(steady)}
        for kind in ("first", "runtime_bytes", "heap") if both else ():
            ratios = [c[peer][kind] / max(1, c[ours][kind]) for c in both]
            row |= {kind: report.geometric_mean(ratios), f"{kind}_worst": min(ratios)}
        out[title] = row
    return out


def _machine(browser: Browser) -> dict[str, Any]:
    page = browser.new_page()
    page.goto("chrome://version")
    page.close()
    return {"browser": f"Chromium {browser.version}", "cores": os.cpu_count(), "peer": ORT}


def _show(document: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(title="steady state, milliseconds (cold: to the first result)")
    for column in ("model", *SIDES, "WebGPU", "WebAssembly"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for result in document["results"]:
        cells = []
        for side in SIDES:
            figure, cold = result["figures"].get(side), result["cold"].get(side)
            cells.append(
                (report.milliseconds(figure["median"]) if figure else "-") + (f" ({cold['first']:.0f})" if cold else "")
            )
        ratios = [report.ratio(result, ours, peer) for _, ours, peer in PAIRS]
        table.add_row(result["case"], *cells, *(f"{r:.2f}" if r else "-" for r in ratios))
    console.print(table)
    console.print_json(json.dumps(document["means"]))
    for result in document["results"]:
        for problem in result["problems"]:
            console.print(f"{result['case']}: {problem}", markup=False)


if __name__ == "__main__":
    raise SystemExit(main())
