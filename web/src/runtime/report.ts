/** The report of a model, and its changes: the self-test runs, steps are demoted, devices are lost. */

import type { Report } from "../api.js";

/** What happens to a loaded model and may interest its page. */
export type ModelEvent = "lost" | "demoted" | "recovered";

/** A report that grows; readers get a frozen copy. */
export class LiveReport {
  #now: Report;

  constructor(start: Report) {
    this.#now = Object.freeze(start);
  }

  get now(): Report {
    return this.#now;
  }

  set(change: Partial<Report>): void {
    this.#now = Object.freeze({ ...this.#now, ...change });
  }
}
