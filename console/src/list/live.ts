/** The changes of a list: rows change in place, and what enters or leaves waits until it is taken in. */

import { signal } from "@preact/signals";
import type { Cell } from "../api/types";
import { listen } from "../api/shared_stream";
import type { LiveState } from "../parts/live_bar";
import { fixed } from "../query/times";
import type { Rows } from "./rows";

/** Of more changes than these while it was paused, the list is read again instead. */
const MOST_HELD = 1000;

/** An index that is further behind than this (search.staleness_limit_s) gives no complete list. */
const SETTLED_MS = 5000;

export class Live {
  readonly state = signal<LiveState>("waiting");
  readonly reason = signal("");
  /** How many items entered or left since the list was read. */
  readonly pending = signal(0);
  private readonly stop: () => void;
  private readonly held: (() => void)[] = [];
  private isPaused = false;
  private hasBegun = false;
  private lastChange = 0;
  private settling: ReturnType<typeof setTimeout> | null = null;
  private isSettled = false;

  /** onReset: called when the list has to be read again: changes were missed, or a cell went away or came back. */
  constructor(
    private rows: Rows,
    private readonly onReset: () => void,
  ) {
    const { what, filter, fields, allProjects } = rows.question;
    const query = { what, filter: fixed(filter, Date.now()), fields: fields.join(","), all_projects: allProjects };
    this.stop = listen("/fleetlight/changes", query, {
      event: (event) => this.take(() => this.apply(event.name, event.data)),
      state: (isLive, reason) => {
        if (!this.isPaused) this.state.value = isLive ? "live" : "waiting";
        this.reason.value = reason;
        // The list may be older than the first change that comes: once it is read again nothing is between the two.
        if (isLive && !this.hasBegun) this.settle();
        this.hasBegun ||= isLive;
      },
    });
  }

  /** The list is read again: twice, where the index may not have had the last changes yet. */
  show(rows: Rows): void {
    this.rows = rows;
    if (!this.isSettled) {
      this.pending.value = 0;
      if (Date.now() - this.lastChange < SETTLED_MS) this.settle();
    }
    this.isSettled = false;
  }

  close(): void {
    this.stop();
    if (this.settling !== null) clearTimeout(this.settling);
  }

  /** Hold changes back, or let them through again. */
  pause(isPaused: boolean): void {
    this.isPaused = isPaused;
    this.state.value = isPaused ? "paused" : "live";
    if (isPaused) return;
    const held = this.held.splice(0);
    if (held.length > MOST_HELD) this.onReset();
    else for (const apply of held) apply();
  }

  /** Read the list again once every index that counts as complete has the changes of now. What came since stays pending. */
  private settle(): void {
    this.settling ??= setTimeout(() => {
      this.settling = null;
      this.isSettled = true;
      this.onReset();
    }, SETTLED_MS);
  }

  private take(apply: () => void): void {
    if (!this.isPaused) apply();
    else if (this.held.length <= MOST_HELD) this.held.push(apply);
  }

  private apply(name: string, data: unknown): void {
    this.lastChange = Date.now();
    const change = data as { id: string; cell?: string; cells?: readonly Cell[] } | null;
    if (name === "reset" || name === "incomplete" || (name === "complete" && this.rows.proof.value?.isComplete === false)) this.onReset();
    else if (change === null) return;
    else if (name === "leave") {
      if (this.rows.leave(change.id, change.cell)) this.pending.value++;
    } else if (name === "enter" || name === "change") {
      const isThere = change.cells !== undefined && this.rows.replace(change.cells);
      if (!isThere && name === "enter") this.pending.value++;
    }
  }
}
