/** The package: load(), inspect(), the errors and the types. */

export type * from "./api.js";
export * from "./errors.js";
