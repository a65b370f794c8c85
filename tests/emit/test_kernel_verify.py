"""Each invariant of kernels: a sound kernel, and the smallest change that violates it."""

from __future__ import annotations

import pytest

from tang_edge.errors import CompilerBug
from tang_edge.ir import kernel_verify
from tang_edge.ir.kernel_parse import parse_kernel
from tang_edge.ir.kernel_verify import verify

HEAD = """\
tang-kernel 1
kernel "k" "default"
dim "n" 1..64
buffer b0 "x" f32 read
buffer b1 "i" i32 read
buffer b2 "y" f32 write
shared w0 f32 64
grid i0o < 4
lanes i0i < 16
"""
SOUND = """\
int a1 < 64 = 16*i0o + i0i
row p2 f32 b0[a1 | "n" - 1 - a1 >= 0 else 0.0] span 4
let v3 = load.f32x4(b0, 0, p2)
let v4 = load.i32(b1, a1)
index g5 < 64 = max.i32(min.i32(v4, i32(63)), i32(0))
var s6 = f32(0.0)
for k7 < 8 from 0 to 8
  store w0[i0i] = load.f32(b0, g5)
  barrier
  set s6 = add.f32(s6, mul.f32(load.f32(w0, k7), lane.f32(v3, 1)))
  barrier
end
let v8 = select.f32(lt.bool(s6, f32(1.0)), s6, cast.f32(idx.i32(a1)))
when "n" - 1 - a1 >= 0
  store b2[a1] = v8
end
store b2[4*a1] count "n" - 4*a1 = splat.f32x4(v8)
"""


def test_sound() -> None:
    verify(parse_kernel(HEAD + SOUND), legal=True)


VIOLATIONS = [
    (1, "let v4 =", "let v3 = i32(0)\nlet v4 ="),
    (1, "var s6 = f32(0.0)", "var b0 = f32(0.0)\nvar s6 = f32(0.0)"),
    (3, "mul.f32(", "lt.bool("),
    (3, "select.f32(lt.bool(s6, f32(1.0))", "select.f32(s6"),
    (3, "f32(0.0)", "i32(0)"),
    (4, "load.f32x4(b0, 0, p2)", "splat.f32x4(load.f32x4(b0, 0, p2))"),
    (4, "lane.f32(v3, 1)", "lane.f32(v3, 4)"),
    (4, "splat.f32x4(v8)", "splat.f32x3(v8)"),
    (4, "lane.f32(v3, 1)", "v3"),
    (6, "set s6 =", "set v3 ="),
    (6, "var s6 = f32(0.0)", "let s6 = f32(0.0)"),
    (7, "store b2[a1]", "store b0[a1]"),
    (7, "load.i32(b1, a1)", "load.i32(b9, a1)"),
    (7, "cast.f32(idx.i32(a1))", "cast.f32(load.i32(b0, a1))"),
    (8, "load.f32x4(b0, 0, p2)", "load.f32x4(b0, 1, p2)"),
    (8, "load.f32x4(b0, 0, p2)", "load.f32x4(b0, 0, p9)"),
    (9, "for k7 < 8 from 0 to 8", "for k7 < 8 from 0 to 8 by 0"),
    (10, "for k7 < 8 from 0 to 8", "for k7 < 8 from 0 to i0i"),
    (10, "for k7 < 8 from 0 to 8", "for k7 < 8 from g5 to 8"),
    (11, "= load.f32(b0, g5)\n  barrier", "= load.f32(b0, g5)"),
    (11, "lane.f32(v3, 1)))\n  barrier", "lane.f32(v3, 1)))"),
    (12, "max.i32(min.i32(v4, i32(63)), i32(0))", "max.i32(min.i32(v4, i32(64)), i32(0))"),
    (12, "max.i32(min.i32(v4, i32(63)), i32(0))", "min.i32(v4, i32(63))"),
    (13, "load.f32(w0, k7)", "load.f32(w0, k7 + 64)"),
    (14, "= splat.f32x4(v8)", "= v8"),
]


@pytest.mark.parametrize(("number", "old", "new"), VIOLATIONS)
def test_violated(number: int, old: str, new: str) -> None:
    assert old in SOUND
    with pytest.raises(CompilerBug, match=f"^here: kernel invariant {number}: "):
        verify(parse_kernel(HEAD + SOUND.replace(old, new, 1)), legal=True, where="here")


def test_a_barrier_under_a_guard_of_lanes() -> None:
    text = SOUND.replace("  store b2[a1] = v8\n", "  store b2[a1] = v8\n  barrier\n")
    with pytest.raises(CompilerBug, match="kernel invariant 10"):
        verify(parse_kernel(HEAD + text))


def test_names_end_with_their_block() -> None:
    """A local of a loop is not known behind it: built by hand, since the parser would refuse the text."""
    k = parse_kernel(HEAD + SOUND)
    loop = next(s for s in k.body if type(s).__name__ == "For")
    late = type(k)(k.key, k.buffers, k.shared, k.grid, k.lanes, (*loop.body, *k.body), k.tag)  # type: ignore[attr-defined]
    with pytest.raises(CompilerBug, match="kernel invariant 2"):
        verify(late)


def test_nothing_stored() -> None:
    with pytest.raises(CompilerBug, match="kernel invariant 15"):
        verify(parse_kernel(HEAD + "barrier\n"))


def test_unproved_lists_what_may_leave_its_range() -> None:
    assert kernel_verify.unproved(parse_kernel(HEAD + SOUND)) == ()
    text = SOUND.replace("int a1 < 64 = 16*i0o", "int a1 < 60 = 16*i0o").replace("load.f32(w0, k7)", "load.f32(w0, 10*k7)")
    found = kernel_verify.unproved(parse_kernel(HEAD + text))
    assert len(found) == 2 and "a1" in found[0] and "w0" in found[1]
