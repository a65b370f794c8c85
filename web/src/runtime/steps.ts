/** Walks over the steps of a plan. */

import type { AnyStep } from "../bundle/format.js";

/** The steps in preorder: the position of a step is its index. */
export function flatten(steps: readonly AnyStep[]): AnyStep[] {
  return steps.flatMap((step) => {
    if (step.kind === "if") return [step, ...flatten(step.then), ...flatten(step.else)];
    return step.kind === "loop" ? [step, ...flatten(step.body)] : [step];
  });
}
