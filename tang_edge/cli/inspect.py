"""`tang-edge inspect`: what a bundle holds, without a device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer
from rich.markup import escape

from tang_edge.bundle import format as fmt
from tang_edge.bundle import layout, trust
from tang_edge.bundle.expr import evaluate, show
from tang_edge.bundle.read import Bundle as OpenBundle
from tang_edge.bundle.read import open_bundle
from tang_edge.cli import console, feeds, values
from tang_edge.cli.failure import naming
from tang_edge.cli.options import Bundle

EXAMPLE = """\b
Examples:
  tang-edge inspect model.tang
  tang-edge inspect model.tang --dims width=640 --steps
  tang-edge inspect model.tang --json"""

_SHOWN: Final = {"greatest": "upper bound"}


def command(
    bundle: Bundle,
    dims: Annotated[
        list[str] | None, typer.Option("--dims", metavar="NAME=SIZE,...", help="Show the memory at these sizes, too.")
    ] = None,
    steps: Annotated[bool, typer.Option("--steps", help="List the steps of every variant.")] = False,
    as_json: console.AsJson = False,
) -> None:
    """Show what a bundle holds: dimensions, inputs, memory, variants, hashes. Needs no device.

    Every member is checked against its SHA-256. Memory is shown at the least sizes, at those of the
    self-test, at typical ones (the geometric mean of each range) and at those asked for with --dims; what the greatest sizes
    would take is the upper bound.
    """
    asked = values.sizes("--dims", dims or [])
    with naming(bundle), open_bundle(bundle) as opened:
        opened.verify_all()
        facts = describe(opened, _sizes(opened.plan, asked))
    if as_json:
        console.print_json(facts)
    else:
        _show(facts, steps)


def _sizes(plan: fmt.Plan, asked: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """The sizes at which memory is shown, by what they are."""
    out = {"least": {d.name: fmt.align_up(d.min, d.multiple) for d in plan.dims}}
    out["self-test"] = dict(plan.golden[0].dims) if plan.golden else {}
    out["typical"] = _typical(plan)
    out["asked"] = feeds.dimension_values(plan, {}, asked) if asked else {}
    out["greatest"] = {d.name: d.max // d.multiple * d.multiple for d in plan.dims}
    shown: dict[str, dict[str, int]] = {}
    for name, at in out.items():
        if (at or not plan.dims) and at not in shown.values():
            shown[name] = at
    return shown


def _typical(plan: fmt.Plan) -> dict[str, int]:
    """The geometric mean of each range; nothing where the constraints do not allow these sizes together."""
    sizes = {
        d.name: max(fmt.align_up(d.min, d.multiple), math.isqrt(d.min * d.max) // d.multiple * d.multiple) for d in plan.dims
    }
    return sizes if all(evaluate(c.left, sizes) == evaluate(c.right, sizes) for c in plan.constraints) else {}


def describe(bundle: OpenBundle, sizes: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Everything that `inspect` shows, as JSON."""
    m, plan = bundle.manifest, bundle.plan
    return {
        "path": str(bundle.path),
        "name": m.name,
        "bytes": bundle.path.stat().st_size,
        "format": list(m.raw["version"]),
        "created_by": m.created_by,
        "model_sha256": m.model_sha256,
        "manifest_sha256": bundle.manifest_sha256,
        "packed_here": trust.packed_here(bundle.manifest_sha256),
        "signed": m.signed,
        "members_verified": len(bundle.names),
        **interface(plan),
        "weights": {"tensors": len(plan.constants), "bytes": layout.constant_bytes(plan)},
        "golden": [{"dims": dict(g.dims), "rtol": g.rtol, "atol": g.atol} for g in plan.golden],
        "variants": [_variant(plan, v, sizes) for v in plan.variants],
        "files": {n: {"sha256": h, "bytes": b} for n, (h, b) in sorted(m.files.items())},
    }


def interface(plan: fmt.Plan) -> dict[str, Any]:
    """What a caller must know: dimensions, constraints, inputs, outputs, states."""
    return {
        "dims": [{"name": d.name, "min": d.min, "max": d.max, "multiple": d.multiple} for d in plan.dims],
        "constraints": [{"text": f"{show(c.left)} = {show(c.right)}", "why": c.why} for c in plan.constraints],
        "inputs": [_port(p) for p in plan.inputs],
        "outputs": [_port(p) for p in plan.outputs],
        "states": [{"input": s.input, "output": s.output, "shape": _shape(s.shape), "reset": s.reset} for s in plan.states],
    }


def _shape(shape: tuple[Any, ...]) -> list[str]:
    return [show(e) for e in shape]


def _port(port: fmt.Port) -> dict[str, Any]:
    return {"name": port.name, "dtype": fmt.DTYPES[port.dtype].name, "shape": _shape(port.shape)}


def _variant(plan: fmt.Plan, v: fmt.Variant, sizes: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    steps = [s for s in fmt.flatten(v.steps) if isinstance(s, fmt.Step)]
    packed = layout.region(v.packed_slots, {}, v.id).total
    memory = {
        name: {
            "dims": dict(at),
            "arena": layout.region(v.slots, at, v.id).total,
            "packed": packed,
            "peak": layout.peak_bytes(v, at),
        }
        for name, at in sizes.items()
    }
    return {
        "id": v.id,
        "backend": v.backend,
        "class": v.device_class,
        "features": list(v.features),
        "limits": dict(v.limits),
        "kernels": len(v.kernels),
        "prologue_steps": len(fmt.flatten(v.prologue)),
        "prebuilt": dict(v.prebuilt),
        "memory": memory,
        "steps": [_step(s) for s in steps],
    }


def _step(s: fmt.Step) -> dict[str, Any]:
    alternates = [{"tag": a.tag, "kernels": [d.kernel for d in a.dispatches]} for a in s.alternates]
    return {
        "index": s.index,
        "name": s.name,
        "origin": list(s.origin),
        "shape": _shape(s.writes.shape),
        "alternates": alternates,
    }


def _show(facts: Mapping[str, Any], steps: bool) -> None:
    _show_head(facts)
    show_interface(facts)
    _show_memory(facts)
    if steps:
        for v in facts["variants"]:
            _show_steps(v)


def _show_head(facts: Mapping[str, Any]) -> None:
    out = console.out
    out.print(f"[bold]{escape(facts['name'])}[/]  {console.size(facts['bytes'])}, made by {escape(facts['created_by'])}")
    where = "packed on this machine" if facts["packed_here"] else "not packed on this machine: its C needs --trust"
    signed = "signed (signatures are not verified by this version)" if facts["signed"] else "unsigned"
    out.print(f"trust       {signed}; {where}")
    out.print(f"checked     all {facts['members_verified']} members match their SHA-256")
    out.print(f"manifest    sha256 {facts['manifest_sha256']}")
    out.print(f"model       sha256 {facts['model_sha256'] or 'not recorded'}")
    w = facts["weights"]
    out.print(f"weights     {w['tensors']} tensors, {console.size(w['bytes'])}")
    tolerances = ", ".join(f"{g['rtol']:.1g}" for g in facts["golden"])
    out.print(f"self-test   {len(facts['golden'])} vectors" + (f", relative tolerance {tolerances}" if tolerances else ""))


def show_interface(facts: Mapping[str, Any]) -> None:
    """Print what `interface` gives."""
    out = console.out
    for d in facts["dims"]:
        multiple = f", a multiple of {d['multiple']}" if d["multiple"] > 1 else ""
        out.print(f"dimension   {escape(d['name'])} in {d['min']}..{d['max']}{multiple}")
    for c in facts["constraints"]:
        out.print(f"constraint  {escape(c['text'])} ({escape(c['why'])})")
    for kind in ("input", "output"):
        for p in facts[f"{kind}s"]:
            out.print(f"{kind:<11} {escape(p['name'])}: {p['dtype']} ({', '.join(map(escape, p['shape']))})")
    for s in facts["states"]:
        shape = ", ".join(map(escape, s["shape"]))
        out.print(f"state       {escape(s['output'])} -> {escape(s['input'])} ({shape}), starts as {s['reset']}")


def _show_memory(facts: Mapping[str, Any]) -> None:
    heads = ("variant", "steps", "kernels", "prologue", "sizes", "arena", "packed", "peak")
    rows = console.table(*heads, right=("steps", "kernels", "prologue", "arena", "packed", "peak"))
    for v in facts["variants"]:
        counts = (v["id"], str(len(v["steps"])), str(v["kernels"]), str(v["prologue_steps"]))
        for name, m in v["memory"].items():
            sizes = ", ".join(f"{k}={n}" for k, n in m["dims"].items())
            label = f"{_SHOWN.get(name, name)}: {sizes}" if sizes else "fixed"
            rows.add_row(*counts, escape(label), *(console.size(m[k]) for k in ("arena", "packed", "peak")))
            counts = ("", "", "", "")
    console.out.print()
    console.out.print(rows)
    for v in facts["variants"]:
        if v["prebuilt"]:
            console.out.print(f"prebuilt    {escape(v['id'])} for {', '.join(map(escape, v['prebuilt']))}")


def _show_steps(v: Mapping[str, Any]) -> None:
    rows = console.table("step", "writes", "shape", "kernels", "model nodes", right=("step",))
    for s in v["steps"]:
        ways = " or ".join(f"{a['tag']}: {' '.join(a['kernels'])}" for a in s["alternates"])
        shape = "x".join(s["shape"]) or "scalar"
        rows.add_row(str(s["index"]), escape(s["name"]), escape(shape), ways, escape(", ".join(s["origin"])))
    console.out.print()
    console.out.print(f"[bold]{escape(v['id'])}[/]")
    console.out.print(rows)
