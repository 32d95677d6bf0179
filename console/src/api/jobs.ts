/** Jobs of native cells: submitted over the remote API, and followed to their end. */

import { ask, Fault } from "./client";

interface Job {
  readonly status: string;
  readonly opresult: readonly unknown[];
}

const ENDED = ["success", "error", "canceled"];
const WAIT_MS = 500;

/** Submit a job, and wait for its end. Throws a Fault with the job's own reason when it fails. */
export async function carriedOut(method: string, path: string, body?: unknown): Promise<number> {
  const { body: number } = await ask<number>(method, path, body === undefined ? {} : { body });
  for (;;) {
    const { body: job } = await ask<Job>("GET", `/2/jobs/${number}`);
    if (job.status === "success") return number;
    if (ENDED.includes(job.status)) throw new Fault(0, `Job ${number} ended with ${job.status}: ${reasonOf(job)}`);
    await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
  }
}

/** Of Ganeti's encoded errors, `[class, [message, …]]`, the message. */
function reasonOf({ opresult }: Job): string {
  const found = opresult.find((each) => Array.isArray(each) && Array.isArray(each[1]));
  return Array.isArray(found) ? String(found[1][0]) : "it gave no reason";
}
