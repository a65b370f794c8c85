"""Hostile files in the browser: whatever Python refuses is refused there too, as a BundleError."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import bundles
import pytest
from deliverykit import LOAD, assemble, good, load, members_of, sealed

from tang_edge.bundle import container
from tang_edge.bundle import format as fmt

pytestmark = pytest.mark.device


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The small bundle."""
    return {"kit": bundles.kit(tmp_path_factory.mktemp("bundles") / "kit.tang")}


def _hostile(path: Path):
    """Name and bytes of files that are none of ours."""
    data, members = path.read_bytes(), members_of(path)
    manifest = json.loads(members[fmt.MANIFEST])
    for cut in (0, 10, 200, len(data) // 2, len(data) - 23, len(data) - 1):
        yield f"cut at {cut}", data[:cut]
    for extra in (b"\0", b"PK\5\6", bytes(22)):
        yield "something behind", data + extra
        yield "something in front", extra + data
    tail = container.read_entries(memoryview(data))[fmt.MANIFEST].start
    for spot in [*range(tail, len(data), 97), *range(len(data) - 40, len(data), 3)]:
        flipped = bytearray(data)
        flipped[spot] ^= 4
        if flipped[spot:] != data[spot:] and not _in_header(data, spot):
            yield f"flipped at {spot}", bytes(flipped)
    for name in members:
        yield f"without {name}", assemble([(k, v) for k, v in members.items() if k != name])
    yield "one more", assemble([*members.items(), ("kernels/extra.c", b"x")])
    yield "twice", assemble([*members.items(), (fmt.PLAN, members[fmt.PLAN])])
    for name in ("../evil", "/etc/passwd", "a/../../b", "a\\b", "C:/x", "a//b", "a/", "", "..", "a\0b", "a/.b"):
        yield f"name {name!r}", assemble([*members.items(), (name, b"x")])
    for version in ([2, 0], [1, 9], [0, 9], [1], "1.0"):
        yield f"version {version}", sealed(members, {**manifest, "version": version})
    for raw in (b"", b"{", b"[]", b"null", b'{"a": NaN}', b"\xff\xfe", b"[" * 100_000, b"9" * 5000, b"{}"):
        changed = {**manifest["files"], fmt.PLAN: {"sha256": fmt.sha256(raw), "bytes": len(raw)}}
        yield f"plan {raw[:9]!r}", sealed(members | {fmt.PLAN: raw}, {**manifest, "files": changed})
        rest = {k: v for k, v in members.items() if k not in (fmt.MANIFEST, fmt.MANIFEST_HASH)}
        hashed = (fmt.MANIFEST_HASH, fmt.sha256(raw).encode())
        yield f"manifest {raw[:9]!r}", assemble([*rest.items(), (fmt.MANIFEST, raw), hashed])
    yield "other manifest", assemble((members | {fmt.MANIFEST: members[fmt.MANIFEST] + b" "}).items())
    wrong = {**manifest["files"], fmt.PLAN: {**manifest["files"][fmt.PLAN], "sha256": "0" * 64}}
    yield "other plan", sealed(members, {**manifest, "files": wrong})


def _in_header(data: bytes, spot: int) -> bool:
    """Local headers repeat what the directory says; a browser reads the directory."""
    return any(e.header <= spot < e.start for e in container.read_entries(memoryview(data)).values())


def test_hostile_files(page, made):
    code = f"async (all) => Promise.all(all.map((one) => ({LOAD})([one, {{}}])))"
    cases = list(_hostile(made["kit"]))
    results = page.evaluate(code, ["base64:" + base64.b64encode(data).decode() for _, data in cases])
    wrong = {name: result for (name, _), result in zip(cases, results, strict=True) if result.get("error") != "BundleError"}
    assert not wrong
    good(load(page, "base64:" + base64.b64encode(made["kit"].read_bytes()).decode()))


def test_plans_that_python_refuses_are_refused(page, made):
    """Whatever is changed in a plan: a BundleError, or a plan that Python reads as well."""
    from tang_edge.bundle import verify
    from tang_edge.errors import BundleError

    members = members_of(made["kit"])
    manifest, plan = json.loads(members[fmt.MANIFEST]), json.loads(members[fmt.PLAN])
    cases = []
    for number, path in enumerate(_paths(plan)):
        for new in ([None, "text", -1, 2.5, [], {}][number % 6], [True, 10**30, "../x", [[]], {"a": 1}, 7][number % 6]):
            changed = json.loads(members[fmt.PLAN])
            at = changed
            for key in path[:-1]:
                at = at[key]
            if new is None:
                del at[path[-1]]
            else:
                at[path[-1]] = new
            try:
                verify.parse_plan(json.loads(json.dumps(changed)))
            except BundleError as error:
                raw = json.dumps(changed).encode()
                files = {**manifest["files"], fmt.PLAN: {"sha256": fmt.sha256(raw), "bytes": len(raw)}}
                cases.append((f"{path} = {new!r}: {error}", sealed(members | {fmt.PLAN: raw}, {**manifest, "files": files})))
    late = "new Promise((done) => setTimeout(() => done({ error: 'no answer in 20 s' }), 20_000))"
    each = f"out.push(await Promise.race([({LOAD})([one, {{}}]), {late}]))"
    code = f"async (all) => {{ const out = []; for (const one of all) {each}; return out; }}"
    results = page.evaluate(code, ["base64:" + base64.b64encode(data).decode() for _, data in cases])
    wrong = {name: result for (name, _), result in zip(cases, results, strict=True) if result.get("error") != "BundleError"}
    assert len(cases) > 300 and not wrong


def _paths(value, path=()):
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _paths(inner, (*path, key))
