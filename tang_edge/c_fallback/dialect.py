"""C11 with the vector extensions of GCC and Clang, as a dialect table. The functions it names are in `prelude.h`."""

from __future__ import annotations

from typing import Final

from tang_edge.emit.syntax import Dialect
from tang_edge.ir import dtype

_LIBM = ["exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf"]
_INTS = [d for d in dtype.ALL if d.is_int]
_NARROW = [d for d in _INTS if d.bits < 32]  # vectors of these are loaded, compared, converted and stored


def _ops() -> dict[tuple[str, str], str]:
    # integers wrap around: signed ones are computed as unsigned, since C leaves their overflow open
    t: dict[tuple[str, str], str] = {
        ("add", "f"): "({0} + {1})",
        ("sub", "f"): "({0} - {1})",
        ("mul", "f"): "({0} * {1})",
        ("add", "i"): "(({s})(({u}){0} + ({u}){1}))",
        ("sub", "i"): "(({s})(({u}){0} - ({u}){1}))",
        ("mul", "i"): "(({s})(1u * ({u}){0} * ({u}){1}))",
        ("div", "f"): "({0} / {1})",
        ("mod", "f"): "tang_mod_{dtype}({0}, {1})",
        ("fmod", "f"): "(({s})fmod({0}, {1}))",
        ("pow", "f"): "(({s})pow((double){0}, (double){1}))",
        ("min", "*"): "TANG_MIN({0}, {1})",
        ("max", "*"): "TANG_MAX({0}, {1})",
        ("neg", "f"): "(-{0})",
        ("neg", "i"): "(({s})(0u - ({u}){0}))",
        ("abs", "f"): "(({s})fabs({0}))",
        ("sign", "f"): "({0} != {0} ? {0} : ({s})(({0} > 0) - ({0} < 0)))",
        ("lt", "*"): "({0} < {1})",
        ("le", "*"): "({0} <= {1})",
        ("eq", "*"): "({0} == {1})",
        ("ne", "*"): "({0} != {1})",
        ("and", "*"): "({0} & {1})",
        ("or", "*"): "({0} | {1})",
        ("xor", "*"): "({0} ^ {1})",
        ("not", "b"): "(!{0})",
        ("not", "i"): "(({s})~{0})",
        ("isnan", "*"): "({0} != {0})",
        ("isinf", "*"): "(fabs((double){0}) == (double)INFINITY)",
        ("sqrt", "f"): "(({s})sqrt({0}))",
        ("floor", "f"): "(({s})floor({0}))",
        ("ceil", "f"): "(({s})ceil({0}))",
        ("round", "f"): "(({s})rint({0}))",
        ("trunc", "f"): "(({s})trunc({0}))",
        ("select", "*"): "({0} ? {1} : {2})",
    }
    t |= {(name, "f"): f"tang_{name}_{{dtype}}({{0}})" for name in _LIBM}
    t |= {(name, "i"): f"tang_{name}_{{dtype}}({{0}}, {{1}})" for name in ("div", "mod", "fmod", "shl", "shr", "pow")}
    return t | {(name, "i"): f"tang_{name}_{{dtype}}({{0}})" for name in ("abs", "sign")}


def _vector_ops() -> dict[tuple[str, str], str]:
    own = ["exp", "log", "tanh", "sqrt", "floor", "ceil", "round", "trunc", "abs", "sign", "isinf"]
    t = {(name, "f"): f"tang_{name}_{{s}}({{0}})" for name in (*_LIBM, *own)}
    t |= {(name, k): f"tang_{name}_{{s}}({{0}}, {{1}})" for name in ("mod", "fmod", "pow") for k in "fi"}
    t |= {(name, "i"): f"tang_{name}_{{s}}({{0}}, {{1}})" for name in ("div", "shl", "shr")}
    t |= {(name, "i"): f"tang_{name}_{{s}}({{0}})" for name in ("abs", "sign")}
    t |= {
        ("min", "*"): "tang_min_{s}({0}, {1})",
        ("max", "*"): "tang_max_{s}({0}, {1})",
        ("mul", "i"): "(({s})(({u}){0} * ({u}){1}))",
        ("neg", "i"): "(({s})-({u}){0})",
        ("select", "*"): "tang_select_{t}({0}, {1}, {2})",
        ("not", "*"): "(~{0})",
        ("isnan", "f"): "({0} != {0})",
        ("lt", "b"): "(~{0} & {1})",
        ("le", "b"): "(~{0} | {1})",
    }
    for name, sign in (("lt", "<"), ("le", "<="), ("eq", "=="), ("ne", "!=")):
        t |= {(name, d.name): f"__builtin_convertvector({{0}} {sign} {{1}}, {{t}})" for d in _NARROW}
    return t


def _casts() -> dict[tuple[str, str], str]:
    t: dict[tuple[str, str], str] = {
        ("*", "*"): "(({t}){0})",
        ("f", "b"): "({0} != 0)",
        ("i", "b"): "({0} != 0)",
        ("vf", "f"): "__builtin_convertvector({0}, {t})",
        ("vi", "f"): "__builtin_convertvector({0}, {t})",
        ("vi", "i"): "__builtin_convertvector({0}, {t})",
        ("vb", "f"): "__builtin_convertvector(-({0}), {t})",
        ("vb", "i"): "(({t})-({0}))",
        ("vi", "b"): "({0} != 0)",
        ("vf", "b"): "({0} != 0)",
        ("vf32", "i32"): "tang_to_i32_{s}({0})",
        ("vf32", "u32"): "tang_to_u32_{s}({0})",
    }
    for f in ("f16", "f32", "f64"):
        for d in _INTS:
            lo, hi = d.limits()
            low = f"({lo + 1}LL - 1)" if lo == -(1 << 63) else f"{lo}LL"
            t[(f, d.name)] = f"TANG_SATURATE({d_type(d.name)}, {{0}}, {low}, {hi}{'ULL' if hi >= 1 << 63 else 'LL'})"
    for d in _NARROW:
        lo, hi = d.limits()
        t[("vf32", d.name)] = f"__builtin_convertvector(tang_saturate_{{s}}({{0}}, {lo}.0f, {hi}.0f), {{t}})"
        t[("v" + d.name, "bool")] = "__builtin_convertvector({0} != 0, {t})"
        t[("vbool", d.name)] = "__builtin_convertvector(-({0}), {t})"
    return t


_TYPES: Final = {
    "f16": "_Float16",
    "f32": "float",
    "f64": "double",
    "i8": "int8_t",
    "i16": "int16_t",
    "i32": "int32_t",
    "i64": "int64_t",
    "u8": "uint8_t",
    "u16": "uint16_t",
    "u32": "uint32_t",
    "u64": "uint64_t",
    "bool": "uint8_t",
}


def d_type(name: str) -> str:
    """The C type of a dtype."""
    return _TYPES[name]


C: Final = Dialect(
    name="C",
    types=_TYPES,
    integer="long",
    vector="v{lanes}{dtype}",
    ops=_ops(),
    vector_ops=_vector_ops(),
    casts=_casts(),
    literals={
        "f": "(({t}){value})",
        "i": "(({t}){value}LL)",
        "b": "{value}",
        "inf": "(({t})INFINITY)",
        "-inf": "(({t})-INFINITY)",
        "nan": "(({t})NAN)",
    },
    let="const {t} {n} = {v};",
    let_int="const long {n} = {v};",
    declare="{t} {n} = {v};",
    assign="{n} = {v};",
    store="{b}[{i}] = {v};",
    vector_store="TANG_STORE({t}, {b} + ({i}), {v});",
    partial_store="TANG_STORE_SOME({t}, {b} + ({i}), {v}, {count});",
    strided_store="TANG_STORE_APART({t}, {b} + ({i}), {v}, {count}, {stride});",
    load="{b}[{i}]",
    vector_load="TANG_LOAD({t}, {b} + ({i}))",
    row=("const {t} *const {n} = ({guard}) ? {b} + ({base}) : {fill};",),
    row_far=("const {t} *const {n} = ({guard}) ? {b} + ({base}) : 0;",),
    row_load="{n}[{i}]",
    row_far_load="({n} ? {n}[{i}] : {fill})",
    row_vector_load="TANG_LOAD({t}, {n} + ({i}))",
    row_far_vector_load="({n} ? TANG_LOAD({t}, {n} + ({i})) : {fill})",
    row_span=4096,
    splat="TANG_SPLAT({t}, {v})",
    lanes="({t}){{{values}}}",
    extract="{v}[{k}]",
    to_mask="(-(int32_t)({v}))",
    from_mask="({v}[{k}] != 0)",
    loop="for (long {n} = {start}; {n} < {stop}; {n} += {step})",
    barrier="",
    floor_div="tang_floor_div({a}, {k})",
    floor_mod="tang_floor_mod({a}, {k})",
    minimum="tang_lesser({a}, {b})",
    maximum="tang_greater({a}, {b})",
    index_cast="(long)({v})",
    int_value="(({t})({e}))",
    wide="1LL",
)
