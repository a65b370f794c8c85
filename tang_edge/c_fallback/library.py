"""The text of a whole model in C: kernels, one function a step, and the five functions of `tang_abi.h`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

from tang_edge.c_fallback.dialect import C, d_type
from tang_edge.emit.legalize import legalize
from tang_edge.emit.printer import Printer, fill_name
from tang_edge.emit.unit import Unit, grid_total, unit
from tang_edge.ir import affine, dtype
from tang_edge.ir.affine import Dim, Expr
from tang_edge.ir.kernel import Kernel, statements, values_of
from tang_edge.ir.tensor import Bind
from tang_edge.schedule.analysis import main_fold
from tang_edge.schedule.variant import AnyStep, Measure, Repeat, Step, Variant

HEADERS = ("tang_abi.h", "prelude.h", "pool.h", "pool_wasm.h")
ELEMENTWISE = 4  # multiply-adds that take as long as one element of a map: loading, a function, storing


class Library:
    """Collects kernels and steps of a variant and joins them to one C file."""

    def __init__(self, v: Variant) -> None:
        self.v = v
        self.dims = {d: f"D{k}" for k, d in enumerate(v.program.dims)}
        self.sizes = Printer(C, {d: f"({x} / {d.multiple})" if d.multiple > 1 else x for d, x in self.dims.items()})
        self.units: dict[str, list[str]] = {}
        self.fills: dict[tuple[str, object], int] = {}
        self.lanes: set[int] = set()
        self.printed: dict[int, tuple[Kernel, tuple[str, Unit]]] = {}
        self.hot: set[str] = set()
        self.ids = {b.tensor: b.id for b in v.buffers}
        self.constants = {c.name: k for k, c in enumerate(v.program.constants)}

    def text(self) -> str:
        """The library."""
        steps, calls = self._functions(self.v.steps, "s")
        early, early_calls = self._functions(self.v.prologue, "p")
        parts = [
            *(resources.files("tang_edge.c_fallback").joinpath(name).read_text() for name in HEADERS),
            *(f"TANG_VECTORS({n})" for n in sorted(self.lanes)),
            *self._fill_rows(),
            *("\n".join(self._speed(name) + lines) for name, lines in self.units.items()),
            self._context(),
            *early,
            *steps,
            self._sizes(),
            self._run(early_calls, calls),
        ]
        return "\n\n".join(parts) + "\n"

    # ------------------------------------------------------------ kernels

    def kernel(self, k: Kernel, where: str) -> tuple[str, Unit]:
        """The name of a kernel's function, made when it is new (a kernel is asked for by the text and by the plan)."""
        if id(k) not in self.printed:
            self.printed[id(k)] = (k, self._print(k, where))  # k is kept: its id must not become another's
        return self.printed[id(k)][1]

    def _print(self, k: Kernel, where: str) -> tuple[str, Unit]:
        u = unit(legalize(k, self.v.limits, where), C)
        for s in statements(u.kernel.body):
            self.lanes |= {x.lanes for x in values_of(s) if x.lanes > 1}
        for d, value, span in u.fills:
            self.fills[(d, value)] = max(self.fills.get((d, value), 0), span)
        name = u.name()
        if name not in self.units:
            self.units[name] = self._function(name, u)
        return name, u

    def _speed(self, name: str) -> list[str]:
        """Kernels that run once, or only in place of a failed one, are compiled quickly rather than for speed."""
        return [] if name in self.hot else ["TANG_COLD"]

    def _function(self, name: str, u: Unit) -> list[str]:
        head = f"static void {name}(void *const *b, const long *p, long begin, long end) {{"
        lines = [head]
        for k, b in enumerate(u.kernel.buffers):
            kind = f"{d_type(b.dtype.name)} *restrict" if b.writable else f"const {d_type(b.dtype.name)} *restrict"
            lines.append(f"  {kind} const {b.name} = ({kind.replace(' restrict', '').replace('restrict', '')})b[{k}];")
        lines += [f"  const long d{k} = p[{k}];" for k in range(len(u.params))]
        lines += ["  (void)p;"] if not u.params else []
        lines.append("  for (long t = begin; t < end; ++t) {")
        step = "t"
        for v, size in reversed(list(zip(u.kernel.grid, u.grid_sizes, strict=True))):
            first = v is u.kernel.grid[0]
            lines.append(f"    const long {v.name} = {step if first else f'{step} % ({size})'};")
            step = f"({step} / ({size}))"
        return [*lines, *("  " + x for x in u.lines), "  }", "}"]

    def _fill_rows(self) -> list[str]:
        out: list[str] = []
        for (d, value), span in sorted(self.fills.items(), key=str):
            t, name = d_type(d), f"fill_{d}_{fill_name(value)}"
            literal = Printer(C, {}).literal(value, dtype.BY_NAME[d])
            out.append(f"static const {t} {name}[{span}] = {{[0 ... {span - 1}] = {literal}}};")
        return out

    # ------------------------------------------------------------ steps

    def _context(self) -> str:
        dims = "\n".join(f"#define D{k} (x->dims[{k}])" for k in range(len(self.v.program.dims)))
        fields = (
            "const int64_t *dims",
            "uint8_t *const *at",
            "const void *const *constants",
            "tang_pool *pool",
            "const uint8_t *choice",
            "int64_t *own",
        )
        return "typedef struct { " + " ".join(f"{f};" for f in fields) + f" }} tang_context;\n{dims}"

    def _functions(self, steps: Sequence[AnyStep], prefix: str) -> tuple[list[str], list[str]]:
        """Functions of the steps, and the lines of a runner that calls those in range (preorder numbers).

        A loop runs as a whole, when its own number is in range.
        """
        functions: list[str] = []
        counter = [0]

        def go(items: Sequence[AnyStep], pad: str, whole: bool = False) -> list[str]:
            lines: list[str] = []
            for s in items:
                n = counter[0]
                counter[0] += 1
                if isinstance(s, Step):
                    functions.append(self._step(f"{prefix}{n}", n, s))
                    lines.append(f"{pad}{'' if whole else f'if ({n} >= first && {n} < last) '}{prefix}{n}(x);")
                    continue
                if isinstance(s, Repeat):
                    body = go(s.body, pad + "  ", whole=True)
                    lines += [pad + self._loop(n, s, whole), *body, f"{pad}}}"]
                    continue
                if isinstance(s, Measure):
                    lines += self._measure(n, s)
                    continue
                cond = f"*(const uint8_t *){self._pointer(s.cond)}"
                then = go(s.then, pad + "  ", whole)
                orelse = go(s.orelse, pad + "  ", whole)
                lines += [f"{pad}if ({cond}) {{", *then, f"{pad}}} else {{", *orelse, f"{pad}}}"]
            return lines

        return functions, go(steps, "  ")

    def _measure(self, n: int, s: Measure) -> list[str]:
        """A dimension read from a buffer, for all later steps; a value that is not legal ends the run."""
        k = self.v.program.dims.index(s.dim)
        value = f"*(const int64_t *){self._pointer(s.tensor)}"
        return [f"  if ({n} < last) {{", f"    x->own[{k}] = {value};", "    if (tang_check(x->own)) return 2;", "  }"]

    def _loop(self, n: int, s: Repeat, whole: bool) -> str:
        """The head of a loop: its trip count is looked at once, its condition before each turn."""
        trip = f"*(const int64_t *){self._pointer(s.trip)}" if isinstance(s.trip, str) else self.size(s.trip)
        cond = f" && *(const uint8_t *){self._pointer(s.cond)}" if s.cond is not None else ""
        head = f"for (int64_t l{n} = 0, e{n} = {trip}; l{n} < e{n}{cond}; ++l{n}) {{"
        return head if whole else f"if ({n} >= first && {n} < last) {head}"

    def _step(self, name: str, index: int, s: Step) -> str:
        lines = [f"static void {name}(const tang_context *x) {{"]
        many = len(s.alternates) > 1
        if many:
            lines.append(f"  switch (x->choice ? x->choice[{index}] : 0) {{")
        for a, alternate in enumerate(s.alternates):
            lines += [f"  case {a}: {{" if many and a + 1 < len(s.alternates) else "  default: {" if many else "  {"]
            for k in alternate.kernels:
                lines += self._dispatch(k, s.bind, hot=a == 0 and name[0] == "s")
            lines.append("  break; }" if many else "  }")
        if many:
            lines.append("  }")
        return "\n".join([*lines, "}"])

    def _dispatch(self, k: Kernel, bind: Bind, hot: bool) -> list[str]:
        name, u = self.kernel(k, bind.name)
        self.hot |= {name} if hot else set()
        buffers = ", ".join(self._pointer(b.tensor) for b in u.kernel.buffers)
        params = ", ".join(self.size(affine.as_expr(d)) for d in u.params) or "0"
        total = self.size(grid_total(u.kernel))
        return [
            f"    void *const b[] = {{{buffers}}};",
            f"    const long p[] = {{{params}}};",
            f"    tang_for({self.size(work(bind))} < TANG_ALONE ? 0 : x->pool, {name}, b, p, {total});",
        ]

    def _pointer(self, tensor: str) -> str:
        if tensor in self.constants:
            return f"(void *)x->constants[{self.constants[tensor]}]"
        return f"x->at[{self.ids[tensor]}]"

    def size(self, e: Expr) -> str:
        """A size over the dimensions of the run."""
        return self.sizes.expr(e)

    # ------------------------------------------------------------ interface

    def _offsets(self, slots: Sequence[Expr], name: str) -> list[str]:
        lines = [f"  int64_t {name}[{len(slots) + 1}];", f"  {name}[0] = 0;"]
        for k, e in enumerate(slots):
            lines.append(f"  {name}[{k + 1}] = {name}[{k}] + (({self.size(e)} + 255) / 256) * 256;")
        return lines

    def _sizes(self) -> str:
        checks = [_range_check(d, k) for k, d in enumerate(self.v.program.dims)]
        lines = [
            "int32_t tang_abi(void) { return TANG_ABI_VERSION; }",
            "",
            "static int32_t tang_check(const int64_t *dims) {",
        ]
        lines += ["  (void)dims;", *checks, "  return 0;", "}", ""]
        lines += [
            "int32_t tang_sizes(const int64_t *dims, int64_t *sizes) {",
            "  const tang_context c = {dims, 0, 0, 0, 0, 0}, *x = &c;",
        ]
        lines += ["  (void)x;", "  if (tang_check(dims)) return 1;"]
        lines += [*self._offsets(self.v.slots, "a"), *self._offsets(self.v.packed_slots, "q")]
        lines += [
            f"  sizes[0] = a[{len(self.v.slots)}];",
            f"  sizes[1] = q[{len(self.v.packed_slots)}];",
            "  return 0;",
            "}",
        ]
        return "\n".join(lines)

    def _run(self, early: Sequence[str], steps: Sequence[str]) -> str:
        lines = [
            "static int32_t tang_phase0(const tang_context *x, int32_t first, int32_t last) {",
            "  (void)x, (void)first, (void)last;",
        ]
        done = ["  return 0;", "}", ""]
        lines += [*early, *done, "static int32_t tang_phase1(const tang_context *x, int32_t first, int32_t last) {"]
        lines += ["  (void)x, (void)first, (void)last;", *steps, *done, "int32_t tang_run(const tang_call *call) {"]
        lines += ["  if (tang_check(call->dims)) return 1;", f"  uint8_t *at[{len(self.v.buffers) + 1}];"]
        count = len(self.v.program.dims)
        # a copy: steps that read a dimension from a buffer change it for this run only
        lines += [f"  int64_t own[{count + 1}];", f"  for (int k = 0; k < {count}; ++k) own[k] = call->dims[k];"]
        lines += ["  const tang_context c = {own, at, call->constants, (tang_pool *)call->pool, call->choice, own}, *x = &c;"]
        lines += [
            *self._offsets(self.v.slots, "a"),
            *self._offsets(self.v.packed_slots, "q"),
            "  (void)a, (void)q, (void)x;",
        ]
        for b in self.v.buffers:
            if b.slot is not None:
                base = "call->packed + q" if b.kind == "packed" else "call->arena + a"
                lines.append(f"  at[{b.id}] = {base}[{b.slot}];")
        lines += ["  const int32_t last = call->last < 0 ? INT32_MAX : call->last;"]
        lines += ["  return call->phase == 0 ? tang_phase0(x, call->first, last) : tang_phase1(x, call->first, last);"]
        return "\n".join([*lines, "}"])


def work(bind: Bind) -> Expr:
    """About how many vectorised multiply-adds a bind costs: waking threads for a few does not pay."""
    fold = main_fold(bind)
    total = affine.const(ELEMENTWISE if fold is None else 1)
    for a in (*bind.axes, *(fold.axes if fold is not None else ())):
        total = total * a.extent
    return total


def _range_check(d: Dim, k: int) -> str:
    bad = f"dims[{k}] < {d.lo} || dims[{k}] > {d.hi}"
    return f"  if ({bad}{f' || dims[{k}] % {d.multiple}' if d.multiple > 1 else ''}) return 1;"
