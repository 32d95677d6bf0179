/** One client of the public API: requests, faults in the API's words, and what each answer covers. */

import { type Proof, proofOf } from "./proof";

/** The API refused, or nothing answered (status 0). */
export class Fault extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly body: unknown = null,
  ) {
    super(message);
  }
}

export interface Answer<T> {
  readonly body: T;
  readonly proof: Proof;
  readonly headers: Headers;
}

export type Parameters = Readonly<Record<string, string | number | boolean | null | undefined>>;

export interface Asked {
  readonly query?: Parameters;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

/** Called when the API answers that the session is not logged in. */
let onLoggedOut: () => void = () => undefined;

export function whenLoggedOut(call: () => void): void {
  onLoggedOut = call;
}

let leaving = new AbortController();

/** Abandon every request that has not been answered: those who asked get an AbortError. */
export function abandonRequests(): void {
  leaving.abort();
  leaving = new AbortController();
}

/** The address of `path` with those parameters that have a value. */
export function addressOf(path: string, query: Parameters = {}): string {
  const given = Object.entries(query).flatMap(([name, value]) =>
    value === null || value === undefined || value === "" || value === false
      ? []
      : [[name, value === true ? "1" : String(value)] as [string, string]],
  );
  return given.length === 0 ? path : `${path}?${new URLSearchParams(given)}`;
}

/** The response to a request; throws a Fault for everything but a success. */
export async function fetched(method: string, path: string, asked: Asked = {}): Promise<Response> {
  // The header shows that no page of another site has sent it (docs/operations/access-control.md).
  const headers: Record<string, string> = { "Fleetlight-Request": "console", ...asked.headers };
  if (asked.body !== undefined) headers["Content-Type"] = "application/json";
  const signal = asked.signal === undefined ? leaving.signal : AbortSignal.any([asked.signal, leaving.signal]);
  let response: Response;
  try {
    response = await fetch(addressOf(path, asked.query), {
      method,
      headers,
      body: asked.body === undefined ? null : JSON.stringify(asked.body),
      signal,
      credentials: "same-origin",
    });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new Fault(0, "The API does not answer.");
  }
  if (response.ok) return response;
  if (response.status === 401 && path !== "/fleetlight/session") onLoggedOut();
  throw await faultOf(response);
}

/** Ask, and read JSON. */
export async function ask<T>(method: string, path: string, asked: Asked = {}): Promise<Answer<T>> {
  const response = await fetched(method, path, asked);
  const text = await response.text();
  const body = (text === "" ? null : JSON.parse(text)) as T;
  return { body, proof: proofOf(response.headers, Date.now()), headers: response.headers };
}

export async function get<T>(path: string, query: Parameters = {}, signal?: AbortSignal): Promise<Answer<T>> {
  return ask<T>("GET", path, signal === undefined ? { query } : { query, signal });
}

/** `{"badRequest": {"code": 400, "message": "…"}}`: the fault's own sentence. */
async function faultOf(response: Response): Promise<Fault> {
  const text = await response.text();
  try {
    const body = JSON.parse(text) as Record<string, { message?: string }>;
    const [first] = Object.values(body);
    return new Fault(response.status, first?.message ?? `The API answered ${response.status}.`, body);
  } catch {
    return new Fault(response.status, `The API answered ${response.status}.`);
  }
}

/** What to show of anything that was thrown. */
export function sentenceOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
