"""The text form of kernels: what is printed reads back, before and after legalizing; errors name the line."""

from __future__ import annotations

import pytest
import random_nets

from tang_edge.emit.legalize import legalize
from tang_edge.ir.kernel import Kernel
from tang_edge.ir.kernel_parse import parse_kernel
from tang_edge.ir.kernel_text import print_kernel
from tang_edge.ir.kernel_verify import verify
from tang_edge.ir.text_lex import TextError
from tang_edge.rewrite.pipeline import optimize
from tang_edge.schedule import choose, variant
from tang_edge.schedule.limits import CLASSES

SMALL = """\
tang-kernel 1
kernel "" "default"
dim "n" 1..64
buffer b0 "x" f32 read
buffer b1 "y" f32 write
grid i0 < "n"
row p1 f32 b0[i0 | "n" - i0 - 2 >= 0 else -inf] span 2
var s1 = f32(nan)
for k2 < 2 from 0 to 2
  set s1 = max.f32(s1, load.f32(b0, k2, p1))
end
when "n" - i0 - 3 >= 0
  store b1[i0] = s1
else
  store b1[i0] = select.f32(holds(i0 - 1 >= 0), f32(-0.0), cast.f32(idx.i64(3*i0)))
end
"""


def kernels(seed: int, name: str) -> list[Kernel]:
    """All kernels of a random program for a class."""
    v = variant.build(optimize(random_nets.make(seed, halves=False)), CLASSES[name], choose.Defaults((), None))
    return [k for s in [*v.prologue, *variant.flat(v.steps)] for a in s.alternates for k in a.kernels]


@pytest.mark.parametrize("name", ["browser", "cpu-generic", "cpu-x86-64-v4"])
@pytest.mark.parametrize("seed", range(12))
def test_reads_back(seed: int, name: str) -> None:
    for k in kernels(seed, name):
        for one in (k, legalize(k, CLASSES[name])):
            text = print_kernel(one)
            again = parse_kernel(text)
            assert again == one
            assert print_kernel(again) == text
            verify(again, legal=one is not k)


def test_small() -> None:
    k = parse_kernel(SMALL)
    verify(k)
    assert print_kernel(k) == SMALL


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tang-kernel 1", "tang-kernel 2", "line 1: this reads version 1"),
        ("max.f32(s1", "maxi.f32(s1", "line 10: unknown operator 'maxi'"),
        ("f32(nan)", "f31(nan)", "line 8: unknown type 'f31'"),
        ("f32 write", "f32 wrote", "line 5: expected read or write"),
        ("= s1", "= s7", "line 13: s7 is not known here"),
        ("b1[i0] = s1", "b1[i7] = s1", "line 13: unknown axis or dimension 'i7'"),
        ("set s1", "put s1", "line 10: unknown statement 'put'"),
        ("f32(b0, k2, p1))\nend", "f32(b0, k2, p1))", "line 15: expected end after this line"),
    ],
)
def test_errors_name_the_line(old: str, new: str, message: str) -> None:
    with pytest.raises(TextError, match=message.replace("(", r"\(")):
        parse_kernel(SMALL.replace(old, new, 1))
