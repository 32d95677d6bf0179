/** The address of the page is its state: which page, and everything that was chosen on it. */

import { signal } from "@preact/signals";

const ROOT = "/console/";

export interface Address {
  /** The parts of the path behind /console/. */
  readonly path: readonly string[];
  readonly query: Readonly<Record<string, string>>;
}

export const address = signal<Address>(read());

addEventListener("popstate", () => {
  address.value = read();
});

/** The link of a page. Parameters without a value are left out. */
export function link(path: readonly string[], query: Readonly<Record<string, string | null | undefined>> = {}): string {
  const given = Object.entries(query).filter((pair): pair is [string, string] => pair[1] != null && pair[1] !== "");
  const text = given.length === 0 ? "" : `?${new URLSearchParams(given)}`;
  return ROOT + path.map(encodeURIComponent).join("/") + text;
}

/** Go to a page; back leads to this one. */
export function go(path: readonly string[], query: Readonly<Record<string, string | null | undefined>> = {}): void {
  goTo(link(path, query));
}

export function goTo(href: string): void {
  if (href !== location.pathname + location.search) push(href);
  address.value = read();
}

/** Change parameters of this page; null takes one away. isStep: whether back leads to what was before. */
export function choose(changed: Readonly<Record<string, string | null>>, isStep = true): void {
  const query: Record<string, string | null> = { ...address.value.query, ...changed };
  const href = link(address.value.path, query);
  if (href === location.pathname + location.search) return;
  if (isStep) push(href);
  else history.replaceState(null, "", href);
  address.value = read();
}

/** Where one is in a list. */
export interface Place {
  readonly first: number;
  readonly selected: number;
}

let placeNow: () => Place | null = () => null;

/** Say how to find out where one is on this page, so that one comes back to it; null on a page without places. */
export function keepPlace(read: (() => Place) | null): void {
  placeNow = read ?? (() => null);
}

/** Where one was when this page was left. */
export function placeHere(): Place | null {
  return (history.state as { place?: Place } | null)?.place ?? null;
}

function push(href: string): void {
  store();
  history.pushState(null, "", href);
}

function store(): void {
  history.replaceState({ place: placeNow() }, "");
}

addEventListener("pagehide", store);

function read(): Address {
  const path = location.pathname.startsWith(ROOT) ? location.pathname.slice(ROOT.length) : "";
  return {
    path: path.split("/").filter(Boolean).map(decoded),
    query: Object.fromEntries(new URLSearchParams(location.search)),
  };
}

/** As it stands where it is no escaped text, as with a stray `%`. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Follow links of the console without loading it anew; all other clicks stay the browser's. */
export function followLinks(event: MouseEvent): void {
  const found = event.target instanceof Element ? event.target.closest("a") : null;
  const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (found === null || !isPlain || found.target !== "" || found.hasAttribute("download")) return;
  if (found.origin !== location.origin || !found.pathname.startsWith(ROOT)) return;
  event.preventDefault();
  goTo(found.pathname + found.search);
}

/** Name the tab of the browser after what it shows. */
export function titled(name: string): void {
  document.title = `${name} · Fleetlight`;
}
