"""64-bit integers in 32 bits: what is proved to fit is kept, what is not is refused with the node's name."""

from __future__ import annotations

import pytest

from tang_edge.emit.legalize import legalize
from tang_edge.errors import TargetLimit
from tang_edge.ir.kernel_parse import parse_kernel
from tang_edge.schedule.limits import CLASSES

HEAD = """\
tang-kernel 1
kernel "" "points"
dim "n" 1..64
buffer b0 "x" i32 read
buffer b1 "y" i32 write
lanes i0 < 64
"""
SOUND = {
    "index from the end": """\
let v1 = load.i64(b0, i0)
let v2 = lt.bool(v1, i64(0))
let v3 = add.i64(v1, i64(100))
let v4 = select.i64(v2, v3, v1)
store b1[i0] = v4
""",
    "count": """\
var s1 = i64(0)
for k2 < "n" from 0 to "n"
  for k3 < 8 from 0 to 8
    let v4 = lt.bool(load.i64(b0, k2), i64(3))
    let v5 = cast.i64(v4)
    set s1 = add.i64(s1, v5)
  end
end
store b1[i0] = s1
""",
}
REFUSED = {
    "sum of anything": ("cast.i64(v4)", "load.i64(b0, k3)"),
    "no bound on the loop": ('for k2 < "n" from 0 to "n"', "for k2 < 4000000000 from 0 to 4000000000"),
    "the sum itself": ("store b1[i0] = v4", "store b1[i0] = v3"),
    "other test": ("lt.bool(v1, i64(0))", "lt.bool(v1, i64(5))"),
    "other value": ("select.i64(v2, v3, v1)", "select.i64(v2, v3, i64(0))"),
}


@pytest.mark.parametrize("name", SOUND)
def test_kept(name: str) -> None:
    legalize(parse_kernel(HEAD + SOUND[name]), CLASSES["browser"])


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    old, new = REFUSED[name]
    text = next(t for t in SOUND.values() if old in t).replace(old, new)
    with pytest.raises(TargetLimit, match=r"^Gather 'g': 64-bit integers may exceed 32 bits"):
        legalize(parse_kernel(HEAD + text), CLASSES["browser"], "Gather 'g'")
