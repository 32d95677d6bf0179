/** The login, by every way that the API takes. */

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { addressOf, sentenceOf } from "../api/client";
import { Problem } from "../parts/awaited";
import { Icon } from "../parts/icons";
import { logIn, type Ways } from "../state/session";

export function Login({ ways: { logins, provider } }: { ways: Ways }) {
  const problem = useSignal("");
  const isBusy = useSignal(false);
  const first = useRef<HTMLInputElement>(null);
  useEffect(() => first.current?.focus(), []);
  const submit = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const login = Object.fromEntries([...form].filter(([, value]) => value !== "").map(([name, value]) => [name, String(value)]));
    isBusy.value = true;
    problem.value = "";
    try {
      await logIn(login);
    } catch (error) {
      problem.value = sentenceOf(error);
    } finally {
      isBusy.value = false;
    }
  };
  return (
    <main class="alone">
      <h1><Icon name="mark" /> Fleetlight</h1>
      <p>One list of everything that runs, over every cell. Log in to see what you may see of it.</p>
      <Problem text={problem.value} />
      {provider !== null && (
        <p>
          <a class="button" href={addressOf("/fleetlight/session/openid", { next: location.pathname + location.search })}>Sign in with {provider}</a>
        </p>
      )}
      {logins.includes("password") && (
        <form onSubmit={(event) => void submit(event)}>
          <label>
            User
            <input name="user" autocomplete="username" ref={first} required />
          </label>
          <label>
            Password
            <input name="password" type="password" autocomplete="current-password" required />
          </label>
          <label>
            Project (if you have several)
            <input name="project" autocomplete="off" />
          </label>
          <button type="submit" class="primary" disabled={isBusy.value}>Log in</button>
        </form>
      )}
      {logins.includes("token") && (
        <details>
          <summary>Log in with a token</summary>
          <form onSubmit={(event) => void submit(event)}>
            <label>
              Token
              <input name="token" type="password" autocomplete="off" required />
            </label>
            <button type="submit" disabled={isBusy.value}>Log in</button>
          </form>
        </details>
      )}
    </main>
  );
}
