/** An answer of the API that is asked for again and again while a page is shown. */

import { type Signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { type Answer, get, type Parameters, sentenceOf } from "../api/client";

export interface Polled<T> {
  readonly answer: Signal<Answer<T> | null>;
  /** Why the newest request failed; "" while all is well. What was known stays. */
  readonly problem: Signal<string>;
  readonly again: () => Promise<void>;
}

export function usePolled<T>(path: string, everyMs: number, query: Parameters = {}): Polled<T> {
  const answer = useSignal<Answer<T> | null>(null);
  const problem = useSignal("");
  const asked = JSON.stringify(query);
  const again = async (): Promise<void> => {
    try {
      answer.value = await get<T>(path, query);
      problem.value = "";
    } catch (error) {
      problem.value = sentenceOf(error);
    }
  };
  useEffect(() => {
    void again();
    const timer = setInterval(() => document.visibilityState === "visible" && void again(), everyMs);
    const onOnline = (): void => void again();
    addEventListener("online", onOnline);
    return () => {
      clearInterval(timer);
      removeEventListener("online", onOnline);
    };
  }, [path, everyMs, asked]);
  return { answer, problem, again };
}
