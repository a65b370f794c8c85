"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="The ONNX model.", show_default=False)]
Dims = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="NAME=RANGE",
        help="Sizes of a dimension: name=48, name=1..64 or name=32..2048:32 (multiples of 32). Repeatable.",
    ),
]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="NAMES",
        help="Of browser, laptop, robot-soc, cpu-aarch64, ..., separated by commas; 'laptop' if not given.",
    ),
]
AllowNan = Annotated[bool, typer.Option("--allow-nan", help="Accept weights that hold NaN, and compute strictly with them.")]
Bundle = Annotated[Path, typer.Argument(metavar="MODEL.tang", help="The bundle.", show_default=False)]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="NAME=FILE",
        help="A .npy or .npz file, a picture, or 'random' (seeded; so are inputs not given). "
        "FILE.npz alone holds arrays by input name. Repeatable.",
    ),
]
Sizes = Annotated[
    list[str] | None,
    typer.Option(
        "--dims",
        metavar="NAME=SIZE,...",
        help="Sizes of dimensions that no file fixes; the least if not given.",
    ),
]
Device = Annotated[str, typer.Option("--device", metavar="auto|webgpu|c", help="Where to run.")]
Threads = Annotated[
    int | None,
    typer.Option("--threads", metavar="N", min=1, max=1024, help="Threads of the C device; all cores if not given."),
]
Trust = Annotated[bool, typer.Option("--trust", help="Let the bundle's C run although it was not packed on this machine.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of the random inputs.")]
