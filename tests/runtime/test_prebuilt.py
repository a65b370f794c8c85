"""Compiled libraries: made at pack time for this and other machines, kept in a bounded folder, made by ziglang too."""

from __future__ import annotations

import os
import shutil
import subprocess
import time

import numpy as np
import pytest

from tang_edge import load
from tang_edge.bundle import layout
from tang_edge.bundle.read import open_bundle
from tang_edge.c_fallback import compile as cc
from tang_edge.c_fallback import libraries, prebuild
from tang_edge.compiler import pack_program
from tang_edge.errors import DeviceError, InputError
from tang_edge.ir import dtype, interp
from tang_edge.ir.affine import var
from tang_edge.ir.scalar import op, reduce, sum_of
from tang_edge.ir.tensor import Builder, Program

CLASSES = ("cpu-x86-64-v3", "cpu-aarch64", "cpu-generic")


def program() -> Program:
    b = Builder("small")
    n = b.dim("n", 1, 64)
    x = b.input("x", dtype.f32, [n, 8])
    w = b.constant("w", np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32))
    k = var("k", 8)
    b.bind("p", [n, 8], lambda i, j: reduce(sum_of(dtype.f32), (k,), b.read(x, [i, k]) * b.read(w, [k, j])))
    b.bind("y", [n, 8], lambda i, j: op("tanh", b.read("p", [i, j])) + op("exp", b.read(x, [i, j])))
    b.output("y")
    return b.build()


def check(path, **options):
    feeds = {"x": np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)}
    with load(path, device="c", **options) as model:
        np.testing.assert_allclose(model.run(feeds)["y"], interp.run(program(), feeds)["y"], rtol=1e-5)
        return model.report


@pytest.fixture
def no_compiler(monkeypatch):
    def hide():
        monkeypatch.setattr(cc, "find_compiler", lambda: None)
        monkeypatch.setattr(cc, "find_zig", lambda: None)

    return hide


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("TANG_EDGE_CACHE", str(folder))
    return folder / "lib"


def need_zig() -> None:
    if cc.find_zig() is None:
        pytest.skip("the package ziglang is not installed (pip install ziglang)")


def test_the_host_runs_it_without_a_compiler(tmp_path, needs_c, no_compiler, cache):
    pack_program(program(), tmp_path / "m.tang", targets=CLASSES, prebuild=("host",))
    with open_bundle(tmp_path / "m.tang") as bundle:
        found = [m for m in bundle.names if m.startswith("lib/")]
    assert found and all(m.startswith(f"lib/{cc.host_triple()}/") for m in found)
    no_compiler()
    report = check(tmp_path / "m.tang")
    assert "is in the bundle" in report.why
    assert len(list(cache.iterdir())) == 1


def test_it_is_made_for_the_class_and_not_for_this_processor(tmp_path, needs_c, monkeypatch):
    made = []
    real = cc.build
    monkeypatch.setattr(
        cc, "build", lambda text, compiler, flags, *rest: made.append(flags) or real(text, compiler, flags, *rest)
    )
    pack_program(program(), tmp_path / "m.tang", targets=CLASSES, prebuild=("host",), golden=False)
    assert made and all("-march=native" not in flags for flags in made)


def test_refusals(tmp_path, no_compiler):
    with pytest.raises(InputError, match="not known"):
        pack_program(program(), tmp_path / "m.tang", targets=CLASSES, prebuild=("vax-vms",))
    no_compiler()
    other = next(t for t in prebuild.TRIPLES if t.startswith("aarch64-linux") and t != cc.host_triple())
    for triple in ("host", other):
        with pytest.raises(DeviceError, match="no compiler here"):
            pack_program(program(), tmp_path / "m.tang", targets=CLASSES, prebuild=(triple,))
    assert not list(tmp_path.iterdir())


def test_which_classes_a_triple_may_be_of():
    assert prebuild.fits("x86_64-linux-gnu", "cpu-x86-64-v3") and prebuild.fits("aarch64-macos", "cpu-aarch64")
    assert prebuild.fits("aarch64-macos", "cpu-generic") and not prebuild.fits("aarch64-macos", "cpu-x86-64-v2")
    assert prebuild.member("aarch64-macos", "c-cpu-generic") == "lib/aarch64-macos/c-cpu-generic.dylib"


def test_ziglang_compiles_where_there_is_no_other(tmp_path, monkeypatch, cache):
    need_zig()
    monkeypatch.setattr(cc, "find_compiler", cc.find_zig)
    pack_program(program(), tmp_path / "m.tang", targets=CLASSES)
    assert "clang" in check(tmp_path / "m.tang").why


@pytest.mark.slow
def test_ziglang_compiles_for_other_machines(tmp_path):
    """TANG_EDGE_TEST_TRIPLES=all tries every triple; the first build for each takes zig half a minute."""
    need_zig()
    every = os.environ.get("TANG_EDGE_TEST_TRIPLES") == "all"
    triples = tuple(t for t in (prebuild.TRIPLES if every else ("aarch64-linux-musl",)) if t != cc.host_triple())
    pack_program(program(), tmp_path / "m.tang", targets=CLASSES, prebuild=triples, golden=False)
    magic = {"linux": b"\x7fELF", "macos": b"\xcf\xfa\xed\xfe", "windows": b"MZ"}
    with open_bundle(tmp_path / "m.tang") as bundle:
        for triple in triples:
            found = [m for m in bundle.names if m.startswith(f"lib/{triple}/")]
            assert len(found) == 2, triple
            for name in found:
                assert bytes(bundle.member(name)[:4]).startswith(magic[triple.split("-")[1]]), name


MAIN = r"""
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) { /* dimensions of one argument; then the bytes of each constant */
  int64_t dims[1] = {atoll(argv[1])}, sizes[2];
  if (tang_abi() != TANG_ABI_VERSION || tang_sizes(dims, sizes)) return 2;
  uint8_t *arena = aligned_alloc(64, sizes[0] + 64), *packed = aligned_alloc(64, sizes[1] + 64);
  const void *constants[64];
  if (fread(arena, 1, sizes[0], stdin) != (size_t)sizes[0]) return 3;
  for (int k = 2; k < argc; k++) {
    size_t n = atoll(argv[k]);
    void *data = aligned_alloc(64, n / 64 * 64 + 64);
    if (fread(data, 1, n, stdin) != n) return 4;
    constants[k - 2] = data;
  }
  tang_call call = {dims, arena, packed, constants, tang_pool_new(2), NULL, 0, 0, -1};
  if (tang_run(&call)) return 5;
  call.phase = 1;
  if (tang_run(&call)) return 6;
  return fwrite(arena, 1, sizes[0], stdout) != (size_t)sizes[0];
}
"""


@pytest.mark.slow
def test_arm_gives_the_same_answers(tmp_path):
    """The aarch64 variant with a main program around it, under qemu."""
    need_zig()
    qemu = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if qemu is None:
        pytest.skip("qemu-user is not installed (apt install qemu-user-static)")
    pack_program(program(), tmp_path / "m.tang", targets=("cpu-aarch64",))
    with open_bundle(tmp_path / "m.tang") as bundle:
        (v,) = bundle.plan.variants
        (tmp_path / "main.c").write_text(bundle.text(v.source) + MAIN)
        weights = [np.ascontiguousarray(bundle.constant(c)).tobytes() for c in bundle.plan.constants]
    dims = {"n": 3}
    region = layout.region(v.slots, dims, v.id)
    arena = bytearray(region.total)
    feeds = {"x": np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)}
    spots = {b.io: region.offsets[b.slot] for b in v.buffers.values() if b.io}
    arena[spots["x"] : spots["x"] + feeds["x"].nbytes] = feeds["x"].tobytes()
    flags = [f for f in cc.FLAGS if f not in ("-march=native", "-shared", "-fPIC")]
    command = [
        *cc.find_zig().command,
        "-target",
        "aarch64-linux-musl",
        "-static",
        *flags,
        "main.c",
        "-o",
        "main",
        *cc.LIBRARIES,
    ]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=600)
    sizes = [str(len(w)) for w in weights]
    done = subprocess.run(
        [qemu, "./main", "3", *sizes], cwd=tmp_path, input=bytes(arena) + b"".join(weights), capture_output=True
    )
    assert done.returncode == 0, done.stderr
    got = np.frombuffer(done.stdout, np.float32, 24, spots["y"]).reshape(3, 8)
    np.testing.assert_allclose(got, interp.run(program(), feeds)["y"], rtol=1e-5)


def test_old_libraries_make_room(tmp_path, monkeypatch):
    ending = libraries.suffix()
    now = time.time()
    for age in range(5):
        path = tmp_path / f"{age}{ending}"
        path.write_bytes(bytes(100))
        os.utime(path, (now - age, now - age))
    for name, age in ((".build-old", 1e6), (".build-new", 0)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (now - age, now - age))
    (tmp_path / "note.txt").write_text("not ours")
    monkeypatch.setenv("TANG_EDGE_CACHE_BYTES", "250")
    gone = libraries.prune(tmp_path, spare=tmp_path / f"4{ending}")
    assert sorted(p.name for p in gone) == [f"2{ending}", f"3{ending}"]
    assert {p.name for p in tmp_path.iterdir()} == {f"{k}{ending}" for k in (0, 1, 4)} | {".build-new", "note.txt"}


def test_use_keeps_a_library_young(cache, monkeypatch):
    monkeypatch.setenv("TANG_EDGE_CACHE_BYTES", "250")
    made = []

    def make(work):
        made.append(work)
        (work / "it").write_bytes(bytes(100))
        return work / "it"

    for k, key in enumerate(("a", "b", "a", "c", "a", "b")):
        path = libraries.kept(key, make)
        os.utime(path, (1000 + k, 1000))
    assert len(made) == 4  # b had to go for c
    assert not [p for p in cache.iterdir() if p.name.startswith(".build")]
