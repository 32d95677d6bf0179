/** Keys: `/` filter, `j` `k` move, Enter opens, `g` and a letter goes to a page, `?` tells all, Ctrl-K the palette. */

import { type Signal, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Rows } from "../list/rows";
import { go } from "../state/address";

export interface PageKey {
  readonly key: string;
  readonly title: string;
  readonly path: string;
}

export const PAGE_KEYS: readonly PageKey[] = [
  { key: "f", title: "Fleet", path: "fleet" },
  { key: "i", title: "Instances", path: "instances" },
  { key: "r", title: "Reservations", path: "reservations" },
  { key: "n", title: "Nodes", path: "nodes" },
  { key: "j", title: "Jobs", path: "jobs" },
  { key: "l", title: "Locks", path: "locks" },
  { key: "w", title: "Networks", path: "networks" },
  { key: "c", title: "Cells", path: "cells" },
  { key: "p", title: "Capacity", path: "capacity" },
  { key: "x", title: "Index", path: "index" },
  { key: "h", title: "Changes", path: "changes" },
  { key: "b", title: "Bulk changes", path: "bulk" },
];

export const isHelpOpen = signal(false);
export const isPaletteOpen = signal(false);

const G_LASTS_MS = 1500;

/** Keys that work on every page; called once. */
export function listenToKeys(): void {
  let pressedG = -G_LASTS_MS;
  addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      isPaletteOpen.value = true;
      return;
    }
    if (isTyping(event)) return;
    if (event.key === "/") {
      event.preventDefault();
      document.getElementById("filter")?.focus();
    } else if (event.key === "?") isHelpOpen.value = true;
    else if (event.key === "g") {
      pressedG = event.timeStamp;
      return;
    } else if (event.timeStamp - pressedG < G_LASTS_MS) {
      const page = PAGE_KEYS.find(({ key }) => key === event.key);
      if (page !== undefined) {
        event.stopImmediatePropagation();
        go([page.path]);
      }
    }
    pressedG = -G_LASTS_MS;
  });
}

/** `j`, `k`, Enter and their like on a list. */
export function useListKeys(rows: Rows, selected: Signal<number>, open: (key: string) => void): void {
  useEffect(() => {
    // A row that was scrolled out of sight is left behind.
    const move = (step: number): void => {
      selected.value = Math.max(0, Math.min((rows.total.value ?? 1) - 1, rows.inWindow(selected.value) + (rows.inWindow(selected.value) === selected.value ? step : 0)));
    };
    const onKey = (event: KeyboardEvent): void => {
      if (isTyping(event)) return;
      if (event.key === "j" || event.key === "ArrowDown") move(1);
      else if (event.key === "k" || event.key === "ArrowUp") move(-1);
      else if (event.key === "Enter" && event.target instanceof HTMLElement && !/^(A|BUTTON)$/.test(event.target.tagName)) {
        const row = rows.at(selected.value);
        if (row !== undefined) open(row.key);
        return;
      } else return;
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [rows]);
}

function isTyping(event: KeyboardEvent): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog:modal") !== null) return true;
  return event.target instanceof HTMLElement && /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
}
