"""`tang-edge bisect`: the first tensor on a device that departs from the float64 interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from tang_edge import runtime
from tang_edge.cli import console, feeds, values
from tang_edge.cli.failure import BUG, naming, needs_compiler
from tang_edge.cli.options import AllowNan, Bundle, Device, Inputs, Model, Seed, Sizes, Threads, Trust

if TYPE_CHECKING:
    from tang_edge.cli.departures import Finding, Verdict
    from tang_edge.runtime import Model as Loaded

EXAMPLE = """\b
Examples:
  tang-edge bisect model.tang model.onnx
  tang-edge bisect ocr.tang ocr.onnx --device webgpu --dims width=320
  tang-edge bisect model.tang model.onnx --input x=real.npy --all

\b
Exit codes: 0 every tensor agrees, 4 one departs (a bug of tang-edge, or of a driver).
Quantised nets: an integer may differ by 1 where the float before it lies near a tie."""


def command(
    bundle: Bundle,
    model: Model,
    input: Inputs = None,
    dims: Sizes = None,
    device: Device = "auto",
    threads: Threads = None,
    trust: Trust = False,
    seed: Seed = 0,
    slack: Annotated[float, typer.Option("--slack", metavar="X", min=0, help="Multiplies every tolerance.")] = 1.0,
    every: Annotated[bool, typer.Option("--all", help="Go on after the first departure; list every tensor.")] = False,
    allow_nan: AllowNan = False,
    as_json: console.AsJson = False,
) -> None:
    """Compare every tensor on the device with the float64 interpreter; name the first that departs.

    The interpreter runs the model as it was read, unfused. The self-test is left out, so that no kernel is
    replaced by a safer one.
    """
    given, sizes = feeds.files("--input", input or []), values.sizes("--dims", dims or [])
    with needs_compiler():
        from tang_edge.cli import departures
    with naming(bundle), console.progress(as_json) as stage:
        stage("load", 0, 1)
        with runtime.load(bundle, device=device, threads=threads, trust=trust, self_test=False) as loaded:
            arrays, solved = feeds.gather(loaded.plan, given, sizes, seed)
            reference = departures.Reference(bundle, model, loaded.plan, arrays, solved, allow_nan, stage)
            verdict = departures.search(loaded, arrays, reference, slack, every, stage)
            facts = _facts(loaded, solved, verdict)
    if as_json:
        console.print_json(facts)
    else:
        _show(facts, verdict, every)
    if verdict.first is not None:
        raise typer.Exit(BUG)


def _facts(loaded: Loaded, sizes: dict[str, int], verdict: Verdict) -> dict[str, Any]:
    r = loaded.report
    first = verdict.first
    return {
        "device": r.device,
        "adapter": r.adapter,
        "variant": r.variant,
        "dims": sizes,
        "steps": len(loaded.steps),
        "compared": sum(f.tolerance is not None for f in verdict.findings),
        "skipped": [{"name": f.name, "why": f.why} for f in verdict.findings if f.tolerance is None],
        "first": None if first is None else asdict(first),
        "fault": verdict.fault,
        "findings": [asdict(f) for f in verdict.findings],
    }


def _show(facts: dict[str, Any], verdict: Verdict, every: bool) -> None:
    out = console.out
    out.print(f"device     {facts['device']}: {escape(facts['adapter'])}, variant {escape(facts['variant'])}")
    if facts["dims"]:
        out.print("sizes      " + ", ".join(f"{k}={n}" for k, n in facts["dims"].items()))
    out.print(f"compared   {facts['compared']} of {facts['steps']} steps")
    for f in verdict.findings:
        if f.tolerance is None:
            out.print(f"skipped    step {f.step} {escape(f.name)}: {escape(f.why)}", style="dim")
    if every:
        _show_all(verdict.findings)
    if verdict.first is None:
        worst = max((f.ratio for f in verdict.findings), default=0.0)
        out.print(f"[bold green]every tensor agrees[/], the largest error is {worst:.2g} of its tolerance")
        return
    _show_first(verdict.first, verdict.fault)


def _show_first(f: Finding, fault: str) -> None:
    out = console.out
    out.print(f"\n[bold red]departs[/]    step {f.step}: {escape(f.name)} {f.dtype}{list(f.shape)}")
    out.print(f"from       {escape(', '.join(f.origin)) or 'no model node'}")
    out.print(f"kernels    {escape(', '.join(f.kernels))}")
    out.print(f"worst at   {list(f.worst)}: {f.have!r} on the device, {f.wanted!r} in the interpreter")
    out.print(f"tolerance  {f.tolerance:.2g}; the error is {f.ratio:.3g} times that, {f.wrong} of {f.count} elements are off")
    out.print(f"fault      {escape(fault)}")
    out.print("Please report this, with this text and the output of 'tang-edge doctor'.")


def _show_all(findings: Sequence[Finding]) -> None:
    rows = console.table("step", "tensor", "error/tolerance", "worst at", "model nodes", right=("step", "error/tolerance"))
    for f in findings:
        style = "red" if f.ratio > 1 else ""
        where = ",".join(map(str, f.worst))
        rows.add_row(str(f.step), escape(f.name), f"{f.ratio:.3g}", where, escape(", ".join(f.origin)), style=style)
    console.out.print(rows)
