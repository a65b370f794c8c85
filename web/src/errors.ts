/** Typed errors. Each says where, what, and the remedy; `name` is the class's, so that it survives a structured clone. */

export class TangError extends Error {
  override readonly name: string = "TangError";
  constructor(what: string, readonly where: string = "", readonly remedy: string = "", options?: ErrorOptions) {
    super(`${where ? `${where}: ` : ""}${what}${remedy ? `. ${remedy}` : ""}`, options);
  }
}
/** The bundle is malformed, corrupt, or of a version or class that cannot run here. */
export class BundleError extends TangError { override readonly name = "BundleError" }
/** An input is missing, unknown, or has the wrong dtype, shape or size. */
export class InputError extends TangError { override readonly name = "InputError" }
/** The download failed; what was received is kept where there is storage. */
export class NetworkError extends TangError { override readonly name = "NetworkError" }
/** No device can run the bundle, or the device refused. */
export class DeviceError extends TangError { override readonly name: string = "DeviceError" }
export class OutOfMemory extends DeviceError { override readonly name = "OutOfMemory" }
/** The device is gone; the runtime makes a new one and repeats the call unless state went with it. */
export class DeviceLost extends DeviceError { override readonly name = "DeviceLost" }
/** A kernel does not compile on this device; `step` is its preorder index, -1 - index in the prologue. */
export class KernelRefused extends DeviceError {
  override readonly name = "KernelRefused";
  constructor(what: string, readonly step: number, where = "", remedy = "", readonly kernel = "") { super(what, where, remedy) }
}
