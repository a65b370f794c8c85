"""The operator table, split by subject: importing this package registers every operator."""

from tang_edge.onnx_in.ops import (
    arithmetic,
    control,
    conv,
    elementwise,
    fold,
    gather,
    matmul,
    norm,
    pool,
    quant,
    reduce,
    resize,
    scan,
    shape,
    views,
)

__all__ = [
    "arithmetic",
    "control",
    "conv",
    "elementwise",
    "fold",
    "gather",
    "matmul",
    "norm",
    "pool",
    "quant",
    "reduce",
    "resize",
    "scan",
    "shape",
    "views",
]
