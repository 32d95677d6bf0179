/** What changed lately: read backwards page by page, and kept up to date at its beginning. */

import { signal } from "@preact/signals";
import { get, type Parameters, sentenceOf } from "../api/client";
import { listen } from "../api/shared_stream";
import type { Json } from "../api/types";
import type { LiveState } from "../parts/live_bar";
import { fixed } from "../query/times";

/** One change; `changed` has each field with its value before and after. */
export interface Change {
  readonly revision: number;
  readonly at: string;
  readonly event: string | null;
  readonly publisher: string | null;
  readonly request_id: string | null;
  readonly user_id: string | null;
  readonly changed: Readonly<Record<string, readonly [Json, Json]>> | null;
}

export interface RecentChange extends Change {
  readonly instance: { readonly id: string; readonly name: string; readonly project_id: string | null; readonly cell?: string; readonly deleted: boolean };
}

export interface RecentAnswer {
  readonly changes: readonly RecentChange[];
  readonly marker: string | null;
  readonly complete: boolean;
  readonly missing?: readonly { readonly cell: string; readonly reason: string }[];
}

const PAGE = 100;
const MOST_PAGES = 5;
/** Changes that follow each other are read together. */
const TOGETHER_MS = 1000;

export class Recent {
  readonly changes = signal<readonly RecentChange[]>([]);
  readonly newest = signal<RecentAnswer | null>(null);
  readonly marker = signal<string | null>(null);
  readonly problem = signal("");
  readonly isBusy = signal(false);
  readonly state = signal<LiveState>("waiting");
  readonly reason = signal("");
  /** How many changes came while it was paused. */
  readonly pending = signal(0);
  private readonly aborting = new AbortController();
  private timer: ReturnType<typeof setTimeout> | null = null;
  private readonly stop: () => void;

  /** narrowed: by whom, from when and to when, as the API takes it. */
  constructor(
    private readonly filter: string,
    private readonly allProjects: boolean,
    private readonly narrowed: Parameters = {},
  ) {
    this.stop = listen("/fleetlight/changes", { what: "instance", filter: fixed(filter, Date.now()), all_projects: allProjects }, {
      event: ({ name }) => this.hear(name),
      state: (isLive, reason) => {
        if (this.state.value !== "paused") this.state.value = isLive ? "live" : "waiting";
        this.reason.value = reason;
      },
    });
    void this.again();
  }

  close(): void {
    this.stop();
    this.aborting.abort();
    if (this.timer !== null) clearTimeout(this.timer);
  }

  pause(isPaused: boolean): void {
    this.state.value = isPaused ? "paused" : "live";
    if (!isPaused && this.pending.value > 0) void this.again();
  }

  /** Read what is new. */
  again(): Promise<void> {
    return this.attempt(async () => {
      const answer = await this.page(null);
      const known = this.changes.value;
      const isJoined = answer.marker === null || known.length === 0 || answer.changes.some((each) => keyOf(each) === keyOf(known[0]!));
      this.changes.value = isJoined ? joined(answer.changes, known) : answer.changes;
      if (!isJoined || known.length === 0) this.marker.value = answer.marker;
      this.newest.value = answer;
      this.pending.value = 0;
    });
  }

  /** Read on from the oldest change: several pages, where the filter lets few pass. */
  older(): Promise<void> {
    return this.attempt(async () => {
      for (let [pages, found] = [0, 0]; pages < MOST_PAGES && found === 0 && this.marker.value !== null; pages++) {
        const marker: string = this.marker.value;
        const answer = await this.page(marker);
        // The list may have begun anew meanwhile.
        if (this.marker.value !== marker) return;
        this.changes.value = joined(this.changes.value, answer.changes);
        this.marker.value = answer.marker;
        found = answer.changes.length;
      }
    });
  }

  private hear(name: string): void {
    if (name === "ready") return;
    if (this.state.value === "paused") this.pending.value++;
    else
      this.timer ??= setTimeout(() => {
        this.timer = null;
        if (this.state.value === "paused") this.pending.value++;
        else void this.again();
      }, TOGETHER_MS);
  }

  private async page(marker: string | null): Promise<RecentAnswer> {
    const asked = { ...this.narrowed, filter: this.filter, all_projects: this.allProjects, limit: PAGE, marker };
    return (await get<RecentAnswer>("/fleetlight/changes/recent", asked, this.aborting.signal)).body;
  }

  private async attempt(work: () => Promise<void>): Promise<void> {
    this.isBusy.value = true;
    try {
      await work();
      this.problem.value = "";
    } catch (error) {
      if (!this.aborting.signal.aborted) this.problem.value = sentenceOf(error);
    } finally {
      this.isBusy.value = false;
    }
  }
}

/** Both, the newer first; each change once. */
export function joined(newer: readonly RecentChange[], older: readonly RecentChange[]): readonly RecentChange[] {
  const told = new Set(newer.map(keyOf));
  return [...newer, ...older.filter((each) => !told.has(keyOf(each)))];
}

export function keyOf({ instance, revision, at }: RecentChange): string {
  return `${instance.id} ${revision} ${at}`;
}

const PHASES: Readonly<Record<string, string>> = { start: "begun", end: "done", error: "failed" };

/** "instance.power_off.end" in words: "Power off: done". */
export function eventText(event: string | null): string {
  if (event === null) return "Changed";
  const words = event.replace(/^instance\./, "").split(".");
  const phase = PHASES[words.at(-1) ?? ""];
  const text = (phase === undefined ? words : words.slice(0, -1)).join(" ").replaceAll("_", " ");
  const named = text.charAt(0).toUpperCase() + text.slice(1);
  return phase === undefined ? named : `${named}: ${phase}`;
}
