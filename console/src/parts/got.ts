/** An answer of the API that is asked for once. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get, type Parameters } from "../api/client";

/** Null until it is there, and where it cannot be had: then the page does without. */
export function useGot<T>(path: string, query: Parameters = {}): T | null {
  const body = useSignal<T | null>(null);
  useEffect(() => {
    get<T>(path, query)
      .then((answer) => (body.value = answer.body))
      .catch(() => undefined);
  }, [path, JSON.stringify(query)]);
  return body.value;
}
