"""`tang-edge run`: run a bundle on a device of this machine."""

from __future__ import annotations

import statistics
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer
from rich.markup import escape

from tang_edge import runtime
from tang_edge.cli import console, feeds, reference, values
from tang_edge.cli.failure import naming
from tang_edge.cli.options import Bundle, Device, Inputs, Seed, Sizes, Threads, Trust

EXAMPLE = """\b
Examples:
  tang-edge run model.tang
  tang-edge run ocr.tang --input x=line.png --dims width=320 --repeat 50
  tang-edge run model.tang --input feeds.npz --device c --threads 1
  tang-edge run model.tang --device c --compare-ort model.onnx --save out.npz

\b
Pictures are resized to the input's height and width (bilinear), RGB or grey by its
channels, in the layout of the input (NCHW or NHWC), and scaled to 0..1."""

Repeat = Annotated[int, typer.Option("--repeat", metavar="N", min=0, help="Runs to time, after one that does not count.")]
Save = Annotated[Path | None, typer.Option("--save", metavar="OUT.npz", help="Write the outputs.")]
CompareOrt = Annotated[Path | None, typer.Option("--compare-ort", metavar="MODEL.onnx", help="Compare with ONNX Runtime.")]
Array = npt.NDArray[Any]


def command(
    bundle: Bundle,
    input: Inputs = None,
    dims: Sizes = None,
    device: Device = "auto",
    threads: Threads = None,
    repeat: Repeat = 10,
    save: Save = None,
    compare_ort: CompareOrt = None,
    trust: Trust = False,
    seed: Seed = 0,
    as_json: console.AsJson = False,
) -> None:
    """Run a bundle: which device and why, the outputs, and how long it takes."""
    given, sizes = feeds.files("--input", input or []), values.sizes("--dims", dims or [])
    watch = console.Watch()
    with naming(bundle), console.progress(as_json) as stage:
        stage("load and self-test", 0, 1)
        with runtime.load(bundle, device=device, threads=threads, trust=trust) as model:
            loaded = watch.seconds
            arrays, solved = feeds.gather(model.plan, given, sizes, seed)
            stage("run", 0, 1)
            outputs = model.run(arrays)
            times = model.time(arrays, repeat) if repeat else []
            facts = _facts(model, outputs, times)
        if compare_ort is not None:
            stage("ONNX Runtime", 0, 1)
            agreement = reference.compare(outputs, reference.run(compare_ort, arrays))
            facts["compared"] = [asdict(a) for a in agreement]
    if save is not None:
        _save(save, outputs)
    head = {"bundle": str(bundle), "dims": solved, "load_seconds": loaded}
    result = head | {"inputs": {n: _describe(a) for n, a in arrays.items()}} | facts
    if as_json:
        console.print_json(result)
    else:
        _show(result, str(model.report))


def _facts(model: runtime.Model, outputs: Mapping[str, Array], times: Sequence[float]) -> dict[str, Any]:
    return {
        "report": asdict(model.report),
        "outputs": {n: _describe(a) for n, a in outputs.items()},
        "seconds": list(times),
        "median_seconds": statistics.median(times) if times else None,
        "min_seconds": min(times, default=None),
        "peak_bytes": model.peak_bytes,
        "compared": None,
    }


def _save(path: Path, outputs: Mapping[str, Array]) -> None:
    # not numpy.savez: it takes the arrays as keyword arguments, and an output may be called `file`
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in outputs.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _describe(a: Array) -> dict[str, Any]:
    """What a table shows of an array."""
    flat = a.ravel()
    facts: dict[str, Any] = {"dtype": str(a.dtype), "shape": list(a.shape), "first": flat[:4].tolist()}
    if not flat.size:
        return facts
    numbers = flat.astype(np.float64)
    real = numbers[np.isfinite(numbers)]
    facts |= {k: float(f(real)) if real.size else None for k, f in (("min", np.min), ("mean", np.mean), ("max", np.max))}
    facts["argmax"] = [int(k) for k in np.unravel_index(int(np.argmax(flat)), a.shape)]
    facts["not_finite"] = int(numbers.size - real.size)
    return facts


def _show(result: Mapping[str, Any], report: str) -> None:
    out = console.out
    out.print(escape(report))
    if result["dims"]:
        out.print("sizes      " + ", ".join(f"{k}={v}" for k, v in result["dims"].items()))
    out.print()
    rows = console.table(
        "output",
        "dtype",
        "shape",
        "min",
        "mean",
        "max",
        "argmax",
        "first values",
        right=("min", "mean", "max"),
    )
    for kind in ("inputs", "outputs"):
        for name, facts in result[kind].items():
            label = f"[dim]in[/]  {escape(name)}" if kind == "inputs" else f"out {escape(name)}"
            rows.add_row(label, *_cells(facts))
    out.print(rows)
    out.print()
    if result["seconds"]:
        n, median, least = len(result["seconds"]), result["median_seconds"], result["min_seconds"]
        out.print(f"time       median {console.duration(median)}, least {console.duration(least)} of {n} runs")
    out.print(f"loaded in  {console.duration(result['load_seconds'])} (compiling and self-test included)")
    out.print(f"memory     {console.size(result['peak_bytes'])} of weights and arena")
    for a in result["compared"] or ():
        words = f"relative difference {a['relative']:.2g}, largest {a['largest']:.2g}"
        out.print(f"against ONNX Runtime  {escape(a['name'])}: {words if a['same_shape'] else 'another shape'}")


def _cells(facts: Mapping[str, Any]) -> tuple[str, ...]:
    def number(value: Any) -> str:
        return "" if value is None else f"{value:.4g}"

    first = ", ".join(number(v) for v in facts["first"]) + (" ..." if np.prod(facts["shape"]) > 4 else "")
    note = f"  ({facts['not_finite']} not finite)" if facts.get("not_finite") else ""
    shape = "x".join(map(str, facts["shape"])) or "scalar"
    stats = (number(facts.get(k)) for k in ("min", "mean", "max"))
    return facts["dtype"], shape, *stats, ",".join(map(str, facts.get("argmax", ()))), escape(first + note)
