/** The package: load(), inspect(), what they give, and the errors that they throw. */

export type * from "./api.js";
export * from "./errors.js";
export { inspect, type InspectOptions } from "./inspect.js";
export { load } from "./load.js";
export { Model } from "./runtime/model.js";
export { Session } from "./runtime/session.js";
