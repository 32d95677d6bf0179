/** The names of users, where the API has a directory of them; else they are shown by their ids. */

import { signal } from "@preact/signals";
import { get } from "../api/client";
import type { Named } from "../api/types";
import { caller } from "./session";

const names = signal<Readonly<Record<string, string>>>({});
let askedBy = "";

export function nameOf(id: string): string {
  const { user, is_admin: isAdmin, logins } = caller();
  // Administrators may list the users of Fleetlight's own directory, which is where tokens come from.
  if (isAdmin && logins.includes("token") && askedBy !== user.id) {
    askedBy = user.id;
    get<{ users: readonly Named[] }>("/identity/v3/users")
      .then(({ body }) => {
        names.value = Object.fromEntries(body.users.map(({ id: each, name }) => [each, name]));
      })
      .catch(() => undefined);
  }
  return (askedBy === user.id ? names.value[id] : undefined) ?? (id === user.id ? user.name : id);
}
