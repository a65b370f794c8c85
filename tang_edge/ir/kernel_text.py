"""The text form of kernels: `parse_kernel(print_kernel(k)) == k`. One statement a line; blocks end with `end`.

    tang-kernel 1
    kernel "key" "default"
    dim "n" 1..64
    buffer b0 "x" f32 read
    buffer b1 "y" f32 write
    shared w0 f32 64
    grid i0o < ("n" + 63) // 64
    lanes i0i < 64
    row p2 f32 b0[64*i0o | i0i - 1 >= 0 else 0.0] span 64
    let v1 = load.f32(b0, i0i, p2)
    int a3 < 4096 = 64*i0o + i0i
    when "n" - 1 - a3 >= 0
      store b1[a3] = mul.f32(v1, f32(2.0))
    else
      barrier
    end

Values name their type: `f32x4(1.5)` is a literal of four lanes, `idx.i32(e)` an integer expression, `holds(e >= 0, ...)` a
conjunction, `splat.f32x4(v)`, `lanes.f32x4(a, b, c, d)`, `lane.f32(v, 2)`, `load.f32x4(buffer, index[, row])`; the rest are
operators of `ops.OPS`. `index g < n = v` is a LetIndex, `var s = v` a Declare, `set s = v` an Assign. Names of dimensions
are always quoted. A memory declared in vectors says `by 4`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

from tang_edge.ir import affine
from tang_edge.ir.affine import Atom, Dim, Expr
from tang_edge.ir.dtype import DType
from tang_edge.ir.kernel import (
    Assign,
    Barrier,
    Calc,
    Declare,
    Extract,
    For,
    Holds,
    Int,
    Kernel,
    Lanes,
    Let,
    LetIndex,
    LetInt,
    Lit,
    Load,
    Ref,
    Row,
    Splat,
    Statement,
    Store,
    Value,
    When,
    exprs_of,
    statements,
)
from tang_edge.ir.text import Printer, number

VERSION: Final = 1


class _Exprs(Printer):
    """Integer expressions with quoted dimensions: a local may be called like one."""

    def atom(self, a: Atom) -> str:
        if isinstance(a, Dim):
            return json.dumps(a.name) if a.multiple == 1 else f"({json.dumps(a.name)}/{a.multiple})"
        return super().atom(a)


_EXPRS: Final = _Exprs()


def print_kernel(k: Kernel) -> str:
    """The text of a kernel."""
    lines = [f"tang-kernel {VERSION}", f"kernel {json.dumps(k.key)} {json.dumps(k.tag)}"]
    for d in sorted(_dims(k), key=lambda d: d.name):
        lines.append(f"dim {json.dumps(d.name)} {d.lo}..{d.hi}" + (f" multiple {d.multiple}" if d.multiple > 1 else ""))
    for b in k.buffers:
        mode = "write" if b.writable else "read"
        lines.append(f"buffer {b.name} {json.dumps(b.tensor)} {b.dtype} {mode}{_by(b.lanes)}")
    lines += [f"shared {s.name} {s.dtype} {s.size}{_by(s.lanes)}" for s in k.shared]
    for word, axes in (("grid", k.grid), ("lanes", k.lanes)):
        if axes:
            lines.append(f"{word} {_EXPRS.axes(axes)}")
    return "\n".join([*lines, *_block(k.body, "")]) + "\n"


def _by(lanes: int) -> str:
    return f" by {lanes}" if lanes > 1 else ""


def _dims(k: Kernel) -> set[Dim]:
    found: set[Dim] = set()
    for v in (*k.grid, *k.lanes):
        found |= affine.dims(v.extent)
    for s in statements(k.body):
        for e in exprs_of(s):
            found |= affine.dims(e)
        if isinstance(s, (LetInt, LetIndex, For)):
            found |= affine.dims(s.var.extent)
    return found


def _block(body: Sequence[Statement], pad: str) -> Iterator[str]:
    for s in body:
        match s:
            case For():
                step = f" by {s.step}" if s.step != 1 else ""
                head = f"for {_EXPRS.axes((s.var,))} from {_EXPRS.expr(s.start)} to {_EXPRS.expr(s.stop)}{step}"
                yield from (pad + head, *_block(s.body, pad + "  "), pad + "end")
            case When():
                yield from (pad + f"when {_guard(s.guard)}".rstrip(), *_block(s.body, pad + "  "))
                if s.orelse:
                    yield from (pad + "else", *_block(s.orelse, pad + "  "))
                yield pad + "end"
            case _:
                yield pad + _simple(s)


def _guard(es: Sequence[Expr]) -> str:
    return ", ".join(f"{_EXPRS.expr(e)} >= 0" for e in es)


def _simple(s: Statement) -> str:
    match s:
        case Let():
            return f"let {s.name} = {value_text(s.value)}"
        case LetInt():
            return f"int {_EXPRS.axes((s.var,))} = {_EXPRS.expr(s.e)}"
        case LetIndex():
            return f"index {_EXPRS.axes((s.var,))} = {value_text(s.value)}"
        case Declare():
            return f"var {s.name} = {value_text(s.init)}"
        case Assign():
            return f"set {s.name} = {value_text(s.value)}"
        case Row():
            guard = f" | {_guard(s.guard)}" if s.guard else ""
            place = f"{s.buffer}[{_EXPRS.expr(s.base)}{guard} else {number(s.fill, s.dtype)}]"
            return f"row {s.name} {s.dtype} {place} span {s.span}"
        case Store():
            count = f" count {_EXPRS.expr(s.count)}" if s.count is not None else ""
            stride = f" stride {_EXPRS.expr(s.stride)}" if s.stride is not None else ""
            return f"store {s.buffer}[{_EXPRS.expr(s.index)}]{count}{stride} = {value_text(s.value)}"
        case Barrier():
            return "barrier"
        case For() | When():
            raise AssertionError("blocks have lines of their own")


def _type(d: DType, lanes: int) -> str:
    return d.name if lanes == 1 else f"{d.name}x{lanes}"


def value_text(v: Value) -> str:
    """The text of a value."""
    t = _type(v.dtype, v.lanes)
    match v:
        case Lit():
            return f"{t}({number(v.value, v.dtype)})"
        case Ref():
            return v.name
        case Int():
            return f"idx.{t}({_EXPRS.expr(v.e)})"
        case Holds():
            return f"holds({_guard(v.guard)})"
        case Calc():
            return f"{v.op}.{t}({', '.join(map(value_text, v.args))})"
        case Splat():
            return f"splat.{t}({value_text(v.value)})"
        case Lanes():
            return f"lanes.{t}({', '.join(map(value_text, v.values))})"
        case Extract():
            return f"lane.{t}({value_text(v.value)}, {v.lane})"
        case Load():
            row = f", {v.row}" if v.row is not None else ""
            return f"load.{t}({v.buffer}, {_EXPRS.expr(v.index)}{row})"
