"""Which outputs a session feeds back into which inputs: asked for by name, or found by name and type.

Found without being asked for, where input and output have one dtype and one shape (spelled without case):

    x, x_in, in_x, x_old, old_x, x_prev, prev_x, x0     x_out, out_x, x_new, new_x, x_next, next_x
    the same, x one letter or …state, …hidden, …cell    xn, x_n (h0 and hn, state and stateN)
    past…  (past_key_values.3.key)                      present… with the same rest (present.3.key)

An input with more than one such output, or an output with more than one such input, is left alone, and so is a model none of
whose inputs would be left to the caller. A cache that grows (past of length n, present of length n + 1) has two types and is
no state.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tang_edge.errors import InputError
from tang_edge.ir.tensor import Program, State, TensorType

_INPUT = (
    re.compile(r"(?P<x>.+?)[_.]?(in|old|prev)"),
    re.compile(r"(in|old|prev|previous)[_.](?P<x>.+)"),
    re.compile(r"(?P<x>.+?)[_.]?0"),
    re.compile(r"(?P<x>past)(_key_values|_key_value)?(?P<rest>[_.].*)?"),
    re.compile(r"(?P<x>.+)"),
)
_OUTPUT = (
    re.compile(r"(?P<x>.+?)[_.](out|new|next)"),
    re.compile(r"(out|new|next)[_.](?P<x>.+)"),
    re.compile(r"(?P<x>[a-z]|.*state|.*hidden|.*cell)_?n"),
    re.compile(r"(?P<x>present)(_key_values|_key_value)?(?P<rest>[_.].*)?"),
)


def with_states(program: Program, wanted: Sequence[str] | None) -> tuple[Program, tuple[str, ...]]:
    """The program with its states, and a note for each one that was found rather than asked for.

    `wanted` are "input=output" pairs; None: find them, unless the program has states already.

    Raises InputError for a pair whose names or types do not fit.
    """
    if wanted is not None:
        return replace(program, states=tuple(_asked(program, pair) for pair in wanted)), ()
    if program.states:
        return program, ()
    found = find_states(program)
    notes = tuple(f"state {s.input} = {s.output} (by name and type; --state changes it)" for s in found)
    return replace(program, states=found), notes


def _asked(program: Program, pair: str) -> State:
    source, sign, result = pair.partition("=")
    inputs, outputs = _ports(program)
    if not sign or source not in inputs or result not in outputs:
        raise InputError(
            f"{pair!r} is not INPUT=OUTPUT of this model",
            where="states",
            remedy=f"Inputs: {', '.join(inputs)}; outputs: {', '.join(outputs)}.",
        )
    if inputs[source] != outputs[result]:
        raise InputError(f"{source} is {inputs[source]}, but {result} is {outputs[result]}", where="states")
    return State(source, result)


def _ports(program: Program) -> tuple[Mapping[str, TensorType], Mapping[str, TensorType]]:
    types = program.types()
    return {i.name: i.type for i in program.inputs}, {name: types[tensor] for name, tensor in program.outputs}


def find_states(program: Program) -> tuple[State, ...]:
    """The pairs of inputs and outputs that their names and types say are states."""
    inputs, outputs = _ports(program)
    pairs = [
        (i, o)
        for i, it in inputs.items()
        for o, ot in outputs.items()
        if it == ot and it.shape and _stems(i, _INPUT) & _stems(o, _OUTPUT)
    ]
    lone = [(i, o) for i, o in pairs if sum(i == a for a, _ in pairs) == 1 and sum(o == b for _, b in pairs) == 1]
    return tuple(State(i, o) for i, o in lone) if len(lone) < len(inputs) else ()


def _stems(name: str, rules: Sequence[re.Pattern[str]]) -> set[str]:
    """What a name may be the input (or output) of."""
    found: set[str] = set()
    for rule in rules:
        m = rule.fullmatch(name.lower())
        if m is not None:
            rest = m.groupdict().get("rest")
            found.add(f"cache{rest or ''}" if m["x"] in ("past", "present") else m["x"])
    return found
