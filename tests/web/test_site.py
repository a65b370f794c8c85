"""The demo site in Chromium: every page clean, by keyboard, below a sub-path, offline; and each does what it promises."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("index", "drop", "ocr", "robot", "bench")
BELOW = "/some/where"
ACCESSIBILITY = Path(__file__).with_name("accessibility.js").read_text(encoding="utf-8")
SLOW = 120_000  # Chromium computes WebGPU on the processor here

pytestmark = pytest.mark.device


@pytest.fixture(scope="session")
def site() -> Path:
    """The whole site, as `tang-edge demo --build` of the checkout makes it; kept between runs of the tests."""
    if shutil.which("npm") is None:
        pytest.skip("npm is missing (tools/system_packages.sh npm)")
    folder = ROOT / ".cache" / "site"
    models = Path(os.environ.get("TANG_EDGE_MODELS") or ROOT / "models")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"} | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tang_edge.cli", "demo", "--build", str(folder), "--models", str(models)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    print(done.stderr)
    return folder


class Visit:
    """A page of the site, and what went wrong on it."""

    def __init__(self, page, url: str) -> None:
        self.page, self.url = page, url
        self.errors: list[str] = []
        page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda e: self.errors.append(str(e)))

    def to(self, name: str, query: str = ""):
        """Open a page by its name."""
        self.page.goto(f"{self.url}/{name}.html{query}")
        self.page.wait_for_selector("#device-chip:not([data-kind=unknown])", state="attached")
        return self.page


@pytest.fixture
def visit(context, server, site):
    """Opens pages of the site below a sub-path; errors on the console fail the test."""
    server.mount(BELOW, site)
    context.set_default_timeout(SLOW)
    made = Visit(context.new_page(), server.url + BELOW)
    yield made
    assert not made.errors, made.errors


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_clean_in_both_colours_and_all_widths(visit, name: str) -> None:
    page = visit.to(name)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        problems = page.evaluate(ACCESSIBILITY)
        assert problems == [], scheme
    for width in (360, 390, 768, 1280, 1600):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, width
    current = page.locator("[aria-current=page]")
    assert current.count() == 1 and current.get_attribute("href") == f"{name}.html"


def test_the_first_page_checks_a_model_on_this_device(visit) -> None:
    page = visit.to("index")
    page.wait_for_selector("#live-state.good")
    facts = page.inner_text("#live-facts")
    assert "passed" in facts and re.search(r"WebGPU|WebAssembly", facts), facts
    assert page.evaluate(ACCESSIBILITY) == []


def test_by_keyboard(visit) -> None:
    page = visit.to("index")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.focus("#theme")
    backgrounds = set()
    for label in ("light", "dark", "as the system"):
        page.keyboard.press("Enter")
        assert page.get_attribute("#theme", "aria-label") == f"Colours: {label}"
        backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(backgrounds) == 2
    page.keyboard.press("Enter")
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "light", "the choice is kept"
    # every control of a page can be reached
    page = visit.to("robot")
    wanted = set(page.evaluate("[...document.querySelectorAll('main button, main input:not([type=radio])')].map((n) => n.id)"))
    for _ in range(80):
        page.keyboard.press("Tab")
        wanted.discard(page.evaluate("document.activeElement.id"))
    assert not wanted


def _random(count: int) -> np.ndarray:
    """The page's random inputs (demos/src/drop/random.ts): the generator mulberry32, seed 1, uniform in -1..1."""
    state, out, mask = 1, [], 0xFFFFFFFF
    for _ in range(count):
        state = (state + 0x6D2B79F5) & mask
        t = ((state ^ (state >> 15)) * (state | 1)) & mask
        t ^= (t + (((t ^ (t >> 7)) * (t | 61)) & mask)) & mask
        out.append(2 * ((t ^ (t >> 14)) & mask) / 2**32 - 1)
    return np.array(out, np.float32)


def test_a_dropped_model_is_compiled_checked_and_right(visit, site: Path, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = site / "models" / "go2-policy.onnx"
    page = visit.to("drop")
    page.set_input_files("#file", model)
    page.wait_for_selector("#drop-zone[data-state=ran], #drop-zone[data-state=failed]")
    assert page.get_attribute("#drop-zone", "data-state") == "ran", page.inner_text("#notice")
    assert page.inner_text("#verdict") == "self-test passed"
    stages = page.inner_text("#stages")
    assert all(s in stages for s in ("import", "rewrite", "schedule browser", "write", "load, test, run")), stages

    (want,) = onnxruntime.InferenceSession(model).run(None, {"obs": _random(45)[None]})
    name, kind, least, most, mean, first = page.locator("#outputs tbody tr > *").all_inner_texts()
    assert (name, kind) == ("actions", "f32 [1, 12]")
    said = [float(x) for x in (least, most, mean, *first.split(","))]
    np.testing.assert_allclose(said, [want.min(), want.max(), want.mean(), *want[0, :4]], rtol=5e-3, atol=1e-3)

    page.focus("#tab-passes")
    page.keyboard.press("ArrowRight")
    assert page.get_attribute("#tab-kernels", "aria-selected") == "true"
    page.focus("#kernel-list")
    page.keyboard.press("End")
    assert "fn main" in page.inner_text("#kernel-text")
    assert page.locator("#kernel-list [aria-selected=true]").count() == 1
    assert page.locator("#timeline svg rect").count() >= 4
    assert page.evaluate(ACCESSIBILITY) == []

    with page.expect_download() as download:
        page.click("#save")
    saved = tmp_path / download.value.suggested_filename
    download.value.save_as(saved)
    assert saved.name == "go2-policy.tang"
    page.set_input_files("#file", saved)
    page.wait_for_selector("#drop-zone[data-state=ran]")
    assert page.locator("#outputs tbody tr > *").all_inner_texts()[2] == least, "the saved bundle gives the same answer"


def test_a_file_that_is_no_model_is_refused_in_words(visit) -> None:
    page = visit.to("drop")
    page.set_input_files(
        "#file", {"name": "notes.tang", "mimeType": "application/octet-stream", "buffer": b"not a bundle" * 40}
    )
    message = page.wait_for_selector("#notice .message[role=alert]").inner_text()
    assert message.startswith("BundleError"), message


def test_it_reads_a_line_of_text(visit, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    from PIL import ImageDraw, ImageFont

    picture = image.new("RGB", (352, 96), "white")
    ImageDraw.Draw(picture).text((22, 26), "Meet me at 9:45", fill="black", font=ImageFont.load_default(36))
    picture.save(tmp_path / "line.png")
    page = visit.to("ocr")
    page.wait_for_selector("#read-sample")
    page.set_input_files("#picture", tmp_path / "line.png")
    page.wait_for_selector("#ocr-status:not(:empty)", state="attached")
    lines = page.locator("#lines .line-text").all_inner_texts()
    assert "".join(lines).replace(" ", "") == "Meetmeat9:45", (lines, page.inner_text("#ocr-status"))
    assert page.locator("#overlay polygon").count() == len(lines)
    # the text over the picture is text: it can be selected
    assert page.evaluate("getComputedStyle(document.querySelector('#overlay text')).userSelect") == "text"
    assert "together" in page.inner_text("#timing")
    assert page.evaluate(ACCESSIBILITY) == []


def test_the_quadruped_walks_and_obeys(visit) -> None:
    page = visit.to("robot")
    page.wait_for_selector("#walk-state.good")
    stage = page.locator("#walk-stage")

    def place() -> list[float]:
        return [float(v) for v in (stage.get_attribute("data-position") or "0 0 0").split()]

    page.wait_for_timeout(5000)
    x, _, z = place()
    assert x > 0.3, "it walks forward"
    assert 0.2 < z < 0.4, "on its feet"
    stage.focus()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    assert float(page.input_value("#turning")) == pytest.approx(0.3)
    page.keyboard.press("0")
    assert float(page.input_value("#forward")) == 0
    page.click("#pause")
    page.wait_for_timeout(300)
    ticks = stage.get_attribute("data-ticks")
    page.wait_for_timeout(400)
    assert stage.get_attribute("data-ticks") == ticks


def test_the_head_solves_both_ways(visit) -> None:
    page = visit.to("robot")
    page.wait_for_selector("#head-state.good")
    page.wait_for_selector("#head-table dd")
    level = page.locator("#head-table dd").all_inner_texts()
    page.locator("#head-controls input").nth(4).fill("15")
    for _ in range(100):
        if page.locator("#head-table dd").all_inner_texts() != level:
            break
        page.wait_for_timeout(50)
    pitched = page.locator("#head-table dd").all_inner_texts()
    assert len(level) == 7 and pitched != level
    # back through the other network: the pose that was asked for, to the networks' accuracy
    there = re.search(r"([\d.]+) mm, ([\d.]+)°", page.inner_text("#head-facts"))
    assert there and float(there[1]) < 6 and float(there[2]) < 4
    page.check("input[name=mode][value=motors]")
    assert page.locator("#head-controls input").count() == 7
    assert page.evaluate(ACCESSIBILITY) == []


def test_the_benchmark_compares_answers_and_gives_figures(visit) -> None:
    page = visit.to("bench")
    results = page.evaluate("tangBenchmark({ model: 'reachy-ik', rounds: 4, sides: ['tang-webgpu', 'tang-wasm', 'ort-wasm'] })")
    assert results["reference"] == "ort-wasm"
    for side in results["sides"]:
        assert side["problem"] == "", side
        assert side["steady"] > 0 and side["cold"] > 0 and len(side["times"]) == 4
        assert side["difference"] <= 2e-3
    by = {s["id"]: s for s in results["sides"]}
    assert by["tang-webgpu"]["bytes"]["runtime"] * 50 < by["ort-wasm"]["bytes"]["runtime"]

    page.select_option("#model", "reachy-ik")
    page.fill("#rounds", "5")
    for side in ("tang-webgpu", "ort-webgpu"):
        page.uncheck(f"#sides input[value={side}]")
    page.click("#start")
    page.wait_for_selector("#bench-status:not(:empty)", state="attached")
    assert page.locator("#steady rect").count() == page.locator("#sides input:checked").count()
    assert page.locator("#figures tbody tr").count() == page.locator("#sides input:checked").count()
    assert page.evaluate(ACCESSIBILITY) == []


def test_threads_where_the_page_is_isolated(visit, server) -> None:
    server.faults.isolated = True
    page = visit.to("bench")
    assert page.evaluate("crossOriginIsolated")
    results = page.evaluate("tangBenchmark({ model: 'reachy-ik', rounds: 2, sides: ['tang-wasm-threads'] })")
    assert results["sides"][0]["problem"] == ""
    assert re.search(r"[2-4] threads", results["sides"][0]["where"])


def test_everything_goes_on_without_a_network(visit, server) -> None:
    page = visit.to("robot")
    page.evaluate("navigator.serviceWorker.ready.then(() => undefined)")
    page.reload()
    page.wait_for_selector("#walk-state.good")
    page.wait_for_selector("#head-state.good")
    server.faults.only, server.faults.gone = "", True
    for name in PAGES:
        visit.page.goto(f"{visit.url}/{name}.html")
        assert visit.page.title(), name
    page = visit.to("robot")
    page.wait_for_selector("#walk-state.good")
    page.wait_for_selector("#head-state.good")
    page.wait_for_timeout(1500)
    assert page.get_attribute("#walk-stage", "data-position") is not None
    # what failed to load is told by the browser as an error: it is the point here
    visit.errors.clear()
