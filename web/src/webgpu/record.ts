/** Launches as data, and the recording of them into command encoders. */

import type { Dim, Step } from "../bundle/format.js";
import type { DTypeName } from "../api.js";
import { type Failed, guarded } from "./gpu.js";
import type { Place } from "./segments.js";

/** One dispatch, ready to be recorded. */
export interface Launch {
  readonly kind: "launch";
  readonly step: Step;
  readonly kernel: string;
  readonly pipeline: GPUComputePipeline;
  readonly grid: readonly [number, number, number];
  group: GPUBindGroup;
}

/** Where one element lies. */
export interface Element extends Place {
  readonly dtype: DTypeName;
}

export interface Branch { readonly kind: "branch"; readonly cond: Element; readonly then: Program; readonly orelse: Program }
export interface Cycle { readonly kind: "cycle"; readonly trip: number | Element; readonly cond: Element | null; readonly body: Program }
/** A dimension to read, and what makes the rest of the program once it is known. */
export interface Measured { readonly kind: "measured"; readonly dim: Dim; readonly from: Element; readonly rest: (value: number) => Program }
export type Item = Launch | Branch | Cycle | Measured;
export type Program = readonly Item[];

/** All launches of a program that are known without running it: both sides of choices, those of loops once. */
export function launchesOf(program: Program): Launch[] {
  return program.flatMap((item) => {
    if (item.kind === "launch") return [item];
    if (item.kind === "cycle") return launchesOf(item.body);
    return item.kind === "branch" ? [...launchesOf(item.then), ...launchesOf(item.orelse)] : [];
  });
}

/** Places timestamps around steps. */
export interface Timer {
  /** The timestamps of a pass for this step; called when another step begins. */
  writes(step: Step): GPUComputePassTimestampWrites;
  readonly repeat: (step: Step) => number;
}

/** Records dispatches and copies into one command encoder, until it is submitted. */
export class Recorder {
  #encoder: GPUCommandEncoder | null = null;
  #pass: GPUComputePassEncoder | null = null;
  #step: Step | null = null;
  #pipeline: GPUComputePipeline | null = null;

  constructor(readonly device: GPUDevice, readonly where: string, readonly timer: Timer | null = null) {}

  launch(launch: Launch): void {
    if (this.timer && this.#step !== launch.step) {
      this.#end();
      this.#step = launch.step;
      this.#pass = this.encoder.beginComputePass({ timestampWrites: this.timer.writes(launch.step) });
    }
    const pass = (this.#pass ??= this.encoder.beginComputePass());
    if (this.#pipeline !== launch.pipeline) pass.setPipeline((this.#pipeline = launch.pipeline));
    pass.setBindGroup(0, launch.group);
    for (let n = this.timer?.repeat(launch.step) ?? 1; n > 0; n--) pass.dispatchWorkgroups(...launch.grid);
  }

  copy(from: Place, to: Place, bytes: number): void {
    if (bytes > 0) this.between().copyBufferToBuffer(from.buffer, from.offset, to.buffer, to.offset, bytes);
  }

  /** The encoder, outside of passes. */
  between(): GPUCommandEncoder {
    this.#end();
    return this.encoder;
  }

  get encoder(): GPUCommandEncoder {
    return (this.#encoder ??= this.device.createCommandEncoder());
  }

  /** Hands what was recorded to the queue; `also` happens in the same error scopes. Resolves to the browser's objection. */
  submit(also: () => void = () => {}): Failed {
    return guarded(this.device, this.where, () => {
      this.#end();
      const encoder = this.#encoder;
      this.#encoder = null;
      if (encoder) this.device.queue.submit([encoder.finish()]);
      also();
    }).failed;
  }

  #end(): void {
    this.#pass?.end();
    this.#pass = this.#pipeline = this.#step = null;
  }
}
