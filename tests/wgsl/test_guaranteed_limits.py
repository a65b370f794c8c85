"""Weights over 128 MiB on a device that offers what every WebGPU implementation guarantees, and nothing more."""

from __future__ import annotations

from pathlib import Path

import devicekit
import numpy as np
import pytest

import tang_edge
from tang_edge.compiler import pack_program
from tang_edge.errors import DeviceError, TargetLimit
from tang_edge.ir import affine, scalar
from tang_edge.ir.dtype import f32, i8, i64
from tang_edge.ir.scalar import cast
from tang_edge.ir.tensor import Builder, Program
from tang_edge.wgsl import gpu

pytestmark = pytest.mark.device
GUARANTEED = {"maxstoragebufferbindingsize": 128 << 20, "maxbuffersize": 256 << 20, "maxstoragebufferspershaderstage": 8}


@pytest.fixture
def guaranteed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adapters that offer the guaranteed limits only (WebGPU, section "Limits")."""
    if why := devicekit.missing("webgpu"):
        pytest.skip(str(why))
    own = gpu._limits

    def limits(adapter: gpu.Adapter) -> dict[str, tuple[str, int]]:
        return {k: (name, min(value, GUARANTEED.get(k, value))) for k, (name, value) in own(adapter).items()}

    monkeypatch.setattr(gpu, "_limits", limits)


def tied(rows: int, width: int, dtype: type[np.generic]) -> Program:
    """A table that is looked up, and multiplied with what was found: the tied embedding of language models."""
    b = Builder("tied")
    n = b.dim("n", 1, 8)
    ids = b.input("ids", i64, [n])
    values = np.random.default_rng(0).integers(-100, 100, (rows, width)).astype(dtype)
    table = b.constant("table", values)
    narrow = dtype is np.int8

    def element(i: object, j: object) -> scalar.Scalar:
        x = b.read(table, [i, j])  # type: ignore[list-item]
        return cast(x, f32) if narrow else x

    assert b.types[table].dtype is (i8 if narrow else f32)
    e = b.bind("e", [n, width], lambda i, j: element(scalar.gather_index(b.read(ids, [i]), affine.const(rows)), j))

    def logits(i: affine.Var, v: affine.Var) -> scalar.Scalar:
        r = affine.var("r", width)
        return scalar.reduce(scalar.sum_of(f32), [r], b.read(e, [i, r]) * element(v, r))

    b.output("y", b.bind("y", [n, rows], logits))
    return b.build()


@pytest.mark.parametrize("dtype, rows", ((np.float32, 40_000), (np.int8, 40_960)))
def test_a_table_larger_than_a_binding(tmp_path: Path, guaranteed: None, dtype: type[np.generic], rows: int) -> None:
    program = tied(rows, 1024, dtype)
    table = program.constants[0].data
    assert table.size * 4 > GUARANTEED["maxstoragebufferbindingsize"]
    bundle = tmp_path / "tied.tang"
    pack_program(program, bundle, targets=("webgpu",), golden=False)
    ids = np.array([0, rows // 2, rows - 1])
    with tang_edge.load(bundle, device="webgpu") as model:
        got = model.run({"ids": ids})["y"]
    want = table[ids].astype(np.float64) @ table.T.astype(np.float64)
    assert np.linalg.norm(got - want) <= 1e-6 * np.linalg.norm(want)


def test_an_input_larger_than_a_binding_is_refused_when_packing(tmp_path: Path) -> None:
    b = Builder("wide")
    x = b.input("x", f32, [40_000_000])
    b.output("y", b.bind("y", [40_000_000], lambda i: b.read(x, [i]) * 2.0))
    with pytest.raises(TargetLimit, match=r"tensor 'x': takes 160,000,\d+ bytes .* guarantees bindings of 134,217,728"):
        pack_program(b.build(), tmp_path / "wide.tang", targets=("webgpu",), golden=False)
    assert not (tmp_path / "wide.tang").exists()


def test_sizes_beyond_a_binding_are_refused_when_they_are_asked_for(tmp_path: Path, guaranteed: None) -> None:
    b = Builder("grows")
    n = b.dim("n", 1, 60_000_000)
    x = b.input("x", f32, [n])
    b.output("y", b.bind("y", [n], lambda i: b.read(x, [i]) * 2.0))
    pack_program(b.build(), tmp_path / "grows.tang", targets=("webgpu",))
    with tang_edge.load(tmp_path / "grows.tang", device="webgpu") as model:
        with pytest.raises(
            DeviceError, match=r"tensor 'x': takes 160,000,\d+ bytes at these sizes, this device binds 134,217,728"
        ):
            model.run({"x": np.zeros(40_000_000, np.float32)})
        assert model.run({"x": np.ones(3, np.float32)})["y"].tolist() == [2, 2, 2]
