"""Products: MatMul, Gemm, Einsum and their integer forms."""

from __future__ import annotations

from collections.abc import Callable

from tang_edge.ir import affine, dtype
from tang_edge.ir.affine import Expr
from tang_edge.ir.scalar import Scalar, cast
from tang_edge.onnx_in.node import Node
from tang_edge.onnx_in.table import operator
from tang_edge.onnx_in.values import Value

Element = Callable[[list[Expr]], Scalar]


def matmul_shape(n: Node, a: Value, b: Value) -> tuple[list[Expr], Expr]:
    """The shape of a @ b under NumPy's rules, and the contracted extent."""
    if not a.rank or not b.rank:
        n.fail("a product with a scalar", "Use Mul")
    k = n.same(a.shape[-1], b.shape[0 if b.rank == 1 else -2])
    batch = n.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows = list(a.shape[-2:-1])
    columns = list(b.shape[-1:]) if b.rank > 1 else []
    return batch + rows + columns, k


def product(n: Node, a: Value, b: Value, ea: Element, eb: Element) -> tuple[list[Expr], Element]:
    """The shape and element of a @ b, where ea and eb give the elements of a and b."""
    shape, k = matmul_shape(n, a, b)
    batch = len(shape) - (a.rank > 1) - (b.rank > 1)

    def body(c: list[Expr]) -> Scalar:
        row = c[batch : batch + 1] if a.rank > 1 else []
        column = c[-1:] if b.rank > 1 else []
        return n.sum(
            [k],
            lambda r: ea(_own(a, c[:batch]) + row + r) * eb(_own(b, c[:batch]) + r + column),
        )

    return shape, body


def _own(v: Value, batch: list[Expr]) -> list[Expr]:
    own = max(v.rank - 2, 0)
    zero = affine.const(0)
    return [zero if m.constant == 1 else c for c, m in zip(batch[len(batch) - own :], v.shape[:own], strict=True)]


@operator("MatMul")
def _matmul(n: Node) -> None:
    a, b = n.x(0), n.x(1)
    n.emit(*product(n, a, b, lambda c: n.at(a, c), lambda c: n.at(b, c)))


def shifted(n: Node, v: Value, zero: Value | None, axis: int) -> Element:
    """The elements of an integer tensor minus its zero point (one, or one for each place of an axis), as
    i32.
    """

    def element(c: list[Expr]) -> Scalar:
        x = cast(n.at(v, c), dtype.i32)
        if zero is None:
            return x
        if zero.rank <= 1:
            own = [c[axis]] if zero.rank == 1 and zero.shape[0].constant != 1 else [affine.const(0)] * zero.rank
            return x - cast(n.at(zero, own), dtype.i32)
        return x - cast(n.pick(zero, c), dtype.i32)

    return element


@operator("MatMulInteger", since=10)
def _matmul_integer(n: Node) -> None:
    a, b = n.x(0), n.x(1)
    n.emit(*product(n, a, b, shifted(n, a, n.opt(2), -2), shifted(n, b, n.opt(3), -1)))


@operator("Gemm", since=7)
def _gemm(n: Node) -> None:
    a, b, bias = n.x(0), n.x(1), n.opt(2)
    flip_a, flip_b = bool(n.attr("transA", 0)), bool(n.attr("transB", 0))
    alpha, beta = float(n.attr("alpha", 1.0)), float(n.attr("beta", 1.0))
    rows, ka = reversed(a.shape) if flip_a else a.shape
    kb, columns = reversed(b.shape) if flip_b else b.shape
    k = n.same(ka, kb)

    def body(c: list[Expr]) -> Scalar:
        i, j = c
        total = n.sum(
            [k],
            lambda r: n.at(a, [r[0], i] if flip_a else [i, r[0]]) * n.at(b, [j, r[0]] if flip_b else [r[0], j]),
        )
        total = _scaled(total, alpha)
        return total if bias is None or beta == 0 else total + _scaled(n.pick(bias, c), beta)

    shape = [rows, columns] if bias is None else n.broadcast_shapes([rows, columns], bias.shape)
    n.emit(shape, body)


def _scaled(x: Scalar, factor: float) -> Scalar:
    return x if factor == 1.0 else factor * x


@operator("Einsum", since=12)
def _einsum(n: Node) -> None:
    values = n.all_inputs()
    terms, output = _equation(n, str(n.attr("equation")), values)
    extents: dict[str, Expr] = {}
    for term, v in zip(terms, values, strict=True):
        if len(term) != v.rank:
            n.fail(f"the equation gives {len(term)} axes to {v}")
        for label, extent in zip(term, v.shape, strict=True):
            known = extents.get(label)
            if known is None or known.constant == 1:
                extents[label] = extent
            elif extent.constant != 1:
                extents[label] = n.same(known, extent)
    summed = [label for label in extents if label not in output]

    def body(c: list[Expr]) -> Scalar:
        def lift(r: list[Expr]) -> Scalar:
            place = dict(zip(output, c, strict=True)) | dict(zip(summed, r, strict=True))
            factors = [n.pick(v, [place[label] for label in t]) for v, t in zip(values, terms, strict=True)]
            out = factors[0]
            for f in factors[1:]:
                out = out * f
            return out

        return n.sum([extents[label] for label in summed], lift) if summed else lift([])

    n.emit([extents[label] for label in output], body)


def _equation(n: Node, equation: str, values: list[Value]) -> tuple[list[list[str]], list[str]]:
    """The axis labels of each input and of the output; an ellipsis becomes the labels ...0, ...1 counted
    from the right.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    inputs = left.split(",")
    if len(inputs) != len(values):
        n.fail(f"the equation {equation!r} names {len(inputs)} inputs of {len(values)}")
    widths = [v.rank - len(t.replace("...", "")) if "..." in t else 0 for t, v in zip(inputs, values, strict=True)]
    width = max(widths)
    if arrow:
        target = right
    else:
        letters = left.replace("...", "").replace(",", "")
        once = sorted({c for c in letters if letters.count(c) == 1})
        target = ("..." if "..." in left else "") + "".join(once)

    def labels(term: str, count: int) -> list[str]:
        head, dots, tail = term.partition("...")
        return [*head, *([f"...{k}" for k in range(width - count, width)] if dots else []), *tail]

    return [labels(t, w) for t, w in zip(inputs, widths, strict=True)], labels(target, width)
