"""Functions of our own that WGSL modules call: what the language leaves open for NaN, infinity and integer ends.

WGSL lets an implementation assume that NaN and infinity do not occur (W3C, section "Floating Point Evaluation"), and a literal
may not be one. So they are told and made by bits; `tang_zero` is 0, but no compiler knows it: what is made with it cannot be
folded to a constant that a fast-math optimiser would throw away.
"""

from __future__ import annotations

import re
from typing import Final

# {F} f32, {B} bool, {U} u32, {I} i32 or their vectors; {s} the suffix of the name: "" or "_4"
_FLOATS: Final = """\
fn tang_isnan{s}(x: {F}) -> {B} {{ return (bitcast<{U}>(x) & {U}(0x7fffffffu)) > {U}(0x7f800000u); }}
fn tang_isinf{s}(x: {F}) -> {B} {{ return (bitcast<{U}>(x) & {U}(0x7fffffffu)) == {U}(0x7f800000u); }}
fn tang_min{s}(a: {F}, b: {F}) -> {F} {{ return select(a, b, (b < a) | tang_isnan{s}(b)); }}
fn tang_max{s}(a: {F}, b: {F}) -> {F} {{ return select(a, b, (a < b) | tang_isnan{s}(b)); }}
fn tang_at_most{s}(x: {F}, c: {F}) -> {F} {{ return select(x, c, c < x); }}
fn tang_at_least{s}(x: {F}, c: {F}) -> {F} {{ return select(x, c, x < c); }}
fn tang_sign{s}(x: {F}) -> {F} {{ return select(sign(x), x, tang_isnan{s}(x)); }}
fn tang_exp{s}(x: {F}) -> {F} {{ return select(exp(x), x, tang_isnan{s}(x)); }}
fn tang_log{s}(x: {F}) -> {F} {{ return select(log(x), x, tang_isnan{s}(x)); }}
fn tang_cosh{s}(x: {F}) -> {F} {{ return select(cosh(x), x, tang_isnan{s}(x)); }}
fn tang_asinh{s}(x: {F}) -> {F} {{ return select(asinh(x), x, tang_isnan{s}(x)); }}
fn tang_acosh{s}(x: {F}) -> {F} {{ return select(acosh(x), x, tang_isnan{s}(x)); }}
fn tang_atanh{s}(x: {F}) -> {F} {{ return select(atanh(x), x, tang_isnan{s}(x)); }}
fn tang_atan{s}(x: {F}) -> {F} {{ return select(atan(x), x, tang_isnan{s}(x)); }}
fn tang_tanh{s}(x: {F}) -> {F} {{ return select(tanh(clamp(x, {F}(-16.0), {F}(16.0))), x, tang_isnan{s}(x)); }}
fn tang_mod{s}(x: {F}, y: {F}) -> {F} {{
  let other = ((x < {F}(0.0)) & (y > {F}(0.0))) | ((x > {F}(0.0)) & (y < {F}(0.0)));
  return select(x - y * floor(x / y), select(x, y, other), tang_isinf{s}(y) & (abs(x) <= {F}(3.4028234663852886e38)));
}}
fn tang_fmod{s}(x: {F}, y: {F}) -> {F} {{
  return select(x % y, x, tang_isinf{s}(y) & (abs(x) <= {F}(3.4028234663852886e38)));
}}
fn tang_to_i32{s}(x: {F}) -> {I} {{
  let whole = {I}(clamp(select(x, {F}(0.0), tang_isnan{s}(x)), {F}(-2147483648.0), {F}(2147483520.0)));
  return select(whole, {I}(2147483647), x >= {F}(2147483648.0));
}}
fn tang_to_u32{s}(x: {F}) -> {U} {{
  let whole = {U}(clamp(select(x, {F}(0.0), tang_isnan{s}(x)), {F}(0.0), {F}(4294967040.0)));
  return select(whole, {U}(4294967295u), x >= {F}(4294967296.0));
}}
"""

# {T} i32 or u32 or their vectors, {U} u32, {s} the suffix: "_i32", "_u32_4", ...
_INTEGERS: Final = """\
fn tang_div{s}(a: {T}, b: {T}) -> {T} {{ return select(a / b, {T}(0), b == {T}(0)); }}
fn tang_fmod{s}(a: {T}, b: {T}) -> {T} {{ return select(a % b, {T}(0), b == {T}(0)); }}
fn tang_mod{s}(a: {T}, b: {T}) -> {T} {{
  let r = tang_fmod{s}(a, b);
  return select(r, r + b, (r != {T}(0)) & ((r < {T}(0)) != (b < {T}(0))));
}}
fn tang_shl{s}(a: {T}, n: {T}) -> {T} {{
  return select({T}(0), a << ({U}(n) & {U}(31u)), {U}(n) < {U}(32u));
}}
fn tang_shr{s}(a: {T}, n: {T}) -> {T} {{ return a >> min({U}(n), {U}(31u)); }}
"""

_ALONE: Final = """\
fn tang_shr_u32(a: u32, n: u32) -> u32 { return select(0u, a >> (n & 31u), n < 32u); }
fn tang_shr_u32_4(a: vec4<u32>, n: vec4<u32>) -> vec4<u32> {
  return select(vec4<u32>(0u), a >> (n & vec4<u32>(31u)), n < vec4<u32>(32u));
}
fn tang_erf(x: f32) -> f32 {
  let a = abs(x);
  let q = x * x;
  let near = x * (1.12837917 + q * (-0.376126389 + q * (0.112837917 + q * (-0.0268661706 + q * (0.00522397762
    + q * (-0.000854832702 + q * (0.000120552909 + q * (-0.0000149256503 + q * 0.00000164621137))))))));
  let t = 1.0 / (1.0 + 0.3275911 * a);
  let tail = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  let far = sign(x) * (1.0 - tail * exp(-min(q, 80.0)));
  return select(select(far, near, a < 0.9), x, tang_isnan(x));
}
fn tang_erf_4(x: vec4<f32>) -> vec4<f32> { return vec4<f32>(tang_erf(x.x), tang_erf(x.y), tang_erf(x.z), tang_erf(x.w)); }
fn tang_pow(x: f32, y: f32) -> f32 {
  let a = abs(x);
  let n = abs(y);
  let whole = floor(n) == n;
  let odd = whole & (n < 16777216.0) & (n - 2.0 * floor(0.5 * n) == 1.0);
  let infinite = bitcast<f32>(0x7f800000u + tang_zero);
  var m = pow(a, y);
  m = select(m, select(infinite, 0.0, y > 0.0), a == 0.0);
  m = select(m, select(0.0, infinite, (a > 1.0) == (y > 0.0)), tang_isinf(y));
  m = select(m, select(0.0, infinite, y > 0.0), tang_isinf(x));
  let negative = (bitcast<u32>(x) >> 31u) == 1u;
  m = select(m, -m, negative & odd);
  m = select(m, bitcast<f32>(0x7fc00000u + tang_zero), ((x < 0.0) & !whole & !tang_isinf(x)) | tang_isnan(x) | tang_isnan(y));
  return select(m, 1.0, (y == 0.0) | (x == 1.0) | ((x == -1.0) & tang_isinf(y)));
}
fn tang_pow_4(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
  return vec4<f32>(tang_pow(x.x, y.x), tang_pow(x.y, y.y), tang_pow(x.z, y.z), tang_pow(x.w, y.w));
}
fn tang_power(a: u32, n: u32, most: u32) -> u32 {
  if (a < 2u) { return select(a, 1u, n == 0u); }
  var p = 1u;
  for (var k = 0u; k < min(n, 32u); k += 1u) {
    if (p > most / a) { return most; }
    p *= a;
  }
  return p;
}
fn tang_pow_u32(x: u32, n: u32) -> u32 { return tang_power(x, n, 0xffffffffu); }
fn tang_pow_u32_4(x: vec4<u32>, n: vec4<u32>) -> vec4<u32> {
  return vec4<u32>(tang_pow_u32(x.x, n.x), tang_pow_u32(x.y, n.y), tang_pow_u32(x.z, n.z), tang_pow_u32(x.w, n.w));
}
fn tang_pow_i32(x: i32, n: i32) -> i32 {
  let minus = (x < 0) & ((n & 1) == 1);
  if (n < 0) {
    if (x == 0) { return 2147483647; }
    return select(0, select(1, -1, minus), abs(x) == 1);
  }
  let p = tang_power(u32(abs(x)), u32(n), select(0x7fffffffu, 0x80000000u, minus));
  return select(i32(p), i32(~p + 1u), minus);
}
fn tang_pow_i32_4(x: vec4<i32>, n: vec4<i32>) -> vec4<i32> {
  return vec4<i32>(tang_pow_i32(x.x, n.x), tang_pow_i32(x.y, n.y), tang_pow_i32(x.z, n.z), tang_pow_i32(x.w, n.w));
}
fn tang_floor_div(a: i32, k: i32) -> i32 { return a / k - select(0, 1, a % k < 0); }
fn tang_floor_mod(a: i32, k: i32) -> i32 { let r = a % k; return select(r, r + k, r < 0); }
"""


def _table() -> dict[str, str]:
    """Every function by its name, in an order in which each stands after those that it calls."""
    text = []
    for s, wide in (("", "{}"), ("_4", "vec4<{}>")):
        types = {k: wide.format(t) for k, t in (("F", "f32"), ("B", "bool"), ("U", "u32"), ("I", "i32"))}
        text.append(_FLOATS.format(s=s, **types))
        for t in ("i32", "u32"):
            text.append(_INTEGERS.format(s=f"_{t}{s}", T=types[t[0].upper()], U=types["U"]))
    parts = re.split(r"^(?=fn )", "".join([*text, _ALONE]), flags=re.MULTILINE)
    return {part[3 : part.index("(")]: part.rstrip("\n") for part in parts if part}


FUNCTIONS: Final = _table()
_SPECIALS: Final = {"tang_inf": "0x7f800000u", "tang_minus_inf": "0xff800000u", "tang_nan": "0x7fc00000u"}


def needed(body: str) -> tuple[list[str], list[str]]:
    """For the lines of a module's main function: declarations in front of it, and lines at its start."""
    found = set(re.findall(r"\btang_\w+", body))
    start = [f"  let {n}: f32 = bitcast<f32>({bits} + tang_zero);" for n, bits in _SPECIALS.items() if n in found]
    waiting = sorted(found & FUNCTIONS.keys())
    called: set[str] = set()
    while waiting:
        name = waiting.pop()
        called.add(name)
        waiting += sorted((set(re.findall(r"\btang_\w+", FUNCTIONS[name])) & FUNCTIONS.keys()) - called)
    front = [text for name, text in FUNCTIONS.items() if name in called]
    if start or any("tang_zero" in text for text in front):
        front.insert(0, "var<private> tang_zero: u32;")
        start.insert(0, "  tang_zero = group.z;")  # grids have one layer
    return front, start
