import { InputError } from "../errors.js";

/** What runs after dispose() meets. */
export function disposed(cause?: unknown): InputError {
  return new InputError("the session or its model was disposed of", "run", "Load it again", { cause });
}
