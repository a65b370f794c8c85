/** From steps and dimension values to launches with their bindings: one uniform buffer holds all parameters. */

import type { AnyStep, Dispatch, Expr } from "../bundle/format.js";
import { alignUp } from "../bundle/dtypes.js";
import { evaluate } from "../bundle/expr.js";
import { evaluateSize } from "../bundle/layout.js";
import type { DimValues } from "../engine.js";
import type { WebGpuEngine } from "./engine.js";
import { makeBuffer, UNIFORM } from "./gpu.js";
import { grid, params, tripBuffer } from "./numbers.js";
import type { Element, Item, Launch, Measured, Program } from "./record.js";
import type { Place } from "./segments.js";

const ALIGN = 256; // of offsets in a uniform buffer: what every device accepts

export interface Built {
  readonly program: Program;
  /** No choices, loops or measured sizes: all of it can be submitted at once. */
  readonly straight: boolean;
  destroy(): void;
}

export type Locate = (buffer: number) => Place;

/** Builds the program of `steps`; the buffers of `locate` must stay until it is destroyed. Call it inside error scopes. */
export function build(engine: WebGpuEngine, steps: readonly AnyStep[], dims: DimValues, locate: Locate, prologue = false): Built {
  const builder = new Builder(engine, dims, locate, prologue);
  const program = builder.walk(steps);
  const uniform = builder.bind();
  const straight = program.every((item) => item.kind === "launch");
  return {
    program,
    straight,
    destroy: () => {
      uniform.destroy();
      for (const held of builder.held) held.destroy();
    },
  };
}

class Builder {
  readonly held = new Set<Built>();
  readonly #pending: { readonly launch: Launch; readonly dispatch: Dispatch; readonly params: readonly number[] }[] = [];

  constructor(
    readonly engine: WebGpuEngine, readonly dims: DimValues, readonly locate: Locate, readonly prologue: boolean,
  ) {}

  walk(steps: readonly AnyStep[]): Program {
    const program: Item[] = [];
    for (const [at, step] of steps.entries()) {
      if (step.kind === "dim") {
        program.push(this.#measured(step.name, step.from, steps.slice(at + 1)));
        break; // the rest is made when its sizes are known
      }
      if (step.kind === "if") {
        const cond = this.#element(step.cond);
        program.push({ kind: "branch", cond, then: this.walk(step.then), orelse: this.walk(step.else) });
      } else if (step.kind === "loop") {
        const measured = tripBuffer(step), trip = measured === null ? evaluate(step.trip as Expr, this.dims) : this.#element(measured);
        const cond = step.cond === null ? null : this.#element(step.cond);
        program.push({ kind: "cycle", trip, cond, body: this.walk(step.body) });
      } else {
        const index = this.prologue ? -1 - step.index : step.index;
        for (const dispatch of this.engine.alternate(step, this.prologue).dispatches) {
          const { pipeline } = this.engine.pipelines.get(dispatch.kernel, index, step.name);
          const size = grid(dispatch, this.dims, step);
          if (size.includes(0)) continue;
          const launch = { kind: "launch", step, kernel: dispatch.kernel, pipeline, grid: size } as Launch;
          program.push(launch);
          this.#pending.push({ launch, dispatch, params: params(dispatch, this.dims) });
        }
      }
    }
    return program;
  }

  #element(id: number): Element {
    return { ...this.locate(id), dtype: this.engine.variant.buffers.get(id)!.dtype };
  }

  /** The program for the latest value stays prepared. */
  #measured(name: string, buffer: number, rest: readonly AnyStep[]): Measured {
    const dim = this.engine.plan.dims.find((d) => d.name === name)!;
    let latest: { readonly value: number; readonly built: Built } | null = null;
    const make = (value: number): Program => {
      if (latest?.value !== value) {
        if (latest) {
          latest.built.destroy();
          this.held.delete(latest.built);
        }
        const dims = new Map(this.dims).set(name, value);
        latest = { value, built: build(this.engine, rest, dims, this.locate, this.prologue) };
        this.held.add(latest.built);
      }
      return latest.built.program;
    };
    return { kind: "measured", dim, from: this.#element(buffer), rest: make };
  }

  /** Makes the uniform buffer and the bind groups of all launches. */
  bind(): GPUBuffer {
    const { device } = this.engine, offsets: number[] = [];
    let size = 0;
    for (const { params } of this.#pending) {
      offsets.push(size);
      size = alignUp(size + params.length * 4, ALIGN);
    }
    const uniform = makeBuffer(device, Math.max(16, size), UNIFORM, "params");
    const words = new Int32Array(size / 4);
    this.#pending.forEach(({ params }, k) => words.set(params, offsets[k]! / 4));
    if (size > 0) device.queue.writeBuffer(uniform, 0, words);
    this.#pending.forEach(({ launch, dispatch }, k) => {
      launch.group = this.#group(launch, dispatch, uniform, offsets[k]!);
    });
    return uniform;
  }

  #group(launch: Launch, dispatch: Dispatch, uniform: GPUBuffer, offset: number): GPUBindGroup {
    const entries: GPUBindGroupEntry[] = dispatch.args.map((arg, binding) => {
      const buffer = this.engine.variant.buffers.get(arg)!;
      const size = Math.max(4, alignUp(evaluateSize(buffer.bytes, this.dims, buffer.name), 4));
      return { binding, resource: { ...this.locate(arg), size } };
    });
    if (dispatch.params.length > 0) {
      entries.push({ binding: entries.length, resource: { buffer: uniform, offset, size: alignUp(4 * dispatch.params.length, 16) } });
    }
    const { bindings } = this.engine.pipelines.get(dispatch.kernel, launch.step.index, launch.step.name);
    return this.engine.device.createBindGroup({ layout: bindings, entries, label: launch.kernel });
  }
}
