"""The interpreter against NumPy, and against itself: fast paths, chunking and contraction change nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tang_edge.errors import CompilerBug, InputError
from tang_edge.ir import affine, interp, interp_eval, scalar
from tang_edge.ir.affine import as_expr, var
from tang_edge.ir.dtype import f16, f32, f64, i8, i32, i64, u8
from tang_edge.ir.interp_contract import Named, contract
from tang_edge.ir.interp_eval import Evaluator
from tang_edge.ir.interp_read import strided
from tang_edge.ir.scalar import reduce, sum_of
from tang_edge.ir.tensor import Builder, Constraint
from tang_edge.ir.text_parse import parse_program

RNG = np.random.default_rng(0)


def run_text(body, floats="declared", keep=None, **inputs):
    return interp.run(parse_program("tang-ir 1\nprogram t\n" + body), inputs, floats=floats, keep=keep)


# ---------------------------------------------------------------- reads

affine_reads = st.tuples(st.integers(-2, 2), st.integers(-2, 2), st.integers(-4, 6), st.booleans(), st.booleans())


@settings(max_examples=200, deadline=None)
@given(affine_reads, affine_reads, st.sampled_from([(0, 6), (2, 5), (3, 3)]))
def test_strided_reads_equal_gathered_ones(first, second, window):
    i, j = var("i0", 6), var("i1", 4)
    source = RNG.normal(size=(5, 7))
    coords, guard = [], []
    for (a, b, c, low, high), n in zip((first, second), source.shape, strict=True):
        e = as_expr(i) * a + as_expr(j) * b + c
        coords.append(e)
        guard += ([e] if low else []) + ([n - 1 - e] if high else [])
    x = scalar.read("x", coords, f64, guard, scalar.const(7, f64))
    points = Evaluator({"x": source}, {}, False, [i, j])
    points.windows[i] = window
    fast = strided(source, x.view, points.windows, points.rank, {})
    try:
        slow = points.gather(x, source)
    except CompilerBug:
        assert fast is None
        return
    if fast is not None:
        full = np.empty([points.size(i), points.size(j)])
        copies = [full.copy(), full.copy()]
        for out, value in zip(copies, (fast, slow), strict=True):
            out[...] = interp_eval.aligned(value, [i, j])
        np.testing.assert_array_equal(*copies)


def test_a_read_out_of_bounds_is_an_error():
    with pytest.raises(CompilerBug, match=r"y: read out of bounds"):
        run_text("input x f32[3]\nbind y f32[i0 < 3] = x[i0 + 1]\noutput y = y", x=np.zeros(3, np.float32))
    with pytest.raises(CompilerBug, match="out of bounds"):  # the guard is too weak
        run_text(
            "input x f32[3]\nbind y f32[i0 < 5] = x[i0 - 1 | i0 - 1 >= 0 else 0.0]\noutput y = y",
            x=np.zeros(3, np.float32),
        )


def test_a_masked_prefix_reads_only_its_domain():
    x = RNG.normal(size=6).astype(np.float32)
    text = "input x f32[6]\nbind y f32[i0 < 6] = sum.f32(r0_0 < i0 + 1: x[i0 - r0_0])\noutput y = y"
    np.testing.assert_allclose(run_text(text, x=x)["y"], np.cumsum(x), rtol=1e-6)
    with pytest.raises(CompilerBug, match="out of bounds"):
        run_text(text.replace("i0 - r0_0]", "i0 - r0_0 - 1]"), x=x)


def test_nested_prefix():
    x = RNG.normal(size=5).astype(np.float32)
    text = "input x f32[5]\nbind y f32[i0 < 5] = sum.f32(r1_0 < i0 + 1: max.f32(r0_0 < r1_0 + 1: x[r0_0]))\noutput y = y"
    want = np.cumsum(np.maximum.accumulate(x.astype(float)))
    np.testing.assert_allclose(run_text(text, "f64", x=x)["y"], want)


# ---------------------------------------------------------------- reductions


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sets(st.integers(0, 4), max_size=4), min_size=2, max_size=4), st.sets(st.integers(0, 4)))
def test_contract_equals_einsum(operands, summed):
    axes = [var(f"a{k}", n) for k, n in enumerate((2, 3, 1, 4, 2))]
    rank = {a: k for k, a in enumerate(axes)}
    named = [
        Named(
            tuple(axes[k] for k in sorted(s)),
            RNG.integers(-4, 5, [int(str(axes[k].extent)) for k in sorted(s)]),
        )
        for s in operands
    ]
    sizes = {axes[k]: int(str(axes[k].extent)) for k in summed}
    ones = [np.ones(int(str(axes[k].extent)), int) for k in summed]
    letters = ["".join("abcde"[k] for k in sorted(s)) for s in operands] + ["abcde"[k] for k in summed]
    for kind in (np.float64, np.int32):
        given_ = [Named(v.axes, v.data.astype(kind)) for v in named]
        got = contract(given_, sizes, rank)
        kept = "".join("abcde"[rank[a]] for a in got.axes)
        want = np.einsum(f"{','.join(letters)}->{kept}", *(v.data for v in given_), *ones)
        np.testing.assert_array_equal(got.data, want)
        assert not set(got.axes) & set(sizes)
        assert got.data.dtype == kind


def test_integer_products_wrap():
    text = "input x i32[3]\nbind y i32[] = sum.i32(r0_0 < 3: x[r0_0] * x[r0_0])\noutput y = y"
    x = np.array([2**20, 2**30, 3], np.int32)
    want = sum(int(v) ** 2 for v in x) % 2**32
    assert run_text(text, x=x)["y"] == np.array(want).astype(np.uint32).astype(np.int32)
    text = text.replace("i32", "i8")
    assert run_text(text, x=np.array([100, 100, 1], np.int8))["y"] == np.array(20001).astype(np.int8)


def matmul_like():
    b = Builder("m")
    n = b.dim("n", 1, 64)
    b.input("x", f32, [n, 9])
    b.constant("w", RNG.normal(size=(9, 8)).astype(np.float32))
    k = var("k", 9)
    b.bind("y", [n, 8], lambda i, j: reduce(sum_of(f32), [k], b.read("x", [i, k]) * b.read("w", [k, j])))
    p = var("p", n)
    b.bind(
        "z",
        [n, n],
        lambda i, j: reduce(sum_of(f32), [k], scalar.op("abs", b.read("x", [i, k]))) - b.read("y", [j, 0]),
    )

    def prefix(i, j):
        q = var("q", as_expr(i) + 1)
        return reduce(scalar.max_of(f32), [q], b.read("z", [q, j]) + b.read("y", [q, 1]))

    b.bind("t", [n, n], prefix)
    b.bind("g", [n], lambda i: reduce(sum_of(f32), [p], b.read("t", [i, p])))
    for name in "yztg":
        b.output(name)
    return b.build()


def test_pieces_give_the_same_answer(monkeypatch):
    p = matmul_like()
    x = {"x": RNG.normal(size=(21, 9)).astype(np.float32)}
    whole = interp.run(p, x, floats="f64")
    for limit in (1, 40, 500):
        monkeypatch.setattr(interp_eval, "LIMIT", limit)
        pieces = interp.run(p, x, floats="f64")
        for name, want in whole.items():
            np.testing.assert_allclose(pieces[name], want, rtol=1e-12, atol=1e-12)


def test_a_reduction_of_a_constant_counts_its_domain():
    text = "dim n 0..9\ninput x f32[n]\nbind y f32[] = sum.f32(r0_0 < n, r0_1 < 3: f32(2.0))\noutput y = y"
    for n in (0, 1, 4):
        assert run_text(text, x=np.zeros(n, np.float32))["y"] == 6 * n
    text = text.replace("f32(2.0))", "f32(2.0) * f32(0.5))")
    assert run_text(text, x=np.zeros(4, np.float32))["y"] == 12


def test_shared_nodes_of_two_comprehensions_and_components():
    x = RNG.normal(size=(3, 7)).astype(np.float32)
    text = (
        "input x f32[3, 7]\nbind y f32[i0 < 3] where\n"
        "  %0 [r0_0 < 7] = exp(x[i0, r0_0])\n"
        "  %1 = argmax.f32(r0_0 < 7: %0, idx(r0_0))\n"
        "  = sum.f32(r0_0 < 7: %0) + %1.0 + f32(%1.1)\noutput y = y"
    )
    e = np.exp(x.astype(float))
    np.testing.assert_allclose(run_text(text, "f64", x=x)["y"], e.sum(1) + e.max(1) + e.argmax(1))


# ---------------------------------------------------------------- programs


def test_f64_is_the_reference():
    text = (
        "input x f16[4]\nconst c f32[] = [0.1]\nbind y f16[i0 < 4] = f16(f32(x[i0]) * c[] * f32(0.1))\n"
        "bind k i32[i0 < 4] = i32(y[i0] * f16(1000.0))\noutput y = y\noutput k = k"
    )
    x = np.array([1, 2, 3, np.inf], np.float16)
    wide, narrow = run_text(text, "f64", x=x), run_text(text, x=x)
    assert wide["y"].dtype == np.float64 and narrow["y"].dtype == np.float16
    np.testing.assert_array_equal(wide["y"], x.astype(float) * float(np.float32(0.1)) ** 2)
    assert wide["k"].dtype == np.int32
    assert wide["k"][3] == np.iinfo(np.int32).max


def test_keep_gives_intermediate_tensors():
    text = "input x f32[2]\nbind a f32[i0 < 2] = x[i0] + f32(1.0)\nbind y f32[i0 < 2] = a[i0]\noutput out = y"
    got = run_text(text, keep={"a", "x"}, x=np.zeros(2, np.float32))
    assert set(got) == {"a", "x", "out"}


def test_allocations_are_poisoned():
    text = "input x f32[2]\nalloc a f32[4]\nbind s f32[i0 < 2] -> a[2*i0] = x[i0]\noutput a = a"
    got = run_text(text, x=np.ones(2, np.float32))["a"]
    np.testing.assert_array_equal(got, [1, np.nan, 1, np.nan])
    with pytest.raises(CompilerBug, match="store out of bounds"):
        run_text(text.replace("2*i0]", "3*i0 + 1]"), x=np.ones(2, np.float32))


def test_input_errors():
    b = Builder("e")
    n = b.dim("n", 2, 8, 2)
    b.input("x", f32, [n, 3 * n + 1])
    b.input("z", i64, [affine.floordiv(n, 2) + 0])
    b.bind("y", [n], lambda i: b.read("x", [i, 0]))
    b.output("y")
    b.constraints.append(Constraint(n, as_expr(4), "the graph says four"))
    p = b.build()

    def arrays(n, m, k, dt=np.float32):
        return {"x": np.zeros((n, m), dt), "z": np.zeros(k, np.int64)}

    assert interp.infer_dims(p, arrays(4, 13, 2)) == {"n": 4}
    wrong = {
        "missing": {"x": np.zeros((4, 13), np.float32)},
        "dtype": arrays(4, 13, 2, np.float64),
        "size": arrays(4, 12, 2),
        "does not fit": arrays(10, 31, 5),
        "four": arrays(2, 7, 1),
        "axes": {"x": np.zeros(4, np.float32), "z": np.zeros(2, np.int64)},
    }
    for message, given_ in wrong.items():
        with pytest.raises(InputError, match=message):
            interp.run(p, given_)


# ---------------------------------------------------------------- small programs against NumPy

UNARY = {
    "exp": np.exp,
    "tanh": np.tanh,
    "floor": np.floor,
    "round": np.rint,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "sqrt": lambda v: np.sqrt(np.abs(v)),
}
BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
REDUCERS = {"sum": np.sum, "product": np.prod, "max": np.max, "min": np.min}


def softmax_body(b, tensor, n):
    """The body of a bind that takes the softmax of the rows of a tensor of n columns."""
    r = var("r", n)

    def body(i, j):
        top = reduce(scalar.max_of(f64), [r], b.read(tensor, [i, r]))
        e = scalar.op("exp", b.read(tensor, [i, r]) - top)
        return scalar.op("exp", b.read(tensor, [i, j]) - top) / reduce(sum_of(f64), [r], e)

    return body


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_random_chains(data):
    """A chain of maps, broadcasts, transposes and reductions over a matrix, next to the same in NumPy."""
    shape = [data.draw(st.integers(1, 4)) for _ in range(2)]
    b = Builder("r")
    b.input("x0", f64, shape)
    start = RNG.normal(size=shape)
    current, want = "x0", start
    for k in range(1, data.draw(st.integers(2, 5))):
        name, size = f"x{k}", list(want.shape)
        kind = data.draw(st.sampled_from(["unary", "binary", "transpose", "reduce", "flip", "softmax"]))
        if kind == "unary":
            f = data.draw(st.sampled_from(sorted(UNARY)))
            inner = (lambda v: scalar.op("abs", v)) if f == "sqrt" else (lambda v: v)
            b.bind(name, size, lambda i, j, f=f, g=inner, c=current: scalar.op(f, g(b.read(c, [i, j]))))
            want = UNARY[f](want)
        elif kind == "binary":
            f = data.draw(st.sampled_from(sorted(BINARY)))
            b.bind(name, size, lambda i, j, f=f, c=current: scalar.op(f, b.read(c, [i, j]), b.read(c, [0, j])))
            want = BINARY[f](want, want[:1])
        elif kind == "transpose":
            b.bind(name, size[::-1], lambda i, j, c=current: b.read(c, [j, i]))
            want = want.T
        elif kind == "flip":
            b.bind(name, size, lambda i, j, c=current, n=size[0]: b.read(c, [n - 1 - as_expr(i), j]))
            want = want[::-1]
        elif kind == "reduce":
            f = data.draw(st.sampled_from(sorted(REDUCERS)))
            r = var("r", size[1])
            m = getattr(scalar, f"{f}_of")(f64)
            b.bind(name, [size[0], 1], lambda i, j, c=current, m=m, r=r: reduce(m, [r], b.read(c, [i, r])))
            want = REDUCERS[f](want, axis=1, keepdims=True)
        else:
            b.bind(name, size, softmax_body(b, current, size[1]))
            e = np.exp(want - want.max(axis=1, keepdims=True))
            want = e / e.sum(axis=1, keepdims=True)
        current = name
    b.output("y", current)
    with np.errstate(all="ignore"):
        got = interp.run(b.build(), {"x0": start})["y"]
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-300)


def test_every_dtype_of_a_sum():
    for dt in (f16, f32, f64, i8, i32, i64, u8):
        b = Builder("s")
        b.input("x", dt, [50])
        k = var("k", 50)
        b.bind("y", [], lambda b=b, k=k, dt=dt: reduce(sum_of(dt), [k], b.read("x", [k])))
        b.output("y")
        x = RNG.integers(0, 20, 50).astype(dt.numpy)
        got = interp.run(b.build(), {"x": x})["y"]
        assert got.dtype == x.dtype
        assert got == x.astype(np.int64).sum().astype(dt.numpy)
