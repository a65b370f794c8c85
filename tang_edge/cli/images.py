"""Pictures as inputs: resized (bilinear) to the model's height and width, RGB or grey, scaled to 0..1.

An input of rank 4 (with batch) or 3 whose channel axis has extent 1 or 3 takes a picture; where that axis is
says NCHW or NHWC. Integer inputs get 0..255. Every other normalisation is the caller's: give a .npy file.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tang_edge.bundle import format as fmt
from tang_edge.errors import InputError
from tang_edge.runtime.plan import describe

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff")


def load(port: fmt.Port, path: Path, extents: tuple[int | None, ...], where: str) -> npt.NDArray[Any]:
    """The picture as the array that `port` takes.

    Args:
        extents: of each axis, None where it is free: then the picture's own size.

    Raises:
        InputError: Pillow is missing, the file is no picture, or the input does not look like one.
    """
    last = _channels_last(port, extents, where)
    lead = (None,) * (4 - len(extents)) + extents
    channels, h, w = (lead[3], lead[1], lead[2]) if last else (lead[1], lead[2], lead[3])
    picture = _open(path, "L" if channels == 1 else "RGB", where)
    wanted = (w or picture.width, h or picture.height)
    pixels = np.asarray(picture.resize(wanted, _pillow(where).BILINEAR))
    pixels = pixels.reshape(wanted[1], wanted[0], -1)
    array = (pixels if last else pixels.transpose(2, 0, 1))[None]
    dtype = fmt.DTYPES[port.dtype]
    scaled = array.astype(dtype) if dtype.kind in "iu" else (array / 255).astype(dtype)
    batched = np.repeat(scaled, lead[0] or 1, axis=0)
    return np.ascontiguousarray(batched if len(extents) == 4 else batched[0])


def _channels_last(port: fmt.Port, extents: tuple[int | None, ...], where: str) -> bool:
    if len(extents) in (3, 4) and fmt.DTYPES[port.dtype].kind != "b":
        if extents[-3] in (1, 3):
            return False
        if extents[-1] in (1, 3):
            return True
    raise InputError(
        f"the model takes {describe(port)}, which is no picture of 1 or 3 channels",
        where=where,
        remedy="Give a .npy file.",
    )


def _pillow(where: str) -> Any:
    try:
        return importlib.import_module("PIL.Image")
    except ImportError as error:
        raise InputError("reading pictures needs Pillow", where=where, remedy="Run: pip install pillow") from error


def _open(path: Path, mode: str, where: str) -> Any:
    pillow = _pillow(where)
    try:
        with pillow.open(path) as picture:
            return picture.convert(mode)
    except OSError as error:
        raise InputError(f"cannot be read as a picture ({error})", where=where) from error
