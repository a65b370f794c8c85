"""A page with the built package in it, and arrays on their way there and back."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from server import Server

Array = Any
DTYPES = {
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "bool": np.bool_,
}
_NAMES = {np.dtype(v): k for k, v in DTYPES.items()}

# what every test program sees: load, tensors from and to Python, and failures as data
SCRIPT = """
import * as package_ from "/dist/index.js";
const TYPES = {
  f16: Uint16Array, f32: Float32Array, f64: Float64Array, i8: Int8Array, i16: Int16Array, i32: Int32Array, i64: BigInt64Array,
  u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, u64: BigUint64Array, bool: Uint8Array,
};
function decode([dtype, shape, text]) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return { dtype, shape, data: new TYPES[dtype](bytes.buffer) };
}
function encode({ dtype, shape, data }) {
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  let text = "";
  for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
  return [dtype, shape, btoa(text)];
}
const each = (object, f) => Object.fromEntries(Object.entries(object).map(([k, v]) => [k, f(v)]));
const tang = globalThis.tang = {
  ...package_,
  decoded: (inputs) => each(inputs, decode),
  encoded: (outputs) => each(outputs, encode),
  open: (url, options = {}) => package_.load(url, { device: "webgpu", cache: "none", verify: "off", ...options }),
  failure: async (work) => {
    try {
      await (typeof work === "function" ? work() : work);
      return null;
    } catch (e) {
      return { name: e.name, message: e.message };
    }
  },
};
globalThis.perform = async (code, argument) => (0, eval)(`(${code})`)(tang, argument);
globalThis.onmessage = async ({ data: [code, argument] }) => {
  try {
    postMessage({ value: await perform(code, argument) });
  } catch (e) {
    postMessage({ error: `${e.name}: ${e.message}` });
  }
};
if (globalThis.WorkerGlobalScope) postMessage("ready");
"""
PAGE = """<!doctype html><meta charset=utf-8><title>tang-edge</title><link rel=icon href=data:,>
<script type=module src=/kit.js></script>"""
IN_WORKER = """async ([code, argument]) => {
  if (!globalThis.helper) {
    globalThis.helper = new Worker("/kit.js", { type: "module" });
    await new Promise((done) => { helper.onmessage = done; });
  }
  const answer = await new Promise((done) => { helper.onmessage = (e) => done(e.data); helper.postMessage([code, argument]); });
  if (answer.error) throw new Error(answer.error);
  return answer.value;
}"""


class Kit:
    """A page (and a worker of it) that runs JavaScript functions of `(tang, argument)`; see SCRIPT for what `tang` offers."""

    def __init__(self, page: Any, server: Server) -> None:
        self.page = page
        self.server = server

    def put(self, path: Path) -> str:
        """Serve a bundle; its address."""
        return self.server.put(f"/{path.parent.name}/{path.name}", path.read_bytes(), "application/octet-stream")

    def perform(self, code: str, argument: Any = None, *, worker: bool = False) -> Any:
        """What the function returns, in the page or in the worker."""
        if worker:
            return self.page.evaluate(IN_WORKER, [code, argument])
        return self.page.evaluate("([code, argument]) => perform(code, argument)", [code, argument])


def encoded(arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Arrays as `tang.decoded` takes them."""
    return {
        name: [_NAMES[a.dtype], list(a.shape), base64.b64encode(np.ascontiguousarray(a).tobytes()).decode()]
        for name, a in arrays.items()
    }


def decoded(tensors: Mapping[str, Any]) -> dict[str, Array]:
    """Arrays from what `tang.encoded` gave."""
    return {
        name: np.frombuffer(base64.b64decode(text), DTYPES[dtype]).reshape(shape)
        for name, (dtype, shape, text) in tensors.items()
    }


@contextlib.contextmanager
def opened(chromium: Any, dist: Path, *, isolated: bool = False) -> Iterator[Kit]:
    """A page of its own with the package, cross-origin isolated or not; errors that nobody caught fail the test at the end."""
    server = Server()
    context = chromium.new_context()
    context.set_default_timeout(120_000)
    errors: list[str] = []
    try:
        server.faults.isolated = isolated
        server.mount("/dist", dist)
        server.put("/kit.js", SCRIPT, "text/javascript")
        server.put("/", PAGE)
        page = context.new_page()
        page.on("console", lambda message: print(f"[{message.type}] {message.text}"))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(server.url + "/")
        page.wait_for_function("!!globalThis.tang")
        yield Kit(page, server)
    finally:
        context.close()
        server.close()
    assert not errors, errors
