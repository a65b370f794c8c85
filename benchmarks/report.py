"""The figures as a table, as means, and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import geometric_mean

PAIRS = (
    ("C, 1 thread", "tang-c-1", "ort-cpu-1"),
    ("C, 2 threads", "tang-c-2", "ort-cpu-2"),
    ("C, 4 threads", "tang-c-4", "ort-cpu-4"),
    ("WebGPU", "tang-webgpu", "ort-webgpu"),
)
"""(title, our side, the peer): the ratios that are reported"""


def ratio(result: dict[str, Any], ours: str, peer: str) -> float | None:
    """The peer's median over ours on one model; None where one of them has no figure."""
    figures = result["figures"]
    if ours not in figures or peer not in figures:
        return None
    return float(figures[peer]["median"]) / float(figures[ours]["median"])


def means(results: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """For each pair that was measured at all: the geometric mean of the ratios, the worst one, how many
    models.
    """
    found = {}
    for title, ours, peer in PAIRS:
        values = [r for r in (ratio(result, ours, peer) for result in results) if r is not None]
        if values:
            found[title] = {"mean": geometric_mean(values), "worst": min(values), "models": len(values)}
    return found


def progress(result: dict[str, Any]) -> str:
    """One line a finished model."""
    times = ", ".join(f"{side} {milliseconds(f['median'])}" for side, f in result["figures"].items())
    trouble = "".join(f"\n  problem: {text}" for text in result["problems"])
    return f"{result['case']}: {times}{trouble}"


def milliseconds(seconds: float) -> str:
    """Milliseconds with three significant digits."""
    value = seconds * 1e3
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def table(document: dict[str, Any]) -> None:
    """Print the medians in milliseconds, the ratios, and the means."""
    from rich.console import Console
    from rich.table import Table

    results = document["results"]
    sides = [side for result in results for side in result["figures"]]
    sides = sorted(set(sides), key=sides.index)
    pairs = [(title, a, b) for title, a, b in PAIRS if title in document["means"]]
    grid = Table(title="median milliseconds; ratio = peer / tang-edge (above 1: tang-edge is faster)")
    grid.add_column("model")
    for side in sides:
        grid.add_column(side, justify="right")
    for title, _, _ in pairs:
        grid.add_column(title, justify="right", style="bold")
    for result in results:
        figures = result["figures"]
        cells = [milliseconds(figures[side]["median"]) if side in figures else "-" for side in sides]
        ratios = [ratio(result, ours, peer) for _, ours, peer in pairs]
        grid.add_row(result["case"], *cells, *("-" if r is None else f"{r:.2f}x" for r in ratios))
    console = Console(width=max(100, 30 + 14 * (len(sides) + len(pairs))))
    console.print(grid)
    for title, mean in document["means"].items():
        models, worst = mean["models"], mean["worst"]
        console.print(f"{title}: geometric mean {mean['mean']:.2f}x over {models} models, worst {worst:.2f}x")
    console.print(", ".join(f"{key} {value}" for key, value in document["machine"].items()))
    for result in results:
        for text in result["problems"]:
            console.print(f"{result['case']}: {text}", style="red", markup=False)


def plot(document: dict[str, Any], file: Path) -> None:
    """Draw the ratios as bars on a logarithmic axis, one group a model; the format comes from the file's
    suffix.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    results = document["results"]
    pairs = [(title, a, b) for title, a, b in PAIRS if title in document["means"]]
    figure, axes = pyplot.subplots(figsize=(max(6.0, 0.9 * len(results) + 2), 4.5), layout="constrained")
    width = 0.8 / max(1, len(pairs))
    for k, (title, ours, peer) in enumerate(pairs):
        values = [ratio(result, ours, peer) for result in results]
        at = [i + (k - (len(pairs) - 1) / 2) * width for i, v in enumerate(values) if v is not None]
        mean = document["means"][title]["mean"]
        axes.bar(at, [v for v in values if v is not None], width, label=f"{title} (mean {mean:.2f}x)")
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}x")
    axes.set_xticks(range(len(results)), [r["case"].replace("@", "\n") for r in results], rotation=45, ha="right")
    axes.set_ylabel("peer's time / tang-edge's time")
    axes.set_title(f"tang-edge against ONNX Runtime on {document['machine']['processor']}", fontsize=10)
    if pairs:
        axes.legend(fontsize=9)
    figure.savefig(file, dpi=150)
    pyplot.close(figure)
