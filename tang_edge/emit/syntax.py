"""What a C-like language looks like, as data. A target is a table derived from its nearest neighbour; the printer has no
target names in it. Templates are `str.format` strings; the fields they may use are listed at each entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dialect:
    """Spellings of a language.

    types         dtype name -> scalar type
    vector        {type} {dtype} {lanes}          a vector type
    integer       the type of loop variables and indices
    ops           (operator, dtype name | "f" | "i" | "b" | "*") -> {0} {1} {2} {t} {dtype} {lanes}, {s} the type of the
                  operands, {u} that as an unsigned one; "*" for any family. "max literal": where the last operand is a
                  finite literal (or the first one of a commutative operator), and for integers neither 0 nor -1
    vector_ops    the same for more than one lane (falls back to `ops`)
    casts         (from, to) dtype names or families -> {0} {t} {dtype} {lanes}; ("*", "*") for the rest
    literals      "f" "i" "b" -> {value} {t}; "inf" "-inf" "nan" name the specials
    """

    name: str
    types: Mapping[str, str]
    integer: str
    vector: str
    ops: Mapping[tuple[str, str], str]
    vector_ops: Mapping[tuple[str, str], str]
    casts: Mapping[tuple[str, str], str]
    literals: Mapping[str, str]
    # statements
    let: str  # {t} {n} {v}
    let_int: str  # {n} {v}
    declare: str  # {t} {n} {v}
    assign: str  # {n} {v}
    store: str  # {b} {i} {v}
    vector_store: str  # {b} {i} {v} {t} {lanes}
    partial_store: str  # {b} {i} {v} {count} {t} {lanes}
    strided_store: str  # {b} {i} {v} {count} {stride} {t} {lanes}
    load: str  # {b} {i}
    vector_load: str  # {b} {i} {t}
    row: tuple[str, ...]  # {t} {n} {b} {base} {guard} {fill}
    row_far: tuple[str, ...]  # the same, where the span is too long for a run of fill values
    row_load: str  # {n} {b} {i} {fill}
    row_far_load: str  # {n} {b} {i} {fill}
    row_vector_load: str  # {n} {b} {i} {t}
    row_far_vector_load: str  # {n} {b} {i} {t} {fill}
    row_span: int  # the longest run of fill values
    splat: str  # {v} {t}
    lanes: str  # {t} {values}
    extract: str  # {v} {k}
    to_mask: str  # {v}: a bool as a lane of a vector of bools
    from_mask: str  # {v} {k}: a lane of a vector of bools as a bool
    loop: str  # {n} {start} {stop} {step}
    barrier: str
    floor_div: str  # {a} {k}: operands that may be negative
    floor_mod: str  # {a} {k}
    minimum: str  # {a} {b}
    maximum: str  # {a} {b}
    index_cast: str  # {v}: a value as an index
    int_value: str  # {e} {t}: an index as a value
    wide: str = ""  # a factor that makes an integer expression wider than indices are, where they may be too narrow
    reserved: frozenset[str] = frozenset()
