"""Every operator of `ops.OPS`, for every dtype and number of lanes that kernels use, compiled and compared with its meaning.

One kernel applies one operator to a table of values that holds the special ones of the dtype in all pairs. Where a target may
answer otherwise (docs/float-semantics.md), `ALLOWED` says where and what.
"""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import devicekit
import numpy as np
import pytest
import test_golden

from tang_edge.c_fallback import compile as cc
from tang_edge.c_fallback.library import Library
from tang_edge.emit.unit import Unit
from tang_edge.ir import affine, dtype, interp
from tang_edge.ir.dtype import BY_NAME, DType, Kind
from tang_edge.ir.kernel import Buffer, Calc, Kernel, Let, Lit, Load, Ref, Splat, Store, Value
from tang_edge.ir.ops import ARITH, CAST, COMPARE, FLOATS, LOGIC, OPS, SELECT, TEST
from tang_edge.ir.tensor import Program
from tang_edge.schedule.limits import CLASSES
from tang_edge.schedule.variant import Variant
from tang_edge.wgsl.module import kernel_module

Array = Any
COUNT = 16 * 16 * 4  # elements of a table: all pairs of up to 32 values, a multiple of every number of lanes

F32 = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.0, -2.0, 2.5, -2.5, 3.0, -3.0, 7.25, -7.25, 0.3, -0.3, 80.0, -80.0]
F32 += [np.inf, -np.inf, np.nan, 3e9, -3e9, 2147483520.0, 1e20, -1e20, 255.0, 300.0, -129.0, 1e-3]
REAL, WHOLE = ("f16", "f32", "f64"), ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")
NUMBERS = (*REAL, *WHOLE)
NAMES = {FLOATS: REAL, TEST: REAL, ARITH: NUMBERS, COMPARE: (*NUMBERS, "bool"), LOGIC: (*WHOLE, "bool")}


def values(d: DType) -> Array:
    """Interesting values of a dtype."""
    if d.is_float:
        with np.errstate(over="ignore"):
            return np.asarray(F32).astype(d.numpy)
    if d.kind is Kind.BOOL:
        return np.asarray([False, True])
    lo, hi = d.limits()
    picked = [0, 1, 2, 3, 7, 8, 31, 32, 33, 100, 127, 128, 255, hi, hi - 1, lo, lo + 1, -1, -2, -3, -7, -100, -128, -33]
    return np.asarray([v for v in dict.fromkeys(picked) if lo <= v <= hi], d.numpy)


@dataclass(frozen=True)
class Row:
    """An operator on operands of some dtypes; `literal` is the value of the last operand where that is a literal."""

    op: str
    args: tuple[DType, ...]
    result: DType
    literal: float | int | None = None

    @property
    def name(self) -> str:
        tail = "" if self.literal is None else f"_lit{self.literal}".replace("-", "m").replace(".", "p")
        return f"{self.op}_{'_'.join(a.name for a in self.args)}_to_{self.result.name}{tail}"

    def operands(self) -> list[Array]:
        """Arrays of COUNT elements: all tuples of the values, repeated."""
        tables = [values(a) for a in self.args]
        if self.literal is not None:
            tables[-1] = np.asarray([self.literal], self.args[-1].numpy)
        index = np.stack([g.ravel() for g in np.meshgrid(*(np.arange(len(t)) for t in tables), indexing="ij")])
        index = index[:, np.linspace(0, index.shape[1] - 1, COUNT).astype(int) if index.shape[1] >= COUNT else slice(None)]
        return [np.resize(t[i], COUNT) for t, i in zip(tables, index, strict=True)]

    def meaning(self) -> Array:
        """What the interpreter computes."""
        args = self.operands()
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if self.op == "cast":
                return interp.cast(args[0], self.args[0], self.result)
            return np.asarray(OPS[self.op].evaluate(*args)).astype(self.result.numpy)

    def kernel(self, lanes: int, stored: Callable[[DType], DType]) -> Kernel:
        """out[t] = op(a[t], ...) for all t, in vectors of `lanes`."""
        t = affine.var("t0", COUNT // lanes)
        at, lets, refs = affine.as_expr(t) * lanes, [], []
        buffers = [Buffer(f"b{k}", f"x{k}", stored(d), False) for k, d in enumerate(self.args)]
        for k, d in enumerate(self.args):
            v: Value = Load(f"b{k}", at, d, lanes)
            if self.literal is not None and k + 1 == len(self.args):
                one = Lit(self.literal, d)
                v = one if lanes == 1 else Splat(one, d, lanes)
            lets += [Let(f"v{k}", v)] if not isinstance(v, (Lit, Splat)) else []
            refs.append(Ref(f"v{k}", d, lanes) if not isinstance(v, (Lit, Splat)) else v)
        result: Value = Calc(self.op, tuple(refs), self.result, lanes)
        if self.result.kind is Kind.BOOL:  # vectors of bools are not stored
            result = Calc("select", (result, Lit(1, dtype.i32, lanes), Lit(0, dtype.i32, lanes)), dtype.i32, lanes)
        used = buffers[: len(buffers) - (self.literal is not None)]
        out = Buffer("b9", "y", dtype.i32 if self.result.kind is Kind.BOOL else stored(self.result), True)
        return Kernel(self.name, (*used, out), (), (t,), (), (*lets, Store("b9", at, result)), "test")


def rows() -> list[Row]:
    """All operators on all dtypes that `ops` allows."""
    b, out = BY_NAME, []
    for info in OPS.values():
        names = NAMES.get(info.family, ())
        if info.name in ("shl", "shr"):
            names = WHOLE
        for n in names:
            out.append(Row(info.name, (b[n],) * info.arity, b["bool"] if info.family in (COMPARE, TEST) else b[n]))
        if info.family is SELECT:
            out += [Row("select", (b["bool"], b[n], b[n]), b[n]) for n in (*NUMBERS, "bool")]
        if info.family is CAST:
            pairs = itertools.permutations((*NUMBERS, "bool"), 2)
            out += [Row("cast", (b[x],), b[y]) for x, y in pairs]
    for op in ("min", "max"):
        out += [Row(op, (b["f32"],) * 2, b["f32"], literal) for literal in (0.0, -1.5)]
    for op in ("div", "mod", "fmod", "shl", "shr"):
        out += [Row(op, (b[n],) * 2, b[n], k) for n in ("i32", "u32") for k in ((0, 3, 40) if n == "u32" else (0, -1, 3, -7))]
    return out


ROWS = rows()


def vector(row: Row) -> bool:
    """True where kernels have vectors of it: 32 bits; narrower integers are loaded, compared, converted and stored."""
    types = (*row.args, row.result)
    if any(d.bits > 32 or d.name == "f16" for d in types):
        return False
    return row.op == "cast" or OPS[row.op].family is COMPARE or not any(d.is_int and d.bits < 32 for d in types)


def narrow_bool(row: Row) -> bool:
    """True where the row loads vectors of bools, which kernels do not."""
    return any(d.kind is Kind.BOOL for d in row.args)


# ---------------------------------------------------------------- C


def c_library() -> Library:
    """A collector of kernels for C."""
    empty = Program("ops", (), (), (), (), ())
    return Library(Variant(CLASSES["cpu-generic"], empty, {}, (), (), (), (), ()))


def c_units(lanes: int) -> list[tuple[Row, str, Unit]]:
    """Rows that C is compiled for, with their kernels."""
    library, out = c_library(), []
    for row in ROWS:
        if lanes == 1 or (vector(row) and not narrow_bool(row)):
            name, u = library.kernel(row.kernel(lanes, lambda d: d), row.name)
            out.append((row, "\n".join(library.units[name]).replace(f"static void {name}", f"void {row.name}"), u))
    return out


@pytest.mark.device
@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
def test_c(lanes: int, tmp_path: Path) -> None:
    compiler = cc.find_compiler()
    if compiler is None:
        pytest.skip("no C compiler")
    units = c_units(lanes)
    prelude = (Path(cc.__file__).parent / "prelude.h").read_text()
    vectors = [f"TANG_VECTORS({lanes})"] if lanes > 1 else []
    source = tmp_path / "ops.c"
    source.write_text("\n".join([prelude, *vectors, *(text for _, text, _ in units)]))
    flags = ["-O1" if f == "-O3" else f for f in cc.FLAGS if f != "-fvisibility=hidden"]
    strict = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-Wno-unused-parameter", "-Wno-psabi"]
    command = [*compiler.command, *flags, *strict, "-o", str(tmp_path / "ops.so"), str(source), *cc.LIBRARIES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    library = ctypes.CDLL(str(tmp_path / "ops.so"))
    problems = []
    for row, _, _ in units:
        args = row.operands()
        out = np.zeros(COUNT, np.int32 if row.result.kind is Kind.BOOL else row.result.numpy)
        kept = [*args[: len(args) - (row.literal is not None)], out]
        pointers = (ctypes.c_void_p * len(kept))(*(a.ctypes.data for a in kept))
        getattr(library, row.name)(pointers, (ctypes.c_long * 1)(0), ctypes.c_long(0), ctypes.c_long(COUNT // lanes))
        problems += differences(row, out, "c")
    assert not problems, "\n".join(problems)


# ---------------------------------------------------------------- WGSL


WIDE = {"f64", "i64", "u64"}  # refused, or kept in 32 bits: see tests/cases and the legaliser


def wgsl_stored(d: DType) -> DType:
    """The dtype that a tensor is stored in."""
    return BY_NAME[CLASSES["browser"].storage(d.name)]


def wgsl_rows(lanes: int) -> Iterator[tuple[Row, str]]:
    """Rows that WGSL is made for, and their modules. Narrow tensors are not read as vectors on WebGPU."""
    for row in ROWS:
        types = (*row.args, row.result)
        if any(d.name in WIDE for d in types) or (lanes > 1 and (not vector(row) or any(d.bits < 32 for d in types))):
            continue
        k = row.kernel(lanes, wgsl_stored)
        yield row, kernel_module(k, CLASSES["browser"], row.name, ["read_write"] * len(k.buffers))[1]


@pytest.mark.device
@pytest.mark.parametrize("lanes", [1, 4])
def test_wgsl(lanes: int) -> None:
    if devicekit.missing("webgpu"):
        pytest.skip(devicekit.missing("webgpu"))
    from tang_edge.wgsl import gpu

    handle = gpu.adapters()[0][0].handle.request_device_sync()
    problems = []
    for row, text in wgsl_rows(lanes):
        args = row.operands()[: len(row.args) - (row.literal is not None)]
        stored = [a.astype(np.dtype(wgsl_stored(d).numpy)) for a, d in zip(args, row.args, strict=False)]
        kind = np.dtype(np.int32 if row.result.kind is Kind.BOOL else wgsl_stored(row.result).numpy)
        try:
            out = dispatch(handle, text, stored, kind, COUNT // lanes)
        except Exception as error:
            problems.append(f"{row.name} x {lanes}: {str(error)[:600]}\n{text}")
            continue
        problems += differences(row, out, "webgpu")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("lanes", [1, 4])
def test_tint_accepts(lanes: int, tmp_path: Path) -> None:
    """Chrome's compiler, which evaluates constants more strictly than wgpu's."""
    module = test_golden.tint()
    if isinstance(module, str):
        pytest.skip(module)
    files = []
    for row, text in wgsl_rows(lanes):
        files.append(tmp_path / f"{row.name}.wgsl")
        files[-1].write_text(text)
    script = Path(test_golden.__file__).parent / "tint.mjs"
    command = [shutil.which("node") or "node", str(script), str(module), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "done", (done.stdout + done.stderr)[:4000]


def dispatch(device: Any, text: str, inputs: Sequence[Array], kind: np.dtype[Any], groups: int) -> Array:
    """Run a module on one-dimensional buffers; the last binding is the result."""
    module = device.create_shader_module(code=text)
    pipeline = device.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})
    usage = 0x80 | 0x4 | 0x8  # STORAGE, COPY_SRC, COPY_DST
    buffers = [device.create_buffer_with_data(data=a.tobytes(), usage=usage) for a in inputs]
    buffers.append(device.create_buffer(size=COUNT * kind.itemsize, usage=usage))
    entries = [{"binding": n, "resource": {"buffer": b, "offset": 0, "size": b.size}} for n, b in enumerate(buffers)]
    group = device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)
    encoder = device.create_command_encoder()
    work = encoder.begin_compute_pass()
    work.set_pipeline(pipeline)
    work.set_bind_group(0, group)
    work.dispatch_workgroups(groups)
    work.end()
    device.queue.submit([encoder.finish()])
    return np.frombuffer(device.queue.read_buffer(buffers[-1]), kind)


# ---------------------------------------------------------------- comparison

EXACT = {"add", "sub", "mul", "neg", "abs", "sign", "min", "max", "floor", "ceil", "round", "trunc", "select", "sqrt", "div"}


def near_multiple(quotient: Array) -> Array:
    """Where rounding the quotient may give the next integer, and a remainder that is off by the whole divisor."""
    return np.abs(quotient - np.rint(quotient)) < 1e-4 + 1e-6 * np.abs(quotient)


# (operator, where) -> inputs for which WGSL gives whatever the driver gives, in words of docs/float-semantics.md
Skip = Callable[..., Array]
ALLOWED: dict[str, Skip] = {
    "sin": lambda x: np.abs(x) > 1e4,
    "cos": lambda x: np.abs(x) > 1e4,
    "tan": lambda x: np.abs(x) > 1e4,
    "asin": lambda x: np.abs(x) > 1,
    "acos": lambda x: np.abs(x) > 1,
    "log": lambda x: x < 0,
    "sqrt": lambda x: x < 0,
    "asinh": lambda x: np.abs(x) > 1e15,
    "acosh": lambda x: (x < 1) | (x > 1e15),
    "atanh": lambda x: np.abs(x) >= 1,
    "mod": lambda x, y: near_multiple(x / y),
    "fmod": lambda x, y: near_multiple(x / y),
}


def differences(row: Row, got: Array, device: str) -> list[str]:
    """Where the result departs from the meaning of the operator, in words."""
    want, args = row.meaning(), row.operands()
    if row.result.is_float:
        g, w = got.astype(np.float64), want.astype(np.float64)
        bits = min(d.bits for d in (*row.args, row.result) if d.is_float)
        rtol, atol = {16: (4e-3, 6e-8), 32: (3e-6, 1e-30), 64: (1e-12, 1e-30)}[bits]
        if device == "webgpu" and row.op not in EXACT:
            rtol, atol = 5e-4, 5e-4
        with np.errstate(all="ignore"):
            same = (g == w) | (np.isnan(g) & np.isnan(w)) | (np.abs(g - w) <= atol + rtol * np.abs(w))
    else:
        same = got == want
    if device == "webgpu" and row.op in ALLOWED and row.args[0].is_float:
        with np.errstate(all="ignore"):
            same |= ALLOWED[row.op](*(a.astype(np.float64) for a in args))
    if device == "webgpu" and any(d.name == "f16" for d in (*row.args, row.result)):  # kept unrounded in f32
        wide = [np.asarray(a, np.float64) for a in (got, want) if a.dtype.kind != "b"]
        same |= np.any([np.abs(a) > 65000 for a in wide], axis=0)
    if same.all():
        return []
    bad = np.flatnonzero(~same)
    seen = dict.fromkeys(f"({', '.join(str(a[k]) for a in args)}) -> {got[k]}, not {want[k]}" for k in bad)
    return [f"{row.name} on {device}: {'; '.join(list(seen)[:8])} ({len(seen)} in all)"]
