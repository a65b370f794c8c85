"""The bundle file: written deterministically and atomically, and refused when anything about it is off."""

from __future__ import annotations

import errno
import io
import json
import os
import stat
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tangkit

from tang_edge.bundle import container, trust
from tang_edge.bundle import format as fmt
from tang_edge.bundle.read import open_bundle
from tang_edge.bundle.write import write
from tang_edge.errors import BundleError, TangError


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return tangkit.make(tmp_path_factory.mktemp("b") / "kit.tang", remember=False)


@pytest.fixture
def broken(tmp_path):
    """Writes bytes to a file and opens it thoroughly."""

    def check(data: bytes) -> None:
        path = tmp_path / "broken.tang"
        path.write_bytes(data)
        before = set(tmp_path.iterdir())
        try:
            with open_bundle(path) as bundle:
                bundle.verify_all()
                _ = bundle.plan
        finally:
            assert set(tmp_path.iterdir()) == before

    return check


def _refused(broken, data, match=""):
    with pytest.raises(BundleError, match=match or None) as caught:
        broken(data)
    assert ".tang" in str(caught.value), "every error names the file"
    return caught.value


def _rezip(path, change=None, **options):
    """The members written by zipfile, after ``change`` of the list of (ZipInfo, data)."""
    with zipfile.ZipFile(path) as source:
        items = [(i.filename, source.read(i)) for i in source.infolist()]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", **options) as target:
        for name, data in change(items) if change else items:
            target.writestr(name, data)
    return out.getvalue()


def _assemble(items):
    """A file in the canonical layout, whatever the members are called and hold."""
    out, entries = io.BytesIO(), []
    for name, data in items:
        entry = container.place(name, container.crc32(data), len(data), out.tell())
        out.write(container.local_header(entry))
        out.write(data)
        entries.append(entry)
    out.write(container.directory(entries))
    return out.getvalue()


def _members(path):
    with zipfile.ZipFile(path) as source:
        return {i.filename: source.read(i) for i in source.infolist()}


def _resealed(members, **plan_changes):
    """The members with a plan changed and the hashes made to fit: what a malicious packer would write."""
    plan = json.loads(members[fmt.PLAN]) | plan_changes
    raw = json.dumps(plan).encode()
    manifest = json.loads(members[fmt.MANIFEST])
    manifest["files"][fmt.PLAN] = {"sha256": fmt.sha256(raw), "bytes": len(raw)}
    return _sealed(members | {fmt.PLAN: raw}, manifest)


def _sealed(members, manifest):
    raw = json.dumps(manifest).encode()
    rest = {k: v for k, v in members.items() if k not in (fmt.MANIFEST, fmt.MANIFEST_HASH)}
    return _assemble([*rest.items(), (fmt.MANIFEST, raw), (fmt.MANIFEST_HASH, fmt.sha256(raw).encode())])


def test_reads_back_and_is_an_ordinary_zip(sound):
    with open_bundle(sound) as bundle:
        bundle.verify_all()
        assert bundle.manifest.name == "kit"
        constant = bundle.constant(bundle.plan.constants[0])
        np.testing.assert_array_equal(constant, tangkit.W)
        assert not constant.flags.writeable
        assert constant.ctypes.data % constant.itemsize == 0
        del constant
    with zipfile.ZipFile(sound) as archive:
        assert archive.testzip() is None
        assert all(i.compress_type == zipfile.ZIP_STORED for i in archive.infolist())
    entries = container.read_entries(memoryview(sound.read_bytes()))
    assert all(e.start % 64 == 0 for e in entries.values())


def test_writing_is_deterministic(sound, tmp_path):
    again = tangkit.make(tmp_path / "again.tang", remember=False)
    assert again.read_bytes() == sound.read_bytes()


def test_every_flipped_byte_is_noticed(sound, broken):
    data = sound.read_bytes()
    entries = container.read_entries(memoryview(data))
    spots = {e.start + k * max(1, e.size - 1) // 4 for e in entries.values() for k in range(5)}
    spots |= {e.header + k for e in entries.values() for k in range(0, e.start - e.header, 7)}
    spots |= set(range(len(data) - 300, len(data)))
    rng = np.random.default_rng(0)
    spots |= {int(k) for k in rng.integers(0, len(data), 300)}
    for spot in sorted(s for s in spots if s < len(data)):
        changed = bytearray(data)
        changed[spot] ^= 1 << (spot % 8)
        _refused(broken, bytes(changed))


def test_truncation_is_noticed_everywhere(sound, broken):
    data = sound.read_bytes()
    cuts = [*range(0, 80), *range(80, len(data), max(1, len(data) // 150)), *range(len(data) - 60, len(data))]
    for cut in cuts:
        _refused(broken, data[:cut])
    for extra in (b"\0", b"PK\5\6", bytes(22)):
        _refused(broken, data + extra)
        _refused(broken, extra + data)


@pytest.mark.parametrize("data", [b"", b"PK", b"hello world" * 10, bytes(5000), b"PK\5\6" + bytes(18)])
def test_other_files(broken, data):
    _refused(broken, data)


def test_no_such_file(tmp_path):
    with pytest.raises(BundleError, match="cannot be opened"):
        open_bundle(tmp_path / "none.tang")
    with pytest.raises(BundleError):
        open_bundle(tmp_path)


def test_missing_and_extra_and_double_members(sound, broken):
    members = _members(sound)
    for name in members:
        _refused(broken, _assemble([(k, v) for k, v in members.items() if k != name]), "missing")
    _refused(broken, _assemble([*members.items(), ("kernels/extra.c", b"x")]), "not in the manifest")
    with pytest.warns(UserWarning, match="Duplicate"):
        twice = _rezip(sound, lambda items: [*items, items[0]])
    _refused(broken, twice)
    _refused(broken, _assemble([*members.items(), (fmt.PLAN, members[fmt.PLAN])]), "twice")


def test_bombs_are_refused_before_they_are_read(sound, broken, monkeypatch):
    huge = lambda items: [*items, ("kernels/zeros.c", bytes(20 << 20))]  # noqa: E731
    error = _refused(broken, _rezip(sound, huge, compression=zipfile.ZIP_DEFLATED))
    assert error.where
    _refused(broken, _rezip(sound, compression=zipfile.ZIP_DEFLATED))
    monkeypatch.setattr(fmt, "MAX_TEXT_BYTES", 100)
    _refused(broken, sound.read_bytes(), "more than the 100 allowed")


def test_declared_sizes_beyond_the_file(sound, broken):
    data = bytearray(sound.read_bytes())
    at = data.rfind(b"PK\1\2")
    data[at + 20 : at + 28] = (2**31).to_bytes(4, "little") * 2
    _refused(broken, bytes(data))


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "/etc/passwd",
        "a/../../b",
        "a\\b",
        "C:/x",
        "a//b",
        "a/",
        "",
        "..",
        "a\0b",
        "ü",
        "a/.b",
        "x" * 300,
    ],
)
def test_unsafe_names(sound, broken, name, tmp_path):
    with pytest.raises(BundleError):
        fmt.check_member_name(name)
    if name.isascii() and len(name) < 250:
        members = _members(sound)
        error = _refused(broken, _assemble([*members.items(), (name, b"x")]))
        assert not (tmp_path.parent / "evil").exists()
        assert error.remedy
        with pytest.raises(TangError):
            tangkit.make(tmp_path / "w.tang", c=False, members={"kernels/webgpu-browser.wgsl": "", name: b"x"})


def test_symlinks(sound, broken):
    members = _members(sound)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as target:
        for name, data in members.items():
            target.writestr(name, data)
        link = zipfile.ZipInfo("kernels/link", (1980, 1, 1, 0, 0, 0))
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        target.writestr(link, "/etc/passwd")
    _refused(broken, out.getvalue())


@pytest.mark.parametrize(("version", "match"), [([2, 0], "newer"), ([1, 9], "newer"), ([0, 9], "no longer"), ([1], "")])
def test_versions(sound, broken, version, match):
    members = _members(sound)
    manifest = json.loads(members[fmt.MANIFEST]) | {"version": version}
    error = _refused(broken, _sealed(members, manifest), match)
    if match == "newer":
        assert "Upgrade" in str(error)
    _refused(broken, _resealed(members, version=version), match)


def test_the_manifest_alone_says_what_a_variant_needs(sound, broken, tmp_path):
    members = _members(sound)
    manifest = json.loads(members[fmt.MANIFEST])
    plan = json.loads(members[fmt.PLAN])
    assert manifest["version"] == [1, 1]
    for said, made in zip(manifest["variants"], plan["variants"], strict=True):
        assert (said["features"], said["limits"]) == (made["features"], made["limits"])
        assert said["members"] == [made["source"]]
    for key, wrong in (("features", "f16"), ("limits", {"a": -1}), ("members", ["kernels/none.wgsl"]), ("peak_bytes_max", 1.5)):
        changed = [{**v, key: wrong} for v in manifest["variants"]]
        _refused(broken, _sealed(members, {**manifest, "variants": changed}), key)
    since = ("features", "limits", "members")
    older = [{k: v for k, v in variant.items() if k not in since} for variant in manifest["variants"]]
    _refused(broken, _sealed(members, {**manifest, "variants": older}), "lacks")
    path = tmp_path / "older.tang"
    path.write_bytes(_sealed(members, {**manifest, "variants": older, "version": [1, 0]}))
    with open_bundle(path) as bundle:
        assert len(bundle.plan.variants) == len(older)


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b"null", b'{"a": NaN}', b'{"a": 1, "a": 2}', b"\xff\xfe", b"[" * 100_000, b"9" * 5000],
)
def test_json_that_is_none(sound, broken, raw):
    members = _members(sound)
    manifest = json.loads(members[fmt.MANIFEST])
    manifest["files"][fmt.PLAN] = {"sha256": fmt.sha256(raw), "bytes": len(raw)}
    _refused(broken, _sealed(members | {fmt.PLAN: raw}, manifest))
    rest = {k: v for k, v in members.items() if k not in (fmt.MANIFEST, fmt.MANIFEST_HASH)}
    _refused(broken, _assemble([*rest.items(), (fmt.MANIFEST, raw), (fmt.MANIFEST_HASH, fmt.sha256(raw).encode())]))


def test_manifest_hash_is_checked(sound, broken):
    members = _members(sound)
    members[fmt.MANIFEST] += b" "
    _refused(broken, _assemble(members.items()), "SHA-256")


def test_a_weight_changed_under_an_open_bundle_is_noticed_at_use(sound, tmp_path):
    path = tmp_path / "late.tang"
    data = bytearray(sound.read_bytes())
    entry = container.read_entries(memoryview(data))["weights/00000.safetensors"]
    data[entry.start + entry.size - 1] ^= 1
    path.write_bytes(data)
    bundle = open_bundle(path)
    constant = bundle.plan.constants[0]  # lazily: the plan is fine
    with pytest.raises(BundleError, match="weights/00000"):
        bundle.constant(constant)
    bundle.close()


def test_nothing_is_left_after_a_failed_write(tmp_path):
    target = tmp_path / "m.tang"
    target.write_bytes(b"old")

    def failing():
        yield "w", tangkit.W
        raise RuntimeError("the disk of the source is gone")

    plan = tangkit.plan(tangkit.c_variant())
    with pytest.raises(RuntimeError):
        write(target, name="x", plan=plan, members={"kernels/c-generic.c": "x"}, constants=failing())
    with pytest.raises(BundleError, match=r"kernels/c-generic\.c"):
        write(target, name="x", plan=plan, members={}, constants=[("w", tangkit.W)])
    with pytest.raises(BundleError):
        write(target, name="x", plan={**plan, "dims": 3}, members={}, constants=[("w", tangkit.W)])
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["m.tang"]
    with pytest.raises(BundleError, match="cannot be written"):
        write(tmp_path / "none" / "m.tang", name="x", plan=plan, members={}, constants=[])


def test_weights_are_cut_into_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(fmt, "CHUNK_BYTES", 1000)
    rng = np.random.default_rng(0)
    arrays = {
        "big": rng.standard_normal(1501).astype(np.float32),
        "odd": np.arange(7, dtype=np.uint8),
        "half": rng.standard_normal(33).astype(np.float16),
        "flags": np.array([True, False, True]),
        "wide": np.arange(90),
        "scalar": np.array(3.5),
        "none": np.zeros((0, 4), np.float32),
        "transposed": np.arange(12, dtype=np.int32).reshape(3, 4).T,
    }
    plan = {**tangkit.plan(), "constants": []}
    path = tmp_path / "w.tang"
    write(path, name="w", plan=plan, members={}, constants=arrays.items())
    with open_bundle(path) as bundle:
        table = {c.name: c for c in bundle.plan.constants}
        assert list(table) == list(arrays)
        assert len(table["big"].parts) == 7
        for name, array in arrays.items():
            got = bundle.constant(table[name])
            assert got.dtype == array.dtype and got.shape == array.shape
            np.testing.assert_array_equal(got, array)
            assert got.ctypes.data % got.itemsize == 0
        del got
        assert all(size <= 2000 for n, (_, size) in bundle.manifest.files.items() if n.startswith("weights"))


def test_packed_4_bit_constants(tmp_path):
    plan = {**tangkit.plan(), "constants": [{"name": "q", "dtype": "u4", "shape": [3, 3]}]}
    raw = np.arange(5, dtype=np.uint8)
    write(tmp_path / "q.tang", name="q", plan=plan, members={}, constants=[("q", raw)])
    with open_bundle(tmp_path / "q.tang") as bundle:
        assert bundle.plan.constants[0].shape == (3, 3)
        np.testing.assert_array_equal(bundle.constant(bundle.plan.constants[0]), raw)


def test_packed_here(tmp_path, monkeypatch):
    monkeypatch.setenv("TANG_EDGE_CONFIG", str(tmp_path / "config"))
    path = tangkit.make(tmp_path / "k.tang", remember=False)
    with open_bundle(path) as bundle:
        digest = bundle.manifest_sha256
    assert not trust.packed_here(digest)
    tangkit.make(path, remember=True)
    assert trust.packed_here(digest)
    if os.name == "posix":
        (tmp_path / "config").chmod(0o777)  # others could have written the list
        assert not trust.packed_here(digest)


def test_a_model_in_place_of_a_bundle(broken):
    with pytest.raises(BundleError, match="tang-edge pack"):
        broken(b"\x08\x08\x12\x07pytorch" + bytes(200))


def test_the_target_is_a_folder_or_the_disk_is_full(tmp_path, monkeypatch):
    with pytest.raises(BundleError, match="is a folder"):
        tangkit.make(tmp_path, remember=False)

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BundleError, match=r"full\.tang: cannot be written \(No space"):
        tangkit.make(tmp_path / "full.tang", remember=False)
    assert not list(tmp_path.iterdir())


def test_settings_that_cannot_be_kept_are_said_before_there_is_a_bundle(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TANG_EDGE_CONFIG", str(tmp_path / "file" / "x"))
    with pytest.raises(BundleError, match="TANG_EDGE_CONFIG"):
        tangkit.make(tmp_path / "kit.tang", remember=True)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_packed_here_by_many_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("TANG_EDGE_CONFIG", str(tmp_path / "config"))
    digests = [f"{i:064x}" for i in range(64)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(trust.remember, digests))
    assert all(map(trust.packed_here, digests))


def test_the_list_of_bundles_packed_here_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setenv("TANG_EDGE_CONFIG", str(tmp_path / "config"))
    monkeypatch.setattr(trust, "_KEPT", 5)
    digests = [f"{i:064x}" for i in range(30)]
    for d in digests:
        trust.remember(d)
    assert all(map(trust.packed_here, digests[-5:]))
    assert len((tmp_path / "config" / "packed-here.txt").read_text().split()) <= 10
