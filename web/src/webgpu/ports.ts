/** The boundary of a prepared call: where inputs, outputs and states lie for given sizes. */

import type { DTypeName } from "../api.js";
import type { Buffer, PlanPort } from "../bundle/format.js";
import { elements, storageBytes } from "../bundle/dtypes.js";
import { evaluate } from "../bundle/expr.js";
import { extent, type Extent } from "../bundle/layout.js";
import type { DimValues, Engine } from "../engine.js";
import { BundleError, InputError } from "../errors.js";
import { checkStorable, isDense } from "../runtime/arrays.js";
import { span } from "./numbers.js";
import type { Recorder } from "./record.js";
import type { Place } from "./segments.js";

export interface Port {
  readonly name: string;
  readonly dtype: DTypeName;
  readonly place: Place;
  readonly size: Extent;
}

/** What a whole call copies at its end, from the output to the input of a state. */
export interface Move {
  readonly name: string;
  readonly from: Place;
  readonly to: Place;
  readonly bytes: number;
}

export interface Ports {
  readonly inputs: ReadonlyMap<string, Port>;
  readonly outputs: ReadonlyMap<string, Port>;
  readonly states: readonly Move[];
}

export function portsOf({ plan, variant }: Engine, dims: DimValues, locate: (buffer: Buffer) => Place): Ports {
  const buffers = [...variant.buffers.values()];
  const side = (kind: string, ports: readonly PlanPort[]): Map<string, Port> => new Map(ports.map(({ name, dtype, shape }) => {
    const buffer = buffers.find((b) => b.kind === kind && b.io === name)!, size = extent(buffer, dims);
    checkStorable(name, dtype, buffer.dtype, variant.id);
    if (String(size.shape) !== String(shape.map((e) => evaluate(e, dims)))) {
      throw new BundleError(`its buffer has shape ${size.shape}`, `plan: ${name}`);
    }
    return [name, { name, dtype, place: locate(buffer), size }];
  }));
  const inputs = side("input", plan.inputs), outputs = side("output", plan.outputs);
  const states = plan.states.map(({ input, output }): Move => {
    const from = outputs.get(output)!, to = inputs.get(input)!;
    const [a, b] = [from, to].map(({ size }) => `${size.dtype} ${size.shape} ${size.strides}`);
    if (a !== b) throw new BundleError(`the state ${input} is stored unlike its output`, variant.id);
    return { name: input, from: from.place, to: to.place, bytes: span(to.size) };
  });
  return { inputs, outputs, states };
}

/** Records the copy of a caller's buffer into an input. */
export function copyIn(buffer: GPUBuffer, { name, dtype, place, size }: Port, recorder: Recorder): void {
  const fail = (what: string, remedy: string): never => { throw new InputError(what, `input "${name}"`, remedy) };
  if (dtype !== size.dtype || !isDense(size)) {
    fail(`takes no GPU buffer: it is stored as ${size.dtype}`, "Pass an array");
  }
  if (!(buffer.usage & 4)) fail("its GPU buffer lacks COPY_SRC", "Make it with GPUBufferUsage.COPY_SRC");
  const bytes = span(size), exact = storageBytes(dtype, elements(size.shape));
  if (buffer.size !== bytes && buffer.size !== exact) fail(`its GPU buffer has ${buffer.size} bytes, the input takes ${exact}`, "Pass one of that size");
  recorder.copy({ buffer, offset: 0 }, place, bytes);
}
