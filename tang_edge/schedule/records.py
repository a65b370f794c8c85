"""Records: measured choices, in a file that people can read.

    {"version": 1, "records": [{"key": "…16 hex digits", "class": "laptop", "tag": "registers", "source": "adapter, date"}]}

`key` is the structural key of a bind (`ir.text.structural_key`; a bundle's explain.json lists those of its binds), `class` a
device class, `tag` the alternate that was fastest there. A record for a structure or a class that is not there is not used.
"""

from __future__ import annotations

import json
from pathlib import Path

from tang_edge.errors import InputError
from tang_edge.schedule.choose import Record
from tang_edge.schedule.limits import CLASSES

VERSION = 1
_FIELDS = ("key", "class", "tag", "source")


def load(path: str | Path) -> tuple[Record, ...]:
    """The records of a file. Raises InputError, naming the entry, for what is not in the format above."""
    where = str(path)
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"is no file of records ({error})", where=where) from error
    if not isinstance(data, dict) or data.get("version") != VERSION or not isinstance(data.get("records"), list):
        raise InputError(f"is no file of records of version {VERSION}", where=where)
    return tuple(_record(r, f"{where}, record {k}") for k, r in enumerate(data["records"]))


def _record(r: object, where: str) -> Record:
    if not isinstance(r, dict) or sorted(r) != sorted(_FIELDS) or not all(isinstance(v, str) for v in r.values()):
        raise InputError(f"needs the texts {', '.join(_FIELDS)} and nothing else", where=where)
    if r["class"] not in CLASSES:
        raise InputError(f"unknown device class '{r['class']}'", where=where, remedy=f"Known: {', '.join(CLASSES)}")
    return Record(r["key"], r["class"], r["tag"], r["source"])


def dump(records: tuple[Record, ...]) -> str:
    """The file's text, sorted, for a bundle to carry."""
    rows = sorted((r.key, r.device_class, r.tag, r.source) for r in records)
    return json.dumps({"version": VERSION, "records": [dict(zip(_FIELDS, row, strict=True)) for row in rows]}, indent=1)
