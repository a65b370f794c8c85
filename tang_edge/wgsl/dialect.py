"""WGSL (W3C, WebGPU Shading Language) as a dialect table.

Whatever may meet NaN, infinity or the ends of an integer type is a function of `functions`; NaN and infinities are locals that
`functions.needed` makes from bits. There are no 8-, 16- and 64-bit integers: `legalize` has replaced them by i32.
"""

from __future__ import annotations

from typing import Final

from tang_edge.emit.syntax import Dialect

_BUILTIN = [
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "sinh",
    "sqrt",
    "floor",
    "ceil",
    "round",
    "trunc",
    "abs",
]
_OWN = ["isnan", "isinf", "sign", "exp", "log", "cosh", "asinh", "acosh", "atanh", "atan", "tanh", "erf"]  # of `functions`
_OWN_BINARY = ["min", "max", "mod", "fmod", "pow"]
_OWN_INTEGER = ["div", "mod", "fmod", "shl", "shr", "pow"]


def _ops() -> dict[tuple[str, str], str]:
    t: dict[tuple[str, str], str] = {
        ("add", "*"): "({0} + {1})",
        ("sub", "*"): "({0} - {1})",
        ("mul", "*"): "({0} * {1})",
        ("div", "f"): "({0} / {1})",
        ("div literal", "i"): "({0} / {1})",
        ("fmod literal", "i"): "({0} % {1})",
        ("min literal", "f"): "tang_at_most({0}, {1})",
        ("max literal", "f"): "tang_at_least({0}, {1})",
        ("min", "i"): "min({0}, {1})",
        ("max", "i"): "max({0}, {1})",
        ("neg", "f"): "(-{0})",
        ("neg", "i"): "({s}(0) - {0})",
        ("lt", "*"): "({0} < {1})",
        ("le", "*"): "({0} <= {1})",
        ("eq", "*"): "({0} == {1})",
        ("lt", "b"): "(!{0} & {1})",
        ("le", "b"): "(!{0} | {1})",
        ("ne", "f"): "(!({0} == {1}))",  # true with NaN: compilers make of != an ordered comparison
        ("ne", "*"): "({0} != {1})",
        ("and", "*"): "({0} & {1})",
        ("or", "*"): "({0} | {1})",
        ("xor", "b"): "({0} != {1})",
        ("xor", "i"): "({0} ^ {1})",
        ("not", "b"): "(!{0})",
        ("not", "i"): "(~{0})",
        ("abs", "i"): "abs({0})",
        ("sign", "i"): "sign({0})",
        ("sign", "u32"): "min({0}, {s}(1))",
        ("select", "*"): "select({2}, {1}, {0})",
    }
    t |= {(name, "f"): name + "({0})" for name in _BUILTIN}
    return t | _own("")


def _own(s: str) -> dict[tuple[str, str], str]:
    """Operators that are functions of our own, with the suffix of scalars or vectors."""
    t = {(name, "f"): f"tang_{name}{s}({{0}})" for name in _OWN}
    t |= {(name, "f"): f"tang_{name}{s}({{0}}, {{1}})" for name in _OWN_BINARY}
    return t | {(name, "i"): f"tang_{name}_{{dtype}}{s}({{0}}, {{1}})" for name in _OWN_INTEGER}


def _casts() -> dict[tuple[str, str], str]:
    t = {("*", "*"): "{t}({0})", ("i", "b"): "({0} != {s}(0))", ("vi", "b"): "({0} != {s}(0))"}
    for prefix, s in (("", ""), ("v", "_4")):
        t[prefix + "f", "b"] = "(!({0} == {s}(0.0)))"
        t |= {(prefix + "f32", d): f"tang_to_{d}{s}({{0}})" for d in ("i32", "u32")}
    return t


WGSL: Final = Dialect(
    name="WGSL",
    types={"f32": "f32", "f16": "f16", "i32": "i32", "u32": "u32", "bool": "bool"},
    integer="i32",
    vector="vec{lanes}<{type}>",
    ops=_ops(),
    vector_ops=_own("_4")
    | {
        ("min literal", "f"): "tang_at_most_4({0}, {1})",
        ("max literal", "f"): "tang_at_least_4({0}, {1})",
    },
    casts=_casts(),
    literals={
        "f": "{t}({value})",
        "i": "{t}({value})",
        "b": "{value}",
        "inf": "{t}(tang_inf)",
        "-inf": "{t}(tang_minus_inf)",
        "nan": "{t}(tang_nan)",
    },
    let="let {n}: {t} = {v};",
    let_int="let {n}: i32 = {v};",
    declare="var {n}: {t} = {v};",
    assign="{n} = {v};",
    store="{b}[{i}] = {v};",
    vector_store="{b}[({i}) >> 2u] = {v};",
    partial_store="",
    strided_store="",
    load="{b}[{i}]",
    vector_load="{b}[({i}) >> 2u]",
    row=(),
    row_far=("let {n}_in: bool = {guard};", "let {n}: i32 = select(0, {base}, {n}_in);"),
    row_load="",
    row_far_load="select({fill}, {b}[{n} + {i}], {n}_in)",
    row_vector_load="",
    row_far_vector_load="select({fill}, {b}[({n} + {i}) >> 2u], {n}_in)",
    row_span=-1,
    splat="{t}({v})",
    lanes="{t}({values})",
    extract="{v}[{k}]",
    to_mask="{v}",
    from_mask="{v}[{k}]",
    loop="for (var {n}: i32 = {start}; {n} < {stop}; {n} += {step})",
    barrier="workgroupBarrier();",
    floor_div="tang_floor_div({a}, {k})",
    floor_mod="tang_floor_mod({a}, {k})",
    minimum="min({a}, {b})",
    maximum="max({a}, {b})",
    index_cast="i32({v})",
    int_value="{t}({e})",
)
