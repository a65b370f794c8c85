"""WebAssembly libraries: what they import and export, the same bytes again, sizes beyond 32 bits, what is left out and said."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tang_edge import compiler
from tang_edge.bundle.read import open_bundle
from tang_edge.c_fallback import compile as cc
from tang_edge.c_fallback import prebuild
from tang_edge.c_fallback.dialect import C
from tang_edge.emit.printer import Printer
from tang_edge.errors import TargetLimit
from tang_edge.ir import affine, dtype
from tang_edge.ir.kernel import Int
from tang_edge.ir.tensor import Builder
from tang_edge.schedule.limits import CLASSES

LOOK = """
const fs = require("fs"), [file, ...dims] = process.argv.slice(1);
const module = new WebAssembly.Module(fs.readFileSync(file)), imports = WebAssembly.Module.imports(module);
const memory = imports.length ? new WebAssembly.Memory({ initial: 256, maximum: 65535, shared: true }) : null;
const { exports } = new WebAssembly.Instance(module, memory ? { env: { memory } } : {});
const { buffer } = memory ?? exports.memory, at = exports.__heap_base.value;
new BigInt64Array(buffer, at, dims.length).set(dims.map(BigInt));
const to = at + 8 * dims.length, code = exports.tang_sizes(at, to), sizes = [...new BigInt64Array(buffer, to, 2)].map(String);
console.log(JSON.stringify({ imports, names: Object.keys(exports), code, sizes }));
"""
ABI = {"tang_abi", "tang_sizes", "tang_run", "tang_pool_new", "tang_pool_free", "__heap_base"}


def outer():
    """y[i, j] = x[i] w[j], of at most 70,000 x 70,000 elements."""
    b = Builder("outer")
    n, m = b.dim("n", 1, 70_000), b.dim("m", 1, 70_000)
    x, z = b.input("x", dtype.f32, [n]), b.input("z", dtype.f32, [m])
    b.bind("y", [n, m], lambda i, j: b.read(x, [i]) * b.read(z, [j]))
    b.output("y")
    return b.build()


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """The libraries of `outer` by triple, made by `pack`."""
    if cc.find_zig() is None:
        pytest.skip("the package ziglang is not installed (pip install tang-edge[dev])")
    path = tmp_path_factory.mktemp("wasm") / "outer.tang"
    report = compiler.pack_program(outer(), path, targets=("browser",), golden=False)
    assert [v["class"] for v in report.variants] == ["browser", "wasm-simd"]
    assert not any("left out" in n for n in report.notes)
    with open_bundle(path) as bundle:
        variant = next(v for v in bundle.plan.variants if v.device_class == "wasm-simd")
        return {triple: bytes(bundle.member(member)) for triple, member in variant.prebuilt.items()}


def look(data, tmp_path, dims):
    if shutil.which("node") is None:
        pytest.skip("node is missing (tools/system_packages.sh node)")
    path = tmp_path / "library.wasm"
    path.write_bytes(data)
    done = subprocess.run(["node", "-e", LOOK, str(path), *map(str, dims)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_imports_and_exports(libraries, tmp_path):
    one = look(libraries["wasm32-simd"], tmp_path, (1, 1))
    assert one["imports"] == [] and {*ABI, "memory"} <= set(one["names"])
    many = look(libraries["wasm32-simd-threads"], tmp_path, (1, 1))
    assert many["imports"] == [{"module": "env", "name": "memory", "kind": "memory"}]
    assert {*ABI, "tang_pool_join", "tang_pool_fail", "__stack_pointer"} <= set(many["names"])


def test_sizes_are_counted_in_64_bits(libraries, tmp_path):
    for data in libraries.values():
        found = look(data, tmp_path, (70_000, 69_999))
        assert found["code"] == 0
        assert int(found["sizes"][0]) >= 4 * 70_000 * 69_999 > 2**34
        assert look(data, tmp_path, (70_001, 1))["code"] == 1


def test_the_same_bytes_again(libraries):
    made = compiler.build_variant(compiler._rewritten(outer(), compiler.NOBODY), CLASSES["wasm-simd"])
    for triple, data in libraries.items():
        assert prebuild.library(made.text, triple, "wasm-simd", "again") == data


def test_without_the_compiler_the_variant_is_left_out_and_said(tmp_path, monkeypatch):
    monkeypatch.setattr(prebuild, "can_cross_compile", lambda: False)
    report = compiler.pack_program(outer(), tmp_path / "m.tang", targets=("browser",), golden=False)
    assert [v["class"] for v in report.variants] == ["browser"]
    assert [n for n in report.notes if "pip install 'tang-edge[c]'" in n and "left out" in n]
    monkeypatch.setattr(compiler, "classes_of", lambda _: (CLASSES["wasm-simd"],))
    with pytest.raises(TargetLimit, match="ziglang"):
        compiler.pack_program(outer(), tmp_path / "m.tang", targets=("browser",), golden=False)


def test_libraries_go_with_their_class_only():
    for triple in prebuild.WASM:
        assert triple in CLASSES["wasm-simd"].libraries and not prebuild.fits("x86_64-linux-gnu", "wasm-simd")
        assert prebuild.member(triple, "c-wasm-simd") == f"lib/{triple}/c-wasm-simd.wasm"
    assert "wasm-simd" not in cc.cpu_classes()


def test_integers_wider_than_indices():
    n = affine.dim("n", 1, 70_000)
    (name,) = affine.dims(n)
    printer = Printer(C, {name: "d0"})
    wide, narrow = n * n, n * 4
    assert printer.value(Int(wide, dtype.i64)) == "((int64_t)(1LL * d0 * d0))"
    assert printer.value(Int(narrow, dtype.i64)) == "((int64_t)(4 * d0))"
