/** A request of the user, and its outcome. */

import { type Signal, useSignal } from "@preact/signals";
import { sentenceOf } from "../api/client";

export interface Attempts {
  /** What became of the last one. */
  readonly said: Signal<string>;
  /** done: what is said when it is done. Returns whether it was. */
  readonly attempt: (work: () => Promise<unknown>, done?: string) => Promise<boolean>;
}

/** then: called after each, however it ended. */
export function useAttempts(then?: () => Promise<unknown>): Attempts {
  const said = useSignal("");
  const attempt = async (work: () => Promise<unknown>, done = ""): Promise<boolean> => {
    try {
      await work();
      said.value = done;
      return true;
    } catch (error) {
      said.value = sentenceOf(error);
      return false;
    } finally {
      await then?.();
    }
  };
  return { said, attempt };
}
