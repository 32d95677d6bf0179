/** Who is logged in. The cookie itself is the browser's: no script can read it. */

import { signal } from "@preact/signals";
import { abandonRequests, ask, Fault, get, whenLoggedOut } from "../api/client";
import type { NoSession, SessionAnswer } from "../api/types";
import { forgetFields } from "./fields";

/** provider: the name of the OpenID provider, where there is one. */
export interface Ways {
  readonly logins: readonly string[];
  readonly provider: string | null;
}

export type Session =
  | { readonly state: "asking" }
  | { readonly state: "out"; readonly ways: Ways }
  | { readonly state: "in"; readonly caller: SessionAnswer }
  | { readonly state: "failed"; readonly reason: string };

export const session = signal<Session>({ state: "asking" });

whenLoggedOut(() => void openSession());

/** Find out who is logged in. */
export async function openSession(): Promise<void> {
  const given = new URLSearchParams(location.hash.slice(1)).get("login");
  try {
    if (given !== null) history.replaceState(null, "", location.pathname + location.search);
    const { body } = await get<SessionAnswer | NoSession>("/fleetlight/session");
    if (given !== null && body.user === null) {
      // Ignored if a user is logged in: the link of another user must not change the session.
      await logIn({ link: given });
      return;
    }
    session.value = body.user === null ? { state: "out", ways: waysOf(body) } : { state: "in", caller: body };
  } catch (error) {
    session.value = refused(error);
  }
}

/** Raises a Fault when the login is refused. */
export async function logIn(login: Readonly<Record<string, string>>): Promise<void> {
  const answer = await ask<SessionAnswer>("POST", "/fleetlight/session", { body: login });
  forgetFields();
  session.value = { state: "in", caller: answer.body };
}

export async function logOut(): Promise<void> {
  const page = caller().logout_page;
  // The page goes before its session does: what it still asked for would be refused.
  session.value = { state: "asking" };
  abandonRequests();
  try {
    await ask("DELETE", "/fleetlight/session");
  } catch (error) {
    session.value = refused(error);
    return;
  }
  if (page === null) await openSession();
  else location.assign(page);
}

/** The caller; only asked for on pages that are shown to those who are logged in. */
export function caller(): SessionAnswer {
  if (session.value.state !== "in") throw new Error("no user is logged in");
  return session.value.caller;
}

function refused(error: unknown): Session {
  if (error instanceof Fault && error.status === 401) {
    return { state: "out", ways: waysOf(error.body as Partial<NoSession> | null) };
  }
  return { state: "failed", reason: error instanceof Error ? error.message : String(error) };
}

function waysOf(said: Partial<NoSession> | null): Ways {
  return { logins: said?.logins ?? ["password"], provider: said?.openid?.name ?? null };
}
