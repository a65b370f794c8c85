"""The small programs whose kernels are kept as golden texts, by name. Each is one bind as fusion leaves it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tang_edge.ir.tensor import Program
from tang_edge.ir.text import digest
from tang_edge.ir.text_parse import parse_program

PROGRAMS: dict[str, str] = {
    "bias": """\
dim n 1..4096
input x f32[n, 6]
const w0 f32[6]
bind y f32[i0 < n, i1 < 6] = max(x[i0, i1] + w0[i1], f32(0.0))
output y = y
""",
    "matmul": """\
dim n 1..64
input x f32[n, 16]
const w0 f32[16, 8]
const w1 f32[8]
bind y f32[i0 < n, i1 < 8] = sum.f32(r0_0 < 16: x[i0, r0_0] * w0[r0_0, i1]) + w1[i1]
output y = y
""",
    "conv": """\
dim h 1..64
dim w 1..64
input x f32[1, 4, h, w]
const w0 f32[4, 4, 3, 3]
bind y f32[i0 < 1, i1 < 4, i2 < h, i3 < w] = sum.f32(r0_0 < 4, r0_1 < 3, r0_2 < 3: x[i0, r0_0, i2 + r0_1 - 1, i3 + r0_2 - 1 \
| i2 + r0_1 - 1 >= 0, h - i2 - r0_1 >= 0, i3 + r0_2 - 1 >= 0, w - i3 - r0_2 >= 0 else 0.0] * w0[i1, r0_0, r0_1, r0_2])
output y = y
""",
    "depthwise": """\
dim h 1..64
input x f32[1, 8, h, 7]
const w0 f32[8, 3, 3]
bind t f32[i0 < 1, i1 < 8, i2 < h, i3 < 7] = max(sum.f32(r0_0 < 3, r0_1 < 3: x[i0, i1, i2 + r0_0 - 1, i3 + r0_1 - 1 \
| i2 + r0_0 - 1 >= 0, h - i2 - r0_0 >= 0, i3 + r0_1 - 1 >= 0, 7 - i3 - r0_1 >= 0 else 0.0] * w0[i1, r0_0, r0_1]), f32(0.0))
output y = t
""",
    "pool": """\
input x f32[1, 3, 9, 9]
bind y f32[i0 < 1, i1 < 3, i2 < 5, i3 < 5] = max.f32(r0_0 < 2, r0_1 < 2: x[i0, i1, 2*i2 + r0_0, 2*i3 + r0_1 \
| 8 - 2*i2 - r0_0 >= 0, 8 - 2*i3 - r0_1 >= 0 else -inf])
output y = y
""",
    "softmax": """\
dim n 1..64
input x f32[n, 10]
bind y f32[i0 < n, i1 < 10] = exp(x[i0, i1] - max.f32(r0_0 < 10: x[i0, r0_0])) \
/ sum.f32(r1_0 < 10: exp(x[i0, r1_0] - max.f32(r0_0 < 10: x[i0, r0_0])))
output y = y
""",
    "gather": """\
input x f32[5, 3]
input k i32[4]
bind y f32[i0 < 4, i1 < 3] = x[[max(min(k[i0], idx.i32(4)), i32(0)) in 0..4], i1]
output y = y
""",
    "argmax": """\
dim n 1..64
input x f32[n, 7]
bind y i64[i0 < n] = argmax.f32(r0_0 < 7: x[i0, r0_0], idx(r0_0)).1
output y = y
""",
    "concat": """\
dim n 1..64
input x f32[n, 3]
input z f32[n, 2]
alloc y f32[n, 5]
bind a f32[i0 < n, i1 < 3] -> y[i0, i1] = x[i0, i1] * f32(2.0)
bind b f32[i0 < n, i1 < 2] -> y[i0, i1 + 3] = z[i0, i1]
output y = y
""",
    "int8": """\
input x u8[2, 8]
const w0 i8[4, 8]
bind y f32[i0 < 2, i1 < 4] = f32(sum.i32(r0_0 < 8: (i32(x[i0, r0_0]) - i32(128)) * i32(w0[i1, r0_0]))) * f32(0.0125)
output y = y
""",
}


def program(name: str) -> Program:
    """The program of a name; its constants hold 0, 1, 2, ... (kernels do not depend on them)."""
    weights: dict[str, Any] = {}
    lines = []
    for line in PROGRAMS[name].splitlines():
        if line.startswith("const "):
            dt, _, _ = line.split()[2].partition("[")
            sizes = [int(n) for n in line[line.index("[") + 1 : line.index("]")].split(",")]
            kind = {"f32": np.float32, "i8": np.int8}[dt]
            data = (np.arange(int(np.prod(sizes))) % 100).astype(kind).reshape(sizes)
            weights[digest(data)] = data
            line += f" = sha256:{digest(data)}"
        lines.append(line)
    return parse_program("\n".join(["tang-ir 1", f"program {name}", *lines]) + "\n", weights)
