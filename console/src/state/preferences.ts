/** What this browser remembers: how times are shown, and light or dark. */

import { effect, signal } from "@preact/signals";

export type TimeStyle = "relative" | "local" | "utc";
export type Theme = "system" | "light" | "dark";

export const timeStyle = signal<TimeStyle>(kept("times", ["relative", "local", "utc"]));
export const theme = signal<Theme>(kept("theme", ["system", "light", "dark"]));

effect(() => keep("times", timeStyle.value));
effect(() => {
  keep("theme", theme.value);
  document.documentElement.dataset["theme"] = theme.value;
});

/** The one after `value`; the first after the last. */
export function next<T>(values: readonly T[], value: T): T {
  return values[(values.indexOf(value) + 1) % values.length] as T;
}

function kept<T extends string>(name: string, values: readonly [T, ...T[]]): T {
  try {
    const found = localStorage.getItem(`fleetlight.${name}`);
    return values.find((value) => value === found) ?? values[0];
  } catch {
    return values[0]; // a browser that keeps nothing
  }
}

function keep(name: string, value: string): void {
  try {
    localStorage.setItem(`fleetlight.${name}`, value);
  } catch {
    // Then it is forgotten with the tab.
  }
}
