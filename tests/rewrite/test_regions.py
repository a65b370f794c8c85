"""Concatenation in place."""

from __future__ import annotations

from tang_edge.ir import scalar
from tang_edge.ir.affine import as_expr
from tang_edge.ir.dtype import f32
from tang_edge.ir.scalar import op
from tang_edge.ir.tensor import Alloc


def stores(found) -> dict[str, str]:
    return {b.name: f"{b.store.tensor}[{', '.join(map(str, b.store.coords))}]" for b in found.steps if b.store}


def test_reductions_store_their_regions_and_other_readers_follow(net, checked) -> None:
    a, b = net.relu("a", net.conv("ca", "x", 2)), net.conv("b", "x", 3, 1)
    cat = net.concat("cat", [a, b], 1)
    net.output("y", net.conv("y", cat, 2))
    net.output("z", net.map("z", lambda v: v * 2.0, a))
    found = checked(net.build())
    assert stores(found) == {"a": "cat[0, i1, i2, i3]", "b": "cat[0, i1 + 2, i2, i3]"}
    z = next(b for b in found.steps if b.name == "z")
    assert {r.tensor for r in scalar.reads(z.expr)} == {"cat"}


def test_nested_concatenations_compose(net, checked) -> None:
    inner = net.concat("inner", [net.conv("a", "x", 2), net.conv("b", "x", 3)], 1)
    net.output("y", net.concat("outer", [net.conv("c", "x", 1), inner], 1))
    found = checked(net.build())
    assert stores(found) == {
        "c": "outer[0, 0, i2, i3]",
        "a": "outer[0, i1 + 1, i2, i3]",
        "b": "outer[0, i1 + 3, i2, i3]",
    }
    assert sum(isinstance(i, Alloc) for i in found.program.items) == 1


def test_an_input_and_a_repeated_piece_are_copied(net, checked) -> None:
    c = net.conv("c", "x", 4)
    net.output("y", net.conv("y", net.concat("cat", ["x", c, c], 1), 1))
    assert sorted(stores(checked(net.build()))) == ["c", "cat.0", "cat.2"]


def test_a_transposed_piece_is_stored_through_the_inverse(net, checked) -> None:
    flat = []
    for k in range(2):
        c = net.conv(f"c{k}", "x", 3)
        net.bind(f"f{k}", (1, 64, 3), lambda n, i, o, c=c: net.read(c, (n, o, as_expr(i) // 8, as_expr(i) % 8)))
        flat.append(f"f{k}")
    net.output("y", net.concat("y", flat, 1))
    assert stores(checked(net.build())) == {"c0": "y[0, 8*i2 + i3, i1]", "c1": "y[0, 8*i2 + i3 + 64, i1]"}


def test_rotated_halves_fuse_into_arithmetic(net, checked) -> None:
    """concat(-b, a) * c + x, as rotary embeddings do: one bind, no region."""
    z = net.input("z", f32, (2, 8))
    net.bind("a", (2, 4), lambda i, j: net.read(z, (i, j)))
    net.bind("b", (2, 4), lambda i, j: op("neg", net.read(z, (i, as_expr(j) + 4))))
    net.concat("rot", ["b", "a"], 1)
    net.output("y", net.map("y", lambda r, v: r * 0.5 + v, "rot", z))
    found = checked(net.build())
    assert [b.name for b in found.steps] == ["y"] and not stores(found)


def test_a_small_concatenation_of_inputs_is_one_bind(net, checked) -> None:
    a, b = net.input("a", f32, (2, 3)), net.input("b", f32, (2, 4))
    net.output("y", net.concat("y", [a, b], 1))
    assert [b.name for b in checked(net.build()).steps] == ["y"]
