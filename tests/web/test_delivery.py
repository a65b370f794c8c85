"""Delivery to real Chromium: few requests, resumed and repaired downloads, storage or none, off-line."""

from __future__ import annotations

import json
import time
from pathlib import Path

import bundles
import pytest
import tangkit
from deliverykit import LOAD, failed, good, load, members_of, sealed

from tang_edge.bundle import container
from tang_edge.bundle import format as fmt

pytestmark = pytest.mark.device

MIB = 1 << 20
OCTETS = "application/octet-stream"

STORED = """async () => {
  const root = await navigator.storage.getDirectory();
  const names = [];
  try {
    for await (const [name, handle] of (await root.getDirectoryHandle("tang-edge-1")).entries()) {
      names.push([name, (await handle.getFile()).size]);
    }
  } catch {}
  return names;
}"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The bundles: kit (kilobytes), two (MiB), large (90 MiB)."""
    folder = tmp_path_factory.mktemp("bundles")
    return {
        "kit": bundles.kit(folder / "kit.tang"),
        "two": bundles.heavy(folder / "two.tang", 2),
        "large": bundles.heavy(folder / "large.tang", 90),
    }


@pytest.fixture
def site(server, made):
    """The server with the bundles below /b/."""
    server.mount("/b", made["kit"].parent)
    return server


def entries(path: Path):
    return container.read_entries(memoryview(path.read_bytes()))


def test_few_requests_then_none(page, site, made):
    report = good(load(page, "/b/kit.tang"))
    assert len(site.requests()) == 1, "a small bundle comes with the first answer"
    assert report["storage"]["kind"] == "opfs" and report["storage"]["why"] == ""
    assert report["bytes"]["downloaded"] == made["kit"].stat().st_size
    first = good(load(page, "/b/two.tang"))
    chunks = [n for n in entries(made["two"]) if n.startswith("weights/")]
    assert len(site.requests("two.tang")) <= 1 + len(chunks)
    assert site.sent("two.tang") < made["two"].stat().st_size + 70_000
    again = good(load(page, "/b/two.tang"))
    assert site.requests("two.tang")[-1].status == 304
    assert again["bytes"]["downloaded"] == 0
    assert again["bytes"]["fromStorage"] > 2 * MIB > first["bytes"]["fromStorage"]


def test_off_line_after_the_first_load(context, page, site):
    good(load(page, "/b/two.tang"))
    page.close()
    other = context.new_page()
    other.goto(site.url + "/")
    other.evaluate("import('/dist/index.js')")
    site.faults.gone = True
    report = good(load(other, "/b/two.tang"))
    assert report["bytes"]["downloaded"] == 0
    assert "offline" in report["storage"]["why"]
    failed(load(other, "/b/kit.tang"), "NetworkError", "kit.tang")  # this one was never there


def test_bundles_share_members(page, site, made):
    good(load(page, "/b/two.tang"))
    site.put("/copy/other.tang", made["two"].read_bytes(), OCTETS)
    report = good(load(page, "/copy/other.tang"))
    assert report["bytes"]["downloaded"] < 128 * 1024, "the weights are there, whatever the address"


def test_a_new_version_replaces_the_old(page, site, tmp_path):
    site.put("/v/m.tang", bundles.heavy(tmp_path / "1.tang", 1, seed=1).read_bytes(), OCTETS)
    good(load(page, "/v/m.tang"))
    before = page.evaluate(STORED)
    site.put("/v/m.tang", bundles.heavy(tmp_path / "2.tang", 1, seed=2).read_bytes(), OCTETS)
    report = good(load(page, "/v/m.tang"))
    assert report["bytes"]["downloaded"] > MIB
    after = page.evaluate(STORED)
    assert sum(size for _, size in after) < sum(size for _, size in before) * 1.1, "what nothing needs any more is gone"


def test_a_cut_connection_goes_on_where_it_was(page, site, made):
    # slowly: of what comes all at once a browser throws away what the page has not taken when the cut shows
    site.faults.cut_after, site.faults.cuts, site.faults.bytes_per_second = 500_000, 3, 2 * MIB
    report = good(load(page, "/b/two.tang"))
    ranges = [r.range.removeprefix("bytes=") for r in site.requests()]
    starts = sorted({int(r.split("-")[0]) for r in ranges if not r.startswith("-")})
    assert len(starts) > 3, "each goes on behind the one before"
    assert site.sent() < made["two"].stat().st_size + 600_000
    assert report["bytes"]["repaired"] == 0


def test_a_closed_page_goes_on_at_the_chunk(context, page, site, made):
    page.evaluate(
        """() => {
          globalThis.far = 0;
          const onProgress = (p) => { if (p.stage === "weights") globalThis.far = p.done; };
          const options = { device: "webgpu", verify: "off", onProgress };
          import("/dist/index.js").then(({ load }) => load("/b/large.tang", options)).catch(() => {});
        }"""
    )
    site.faults.bytes_per_second = 40 * MIB
    page.wait_for_function(f"globalThis.far > {50 * MIB}")
    page.close()
    site.faults.bytes_per_second = None
    other = context.new_page()
    other.goto(site.url + "/")
    report = good(load(other, "/b/large.tang"))
    assert report["bytes"]["fromStorage"] >= 15 * MIB
    assert report["bytes"]["downloaded"] <= made["large"].stat().st_size - 15 * MIB
    assert report["bytes"]["repaired"] == 0


def test_a_byte_flipped_on_the_wire(page, site, made):
    weights = entries(made["two"])["weights/00000.safetensors"]
    site.faults.flip, site.faults.flips = weights.start + 1_000_000, 1
    report = good(load(page, "/b/two.tang"))
    assert report["bytes"]["repaired"] == weights.size
    site.put("/c/two.tang", made["two"].read_bytes(), OCTETS)
    page.evaluate("async () => (await navigator.storage.getDirectory()).removeEntry('tang-edge-1', { recursive: true })")
    site.faults.flips = 1000
    failed(load(page, "/c/two.tang"), "BundleError", "weights/00000.safetensors", "SHA-256")
    site.faults.flips = 0
    assert good(load(page, "/c/two.tang"))["bytes"]["repaired"] == 0, "what was wrong was not kept"


FLIP_STORED = """async (hash) => {
  const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("tang-edge-1");
  const handle = await folder.getFileHandle(hash);
  const data = new Uint8Array(await (await handle.getFile()).arrayBuffer());
  data[data.length >> 1] ^= 1;
  const out = await handle.createWritable();
  await out.write(data);
  await out.close();
}"""


def test_a_byte_flipped_in_storage(page, site, made):
    good(load(page, "/b/two.tang"))
    chunk = json.loads(members_of(made["two"])[fmt.MANIFEST])["files"]["weights/00000.safetensors"]
    page.evaluate(FLIP_STORED, chunk["sha256"])
    report = good(load(page, "/b/two.tang"))
    assert report["bytes"]["repaired"] == chunk["bytes"]
    assert good(load(page, "/b/two.tang"))["bytes"]["repaired"] == 0
    page.evaluate(FLIP_STORED, chunk["sha256"])
    site.faults.gone = True
    failed(load(page, "/b/two.tang"), "NetworkError", "two.tang")


DENY_OPFS = "navigator.storage.getDirectory = async () => { throw new DOMException('denied', 'SecurityError'); };"
DENY_CACHE = "caches.open = async () => { throw new DOMException('denied', 'SecurityError'); };"


def test_the_cache_api_where_there_is_no_opfs(page, site):
    page.evaluate(f"() => {{ {DENY_OPFS} }}")
    report = good(load(page, "/b/two.tang"))
    assert report["storage"]["kind"] == "cache" and "denied" in report["storage"]["why"]
    site.faults.gone = True
    assert good(load(page, "/b/two.tang"))["bytes"]["downloaded"] == 0


def test_storage_denied(page, site):
    page.evaluate(f"() => {{ {DENY_OPFS} {DENY_CACHE} }}")
    for _ in range(2):
        report = good(load(page, "/b/two.tang"))
        assert report["storage"]["kind"] == "none"
        assert report["storage"]["why"].count("denied") == 2
        assert report["bytes"]["downloaded"] > 2 * MIB
    page.evaluate("() => { Object.defineProperty(crypto, 'subtle', { value: undefined }); }")
    report = good(load(page, "/b/two.tang", cache="none"))
    assert report["storage"] == {"kind": "none", "why": "as asked"}


FULL = "FileSystemWritableFileStream.prototype.write = async () => { throw new DOMException('full', 'QuotaExceededError'); };"


def test_storage_full(page, site):
    page.evaluate(f"() => {{ {FULL} }}")
    report = good(load(page, "/b/two.tang"))
    assert report["storage"]["kind"] == "none" and "full" in report["storage"]["why"]
    assert [size for name, size in page.evaluate(STORED) if size] == []


@pytest.mark.parametrize("stored", [True, False])
def test_a_server_without_ranges(page, site, made, stored):
    site.faults.ranges = False
    size = made["two"].stat().st_size
    if not stored:
        page.evaluate(f"() => {{ {DENY_OPFS} {DENY_CACHE} }}")
    site.faults.cut_after, site.faults.cuts = 1_000_000, 1
    report = good(load(page, "/b/two.tang"))
    assert [r.status for r in site.requests()] == [200, 200], "cut once, then read once"
    assert "no ranges" in report["storage"]["why"]
    if stored:
        again = good(load(page, "/b/two.tang"))
        assert site.requests()[-1].status == 304 and again["bytes"]["downloaded"] == 0
    site.faults.etag = False
    site.faults.flip, site.faults.flips = entries(made["two"])["weights/00000.safetensors"].start + 99, 1
    site.reset_log()
    good(load(page, "/b/two.tang", cache="none"))
    assert site.sent() == 2 * size, "once wrong, once right"


def test_another_device_class(page, site, made, tmp_path):
    native = tangkit.make(tmp_path / "native.tang", wgsl=False, remember=False)
    site.put("/n/native.tang", native.read_bytes(), OCTETS)
    for device in ("auto", "webgpu", "wasm"):
        failed(load(page, "/n/native.tang", device=device), "DeviceError", "c-generic", "--target browser")
    seen = page.evaluate("async (u) => (await import('/dist/index.js')).inspect(u)", "/n/native.tang")
    assert seen["runs"] is False and seen["variants"][0]["device"] == "other"


def test_heap_stays_small_for_a_large_model(context, page, site):
    session = context.new_cdp_session(page)
    page.evaluate("import('/dist/index.js')")
    session.send("HeapProfiler.collectGarbage")

    def used() -> int:
        found = session.send("Runtime.getHeapUsage")
        return int(found["usedSize"] + found.get("backingStorageSize", 0))

    baseline = most = used()
    page.evaluate(
        f"() => {{ globalThis.outcome = ({LOAD})(['/b/large.tang', {{}}]); outcome.then((o) => (globalThis.ended = o)); }}"
    )
    until = time.monotonic() + 60
    while not page.evaluate("!!globalThis.ended"):
        most = max(most, used())
        assert time.monotonic() < until
    report = good(page.evaluate("ended"))
    assert report["bytes"]["downloaded"] > 90 * MIB
    print(f"heap: baseline {baseline / MIB:.1f} MiB, most {most / MIB:.1f} MiB")
    assert most - baseline < 64 * MIB


def test_in_a_worker(page, site):
    site.put("/worker.js", f"onmessage = async ({{ data }}) => postMessage(await ({LOAD})(data));", "text/javascript")
    start = """async (argument) => {
      const worker = new Worker("/worker.js", { type: "module" });
      const answer = new Promise((done, failed) => {
        worker.onmessage = (e) => done(e.data);
        worker.onerror = (e) => failed(e.message);
      });
      worker.postMessage(argument);
      return answer.finally(() => worker.terminate());
    }"""
    report = good(page.evaluate(start, [site.url + "/b/two.tang", {}]))
    assert report["storage"]["kind"] == "opfs"
    assert good(page.evaluate(start, [site.url + "/b/two.tang", {}]))["bytes"]["downloaded"] == 0


ABORT = """async (url) => {
  const { load } = await import("/dist/index.js");
  const controller = new AbortController(), stages = [];
  const ended = (loading) => loading.then(() => "loaded", (e) => e.name);
  const onProgress = (p) => {
    stages.push(p.stage);
    if (p.stage === "weights" && p.done > 500000) controller.abort();
  };
  const outcome = await ended(load(url, { device: "webgpu", verify: "off", signal: controller.signal, onProgress }));
  const early = await ended(load(url, { signal: AbortSignal.abort() }));
  return [outcome, early, stages.includes("ready")];
}"""


def test_abort(page, site):
    site.faults.bytes_per_second = 4 * MIB
    assert page.evaluate(ABORT, "/b/two.tang") == ["AbortError", "AbortError", False]
    site.faults.bytes_per_second = None
    whole = {m["sha256"]: m["bytes"] for m in json.loads(members_of(site_file(site))[fmt.MANIFEST])["files"].values()}
    assert all(size == whole[name] for name, size in page.evaluate(STORED) if name in whole and size)
    assert good(load(page, "/b/two.tang"))["bytes"]["repaired"] == 0


def site_file(site) -> Path:
    """The file behind /b/two.tang."""
    return site.folder("/b") / "two.tang"


def test_two_tabs_at_once(context, page, site):
    other = context.new_page()
    other.goto(site.url + "/")
    start = f"(a) => {{ ({LOAD})(a).then((o) => (globalThis.ended = o)); }}"
    for tab in (page, other):
        tab.evaluate(start, ["/b/two.tang", {}])
    for tab in (page, other):
        tab.wait_for_function("!!globalThis.ended")
        assert good(tab.evaluate("ended"))["bytes"]["repaired"] == 0
    assert good(load(page, "/b/two.tang"))["bytes"]["downloaded"] == 0


def test_inspect_reads_the_manifest_alone(page, site, made):
    seen = page.evaluate("async (u) => (await import('/dist/index.js')).inspect(u)", "/b/large.tang")
    assert site.sent() < 70_000
    (variant,) = seen["variants"]
    assert seen["runs"] and variant["runs"] and variant["device"] == "webgpu"
    assert seen["bytes"] == made["large"].stat().st_size
    assert 90 * MIB < variant["download"] < seen["bytes"] and 90 * MIB < variant["peakBytes"] <= variant["peakBytesMax"]
    assert seen["inputs"][0] == {"name": "a", "dtype": "f32", "shape": ["n", 3]}
    members = members_of(made["kit"])
    manifest = json.loads(members[fmt.MANIFEST])
    for change, words in (
        ({"limits": {"maxStorageBuffersPerShaderStage": 500}}, "maxStorageBuffersPerShaderStage"),
        ({"features": ["shader-f16", "none-such"]}, "lacks the feature"),
    ):
        site.put("/i/m.tang", sealed(members, {**manifest, "variants": [{**manifest["variants"][0], **change}]}), OCTETS)
        no = page.evaluate("async (u) => (await import('/dist/index.js')).inspect(u)", "/i/m.tang")
        assert no["runs"] is False and words in no["variants"][0]["why"]


def test_no_server_and_other_answers(page, site):
    failed(load(page, "/b/none.tang"), "NetworkError", "404", "none.tang")
    site.faults.status = 503
    site.faults.only = "kit.tang"
    failed(load(page, "/b/kit.tang"), "NetworkError", "503")
    site.put("/app/page.tang", "<!doctype html><title>all addresses give this page</title>")
    failed(load(page, "/app/page.tang"), "BundleError", "not a tang bundle")
    site.put("/app/empty.tang", b"", OCTETS)
    assert "error" in load(page, "/app/empty.tang")
