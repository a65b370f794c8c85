/** Which input or kernel made the browser refuse a submission: found by trying each alone. */

import type { Feed } from "../engine.js";
import { type DeviceError, InputError, KernelRefused } from "../errors.js";
import type { WebGpuEngine } from "./engine.js";
import { guarded, makeBuffer } from "./gpu.js";
import { launchesOf, type Program, Recorder } from "./record.js";

/** The error with what causes it, or as it was where nothing does so alone. */
export async function explain(
  { device, variant }: WebGpuEngine, error: DeviceError, program: Program, prologue: boolean, feeds: ReadonlyMap<string, Feed>,
): Promise<Error> {
  for (const [name, feed] of feeds) {
    if (feed.kind !== "gpu") continue;
    const encoder = device.createCommandEncoder(), scratch = makeBuffer(device, 4, 8, "probe");
    encoder.copyBufferToBuffer(feed.buffer, 0, scratch, 0, 4);
    const refused = await guarded(device, name, () => encoder.finish()).failed;
    scratch.destroy();
    if (refused) {
      return new InputError("its GPU buffer is destroyed, mapped, or of another device",
        `input "${name}"`, "Make it with model.device");
    }
  }
  for (const launch of launchesOf(program)) {
    const recorder = new Recorder(device, variant.id);
    recorder.launch(launch);
    const refused = await recorder.submit();
    if (!refused) continue;
    const { index, name, origin } = launch.step, nodes = origin.length > 0 ? `, model nodes ${origin.join(", ")}` : "";
    const where = `kernel ${launch.kernel}, step ${index} (${name})${nodes}`;
    return new KernelRefused(refused.message, prologue ? -1 - index : index, where, "", launch.kernel);
  }
  return error;
}
