/** Ctrl-K: go to any page or instance by typing a part of its name. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get } from "../api/client";
import type { QueryAnswer, SessionAnswer } from "../api/types";
import { expressionOf } from "../query/language";
import { pagesOf } from "../pages/pages";
import { goTo, link } from "../state/address";
import { logOut } from "../state/session";
import { Dialog } from "./dialog";
import { printable } from "./glyphs";
import { isPaletteOpen } from "./keys";

interface Entry {
  readonly text: string;
  readonly hint: string;
  readonly act: () => void;
}

const WAIT_MS = 150;
const MOST = 8;

export function Palette({ caller }: { caller: SessionAnswer }) {
  const typed = useSignal("");
  const chosen = useSignal(0);
  const instances = useSignal<readonly Entry[]>([]);
  useEffect(() => {
    const aborting = new AbortController();
    const waiting = setTimeout(() => {
      void found(typed.value, caller, aborting.signal).then((entries) => {
        instances.value = entries;
      });
    }, WAIT_MS);
    return () => {
      clearTimeout(waiting);
      aborting.abort();
    };
  }, [typed.value]);
  const close = (): void => {
    isPaletteOpen.value = false;
  };
  const wanted = typed.value.toLowerCase();
  const fixed = [...pages(caller), ...actions(caller)].filter(({ text }) => text.toLowerCase().includes(wanted));
  const entries = [...fixed.slice(0, MOST), ...instances.value];
  const take = (entry: Entry | undefined): void => {
    close();
    entry?.act();
  };
  return (
    <Dialog title="Go to" onClose={close}>
      <input
        type="text"
        role="combobox"
        aria-label="Page, instance or action"
        aria-expanded="true"
        aria-controls="palette"
        aria-activedescendant={`palette-${chosen.value}`}
        autofocus
        value={typed.value}
        onInput={(event) => {
          typed.value = event.currentTarget.value;
          chosen.value = 0;
        }}
        onKeyDown={(event) => {
          if (event.key === "ArrowDown") chosen.value = Math.min(entries.length - 1, chosen.value + 1);
          else if (event.key === "ArrowUp") chosen.value = Math.max(0, chosen.value - 1);
          else if (event.key === "Enter") take(entries[chosen.value]);
          else return;
          event.preventDefault();
        }}
      />
      <ul id="palette" role="listbox" aria-label="Found" class="palette">
        {entries.map((entry, index) => (
          <li
            key={`${entry.hint} ${entry.text}`}
            id={`palette-${index}`}
            role="option"
            aria-selected={index === chosen.value}
            onClick={() => take(entry)}
          >
            <bdi>{entry.text}</bdi> <span class="hint">{entry.hint}</span>
          </li>
        ))}
      </ul>
    </Dialog>
  );
}

function pages(caller: SessionAnswer): Entry[] {
  return pagesOf(caller).map(({ path, title }) => ({ text: title, hint: "page", act: () => goTo(link([path])) }));
}

function actions(caller: SessionAnswer): Entry[] {
  return caller.logins.length === 0 ? [] : [{ text: "Log out", hint: "action", act: () => void logOut() }];
}

/** Instances with the words in their names; none while nothing is typed, or where the words are no names. */
async function found(text: string, caller: SessionAnswer, signal: AbortSignal): Promise<Entry[]> {
  if (!/^[\w.*?-]+(\s+[\w.*?-]+)*$/.test(text.trim())) return [];
  const filter = expressionOf(text, () => false);
  const query = { fields: "uuid,name", filter, limit: MOST, all_projects: caller.is_admin };
  try {
    const { body } = await get<QueryAnswer>("/fleetlight/query", query, signal);
    return body.data.map(([uuid, name]) => ({
      text: printable(String(name![1])),
      hint: `instance ${String(uuid![1])}`,
      act: () => goTo(link(["instances", String(uuid![1])])),
    }));
  } catch {
    return []; // it was left, or the text is no filter yet
  }
}
