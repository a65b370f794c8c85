"""Plans: the structural check refuses what the published schema refuses, and references that lead nowhere."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import tangkit

import tang_edge.bundle
from tang_edge.bundle import verify
from tang_edge.bundle.format import IfStep, flatten
from tang_edge.errors import BundleError

SCHEMAS = Path(tang_edge.bundle.__file__).parent


def whole() -> dict:
    """A complete plan: both variants, weights placed, an 'if' among the steps."""
    plan = tangkit.plan(tangkit.wgsl_variant(), tangkit.c_variant())
    plan["constants"] = [{**plan["constants"][0], "chunk": "weights/00000.safetensors", "key": "000000"}]
    plan["golden"] = [{"dims": {"n": 3}, "file": "golden/0.safetensors", "tolerance": {"rtol": 1e-5, "atol": 0}}]
    plan["constraints"] = [{"left": "n", "right": ["max", "n", 1], "why": "not empty"}]
    plan["states"] = [{"input": "b", "output": "count", "shape": ["n"], "dtype": "i64", "reset": "zeros"}]
    steps = plan["variants"][0]["steps"]
    steps.append({"if": {"cond": 4, "then": [copy.deepcopy(steps[0])], "else": [copy.deepcopy(steps[1])]}})
    steps.append(copy.deepcopy(steps[2]))
    return plan


def paths(value, path=()):
    """Every place in a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from paths(inner, (*path, key))


def changed(plan, path, new):
    result = copy.deepcopy(plan)
    at = result
    for key in path[:-1]:
        at = at[key]
    if new is None:
        del at[path[-1]]
    else:
        at[path[-1]] = new
    return result


def schema():
    jsonschema = pytest.importorskip("jsonschema")
    rules = json.loads((SCHEMAS / "plan.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(rules)
    return jsonschema.Draft202012Validator(rules)


def test_a_whole_plan_passes_both_checks():
    plan = whole()
    parsed = verify.parse_plan(plan)
    assert schema().is_valid(plan)
    flat = flatten(parsed.variants[0].steps)
    assert [s.index for s in flat] == list(range(len(flat)))
    branch = flat[3]
    assert isinstance(branch, IfStep) and branch.end == 6
    assert [s.index for s in (*branch.then, *branch.orelse)] == [4, 5]


def test_anything_changed_gives_a_bundle_error_or_a_plan():
    """Total: no other exception, whatever stands wherever. What the schema refuses, the check refuses too."""
    plan, rules, refused = whole(), schema(), 0
    every = [p for p in paths(plan) if p][::3]
    for number, path in enumerate(every):
        for new in (
            [None, "text", -1, 2.5, [], {}][number % 6],
            [True, 10**30, "../x", [[]], {"a": 1}, float("nan")][number % 6],
        ):
            other = changed(plan, path, new)
            try:
                verify.parse_plan(other)
            except BundleError as error:
                refused += 1
                assert error.where
            else:
                assert rules.is_valid(other), (path, new)
    assert refused > len(every)


@pytest.mark.parametrize(
    ("path", "new", "match"),
    [
        (("variants", 0, "buffers", 0, "slot"), 5, "integer"),
        (("variants", 0, "buffers", 0, "slot"), -1, "integer"),
        (("variants", 0, "buffers", 0, "id"), 1, "twice"),
        (("variants", 0, "buffers", 0, "io"), "zzz", "one of"),
        (("variants", 0, "buffers", 5, "constant"), "zzz", "one of"),
        (("variants", 0, "steps", 0, "writes", "buffer"), 77, "no buffer 77"),
        (("variants", 0, "steps", 0, "writes", "strides"), [1], "2 elements"),
        (("variants", 0, "steps", 0, "alternates"), [], "1 to 255"),
        (("variants", 0, "steps", 0, "alternates", 0, "dispatches", 0, "args"), [0, 5], "3 elements"),
        (("variants", 0, "steps", 0, "alternates", 0, "dispatches", 0, "args"), [0, 5, 99], "no buffer 99"),
        (("variants", 0, "steps", 0, "alternates", 0, "dispatches", 0, "params"), [], "1 elements"),
        (("variants", 0, "steps", 0, "alternates", 0, "dispatches", 0, "kernel"), "zzz", "no such kernel"),
        (("variants", 0, "steps", 3, "if", "cond"), 99, "no buffer 99"),
        (("variants", 0, "source"), "../x", "unsafe"),
        (("variants", 1, "id"), "webgpu-browser", "twice"),
        (("variants", 0, "slots", 0), ["*", "k", 3], "unknown dimension"),
        (("variants", 1, "packed_slots", 0), ["*", "n", 3], "unknown dimension"),
        (("dims", 0, "max"), 0, "integer in 1"),
        (("dims", 0, "multiple"), 5000, "no multiple"),
        (("golden", 0, "dims"), {}, "each dimension"),
        (("golden", 0, "tolerance", "rtol"), float("inf"), "finite"),
        (("inputs", 0, "dtype"), "u4", "cannot be"),
        (("states", 0, "input"), "zzz", "one of"),
        (("variants", 0, "buffers", 5, "bytes"), ["*", "n", 76], "dynamic"),
        (("surprise",), 1, "unknown keys"),
    ],
)
def test_references(path, new, match):
    with pytest.raises(BundleError, match=match):
        verify.parse_plan(changed(whole(), path, new))


def test_nested_ifs_have_a_limit():
    plan = whole()
    step = plan["variants"][0]["steps"][0]
    for _ in range(50):
        step = {"if": {"cond": 4, "then": [step], "else": []}}
    plan["variants"][0]["steps"] = [step]
    with pytest.raises(BundleError, match="deeply"):
        verify.parse_plan(plan)
