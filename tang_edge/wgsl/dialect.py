"""WGSL (W3C, WebGPU Shading Language) as a dialect table.

WGSL promises nothing about NaN and infinity (section "Floating Point Evaluation"), so infinities are spelled as the greatest
finite values and tests work on bits. There are no 8-, 16- and 64-bit integers: `legalize` has replaced them by i32.
"""

from __future__ import annotations

from typing import Final

from tang_edge.emit.syntax import Dialect

_FUNCTIONS = [
    "exp",
    "log",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
    "sqrt",
    "floor",
    "ceil",
    "round",
    "trunc",
    "abs",
    "sign",
]


def _ops() -> dict[tuple[str, str], str]:
    t: dict[tuple[str, str], str] = {
        ("add", "*"): "({0} + {1})",
        ("sub", "*"): "({0} - {1})",
        ("mul", "*"): "({0} * {1})",
        ("div", "*"): "({0} / {1})",
        ("mod", "f"): "({0} - {1} * floor({0} / {1}))",
        ("mod", "i"): "((({0} % {1}) + {1}) % {1})",
        ("fmod", "*"): "({0} % {1})",
        ("pow", "f"): "tang_pow({0}, {1})",
        ("min", "*"): "min({0}, {1})",
        ("max", "*"): "max({0}, {1})",
        ("neg", "*"): "(-{0})",
        ("lt", "*"): "({0} < {1})",
        ("le", "*"): "({0} <= {1})",
        ("eq", "*"): "({0} == {1})",
        ("ne", "*"): "({0} != {1})",
        ("and", "*"): "({0} & {1})",
        ("or", "*"): "({0} | {1})",
        ("xor", "b"): "({0} != {1})",
        ("xor", "i"): "({0} ^ {1})",
        ("not", "b"): "(!{0})",
        ("not", "i"): "(~{0})",
        ("shl", "*"): "({0} << u32({1}))",
        ("shr", "*"): "({0} >> u32({1}))",
        ("isnan", "f"): "((bitcast<u32>({0}) & 0x7fffffffu) > 0x7f800000u)",
        ("isinf", "f"): "((bitcast<u32>({0}) & 0x7fffffffu) == 0x7f800000u)",
        ("tanh", "f"): "tanh(clamp({0}, {s}(-16.0), {s}(16.0)))",
        ("erf", "f"): "tang_erf({0})",
        ("select", "*"): "select({2}, {1}, {0})",
    }
    t |= {(name, "f"): name + "({0})" for name in _FUNCTIONS}
    t |= {("abs", "i"): "abs({0})", ("sign", "i"): "sign({0})"}
    return t


# Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26, has 1.5e-7 absolute error: too much near 0, where the
# series 2/sqrt(pi) (x - x^3/3 + x^5/10 - ...) takes over.
HELPERS: Final = """\
fn tang_erf(x: f32) -> f32 {
  let a = abs(x);
  let q = x * x;
  let near = x * (1.12837917 + q * (-0.376126389 + q * (0.112837917 + q * (-0.0268661706 + q * (0.00522397762
    + q * (-0.000854832702 + q * (0.000120552909 + q * (-0.0000149256503 + q * 0.00000164621137))))))));
  let t = 1.0 / (1.0 + 0.3275911 * a);
  let tail = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  let far = sign(x) * (1.0 - tail * exp(-min(q, 80.0)));
  return select(far, near, a < 0.9);
}
fn tang_pow(x: f32, y: f32) -> f32 {
  let m = pow(abs(x), y);
  let odd = (i32(floor(abs(y))) & 1) == 1;
  return select(m, -m, (x < 0.0) && odd);
}
"""

_LIMITS = {"i32": ("-2147483648.0", "2147483520.0"), "u32": ("0.0", "4294967040.0")}


def _casts() -> dict[tuple[str, str], str]:
    t = {("*", "*"): "{t}({0})", ("f", "b"): "({0} != {s}(0.0))", ("i", "b"): "({0} != {s}(0))"}
    # saturates; NaN gives 0 (where the driver keeps NaNs: WGSL promises nothing about them)
    form = "{{t}}(clamp(select({{s}}(0.0), {{0}}, {{0}} == {{0}}), {{s}}({lo}), {{s}}({hi})))"
    t |= {("f32", d): form.format(lo=lo, hi=hi) for d, (lo, hi) in _LIMITS.items()}
    return t


WGSL: Final = Dialect(
    name="WGSL",
    types={"f32": "f32", "f16": "f16", "i32": "i32", "u32": "u32", "bool": "bool"},
    integer="i32",
    vector="vec{lanes}<{type}>",
    ops=_ops(),
    vector_ops={
        ("isnan", "f"): "((bitcast<vec{lanes}<u32>>({0}) & vec{lanes}<u32>(0x7fffffffu)) > vec{lanes}<u32>(0x7f800000u))",
        ("isinf", "f"): "((bitcast<vec{lanes}<u32>>({0}) & vec{lanes}<u32>(0x7fffffffu)) == vec{lanes}<u32>(0x7f800000u))",
        ("erf", "f"): "vec4<f32>(tang_erf({0}.x), tang_erf({0}.y), tang_erf({0}.z), tang_erf({0}.w))",
        (
            "pow",
            "f",
        ): "vec4<f32>(tang_pow({0}.x, {1}.x), tang_pow({0}.y, {1}.y), tang_pow({0}.z, {1}.z), tang_pow({0}.w, {1}.w))",
        ("shl", "*"): "({0} << vec{lanes}<u32>({1}))",
        ("shr", "*"): "({0} >> vec{lanes}<u32>({1}))",
    },
    casts=_casts(),
    literals={
        "f": "{t}({value})",
        "i": "{t}({value})",
        "b": "{value}",
        "inf": "3.4028234663852886e38",
        "-inf": "-3.4028234663852886e38",
        "nan": "bitcast<f32>(tang_nan)",
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
    loop="for (var {n}: i32 = {start}; {n} < {stop}; {n} += {step})",
    barrier="workgroupBarrier();",
    floor_div="tang_floor_div({a}, {k})",
    floor_mod="tang_floor_mod({a}, {k})",
    minimum="min({a}, {b})",
    maximum="max({a}, {b})",
    index_cast="i32({v})",
    int_value="{t}({e})",
)

INTEGERS: Final = """\
fn tang_floor_div(a: i32, k: i32) -> i32 { return a / k - select(0, 1, a % k < 0); }
fn tang_floor_mod(a: i32, k: i32) -> i32 { let r = a % k; return select(r, r + k, r < 0); }
"""
