"""For the tests of delivery and of hostile files: how a page loads the small bundle, and bundles taken apart."""

from __future__ import annotations

import json
from pathlib import Path

from tang_edge.bundle import container
from tang_edge.bundle import format as fmt

# load, run the kit, and say what the report says; errors come back as data
LOAD = """async ([source, options]) => {
  const { load } = await import("/dist/index.js");
  try {
    const from = source.startsWith("base64:") ? await (await fetch("data:;base64," + source.slice(7))).blob() : source;
    const model = await load(from, { device: "webgpu", verify: "off", ...options });
    const { y, count } = await model.run({
      a: { dtype: "f32", shape: [2, 3], data: new Float32Array([1, 2, 3, 4, 5, 6]) },
      b: { dtype: "i64", shape: [2], data: new BigInt64Array([10n, -20n]) },
    });
    const report = model.report;
    model.dispose();
    return { y: [...y.data], count: [...count.data].map(Number), report };
  } catch (e) {
    return { error: e.name, message: e.message };
  }
}"""
ANSWER = {"y": [12, 8, 11.5, -12, -25, -17], "count": [11, -19]}


def load(page, source, **options):
    """What LOAD says."""
    return page.evaluate(LOAD, [source, options])


def good(result):
    """The report of a load that went well."""
    assert "error" not in result, result
    assert {k: result[k] for k in ANSWER} == ANSWER
    return result["report"]


def failed(result, error, *words):
    """The message of a load that failed so."""
    assert result.get("error") == error, result
    for word in words:
        assert word in result["message"], result["message"]
    return result["message"]


def members_of(path: Path) -> dict[str, bytes]:
    """The members of a bundle by name."""
    data = path.read_bytes()
    return {e.name: data[e.start : e.start + e.size] for e in container.read_entries(memoryview(data)).values()}


def assemble(items) -> bytes:
    """A file in the canonical layout, whatever the members are called and hold."""
    out, found = bytearray(), []
    for name, data in items:
        entry = container.place(name, container.crc32(data), len(data), len(out))
        out += container.local_header(entry) + data
        found.append(entry)
    return bytes(out + container.directory(found))


def sealed(members, manifest) -> bytes:
    """A bundle of these members with another manifest, its hash made right."""
    raw = json.dumps(manifest).encode()
    rest = {k: v for k, v in members.items() if k not in (fmt.MANIFEST, fmt.MANIFEST_HASH)}
    return assemble([*rest.items(), (fmt.MANIFEST, raw), (fmt.MANIFEST_HASH, fmt.sha256(raw).encode())])
