/**
 * The rows of a list of any length, of which only those near the window are kept.
 *
 * A list is read on from where a page ended, so a user who scrolls sees each row once. A jump begins anew at one of the
 * boundaries that the API tells of the whole list: where these are of a sample, the position is about right, and what
 * is before and behind it is exact. A jump into the middle of a million rows costs some ten requests.
 */

import { batch, signal } from "@preact/signals";
import { type Answer, Fault, get, type Parameters, sentenceOf } from "../api/client";
import { isAway, type Proof, worst } from "../api/proof";
import type { BoundariesAnswer, Cell, CountsAnswer, Field, QueryAnswer } from "../api/types";
import { utc } from "../query/times";

export const PAGE = 200;
const HOP = 1000;
/** So many rows before and behind the window stay. */
const KEPT = 2 * HOP;
const ROWS_BETWEEN_BOUNDARIES = 2 * HOP;
const MOST_BOUNDARIES = 100;
/** What is nearer than this is scrolled to, and not jumped to. */
const NEAR = 2 * HOP;
export const ASKED_AGAIN_MS = 5000;

/** What a list is asked for. Fields: the key of an item first, then its cell where the caller may see it. */
export interface Question {
  readonly what: string;
  readonly filter: string;
  readonly fields: readonly string[];
  readonly order: readonly string[];
  readonly asOf: string | null;
  readonly allProjects: boolean;
}

export type Mark = "changed" | "left";

export interface Row {
  readonly key: string;
  readonly cells: readonly Cell[];
  readonly mark: Mark | null;
}

interface Known {
  readonly at: number;
  readonly marker: string | null;
}

const BEGINNING: Known = { at: 0, marker: null };

export function parametersOf(question: Question): Parameters {
  return {
    what: question.what,
    fields: question.fields.join(","),
    filter: question.filter,
    order: question.order.join(","),
    as_of: question.asOf,
    all_projects: question.allProjects,
  };
}

/** A list that was read again lacks cells that it had before. */
class LessWholeError extends Error {
  constructor(before: Proof) {
    super(`Some cells do not answer now: this is the list as of ${utc(before.at)}Z. It is asked again.`);
  }
}

export class Rows {
  /** Raised with everything that is to be drawn anew. */
  readonly version = signal(0);
  readonly total = signal<number | null>(null);
  readonly isWhole = signal(true);
  /** How many there are at the least, while the total is not whole. */
  readonly least = signal(0);
  readonly proof = signal<Proof | null>(null);
  readonly problem = signal<string | null>(null);
  readonly isLoading = signal(false);
  fields: readonly Field[] = [];
  private isAnswered = false;
  private readonly rows = new Map<number, Row>();
  /** By what an item is called in the whole fleet. */
  private readonly positions = new Map<string, number>();
  /** Where the list can be read on, one place behind the other; nothing is left out between them. */
  private known: Known[] = [BEGINNING];
  /** The key of the row behind the first of these. */
  private firstKey: string | null = null;
  private boundaries: readonly Known[] = [];
  private readonly aborting = new AbortController();
  private loading: Promise<void> | null = null;
  private wanted: readonly [number, number] = [0, PAGE];
  private shown: readonly [number, number] = [0, 0];

  /** before: the same list as it was read before, which is shown until its rows are read again. */
  constructor(
    readonly question: Question,
    private before: Rows | null = null,
  ) {
    if (before !== null) {
      before.close();
      if (!before.isAnswered) this.before = before.before ?? before;
      this.proof.value = before.proof.value;
      before.before = null;
      this.fields = before.fields;
      this.known = [...before.known];
      this.firstKey = before.firstKey;
      this.boundaries = before.boundaries;
      this.total.value = before.total.value;
      this.isWhole.value = before.isWhole.value;
      this.least.value = before.least.value;
      this.shown = before.shown;
    }
    const [first, last] = this.shown;
    this.need(first, Math.max(last, first + 1));
  }

  close(): void {
    this.aborting.abort();
  }

  at(position: number): Row | undefined {
    return this.rows.get(position) ?? this.before?.at(position);
  }

  /** The position nearest to this one that is in the window. */
  inWindow(position: number): number {
    const [first, last] = this.shown;
    return Math.max(first, Math.min(last - 1, position));
  }

  /** Say which rows are in the window; those that are missing there, and a window before and after, are read. */
  need(first: number, last: number): void {
    const length = last - first;
    this.shown = [first, last];
    this.wanted = [Math.max(0, first - length), last + length];
    this.loading ??= this.load().finally(() => {
      this.loading = null;
    });
  }

  /** Show an item as it is now, if it is among the rows. Returns whether it is. */
  replace(cells: readonly Cell[]): boolean {
    return this.mark(this.identityOf(cells), "changed", cells);
  }

  /** Show that an item is not in the list any more. */
  leave(key: string, cell?: string): boolean {
    return this.mark(this.identityOf([[0, key], [0, cell ?? null]]), "left");
  }

  /** Two cells may have items of one key, such as locks. */
  private identityOf(cells: readonly Cell[]): string {
    return JSON.stringify([String(cells[0]![1]), this.question.fields[1] === "cell" ? cells[1]![1] : null]);
  }

  private mark(identity: string, mark: Mark, cells?: readonly Cell[]): boolean {
    const position = this.positions.get(identity);
    const row = position === undefined ? undefined : this.rows.get(position);
    if (position === undefined || row === undefined) return false;
    this.rows.set(position, { ...row, ...(cells === undefined ? {} : { cells }), mark });
    this.version.value++;
    return true;
  }

  private async load(): Promise<void> {
    this.isLoading.value = true;
    try {
      for (let at = this.missing(); at !== null; at = this.missing()) await this.read(at);
      this.problem.value = null;
    } catch (error) {
      if (this.aborting.signal.aborted) return;
      this.problem.value = sentenceOf(error);
      const isPassing = error instanceof LessWholeError || (error instanceof Fault && (error.status === 0 || error.status >= 500));
      if (isPassing) setTimeout(() => this.aborting.signal.aborted || this.need(...this.shown), ASKED_AGAIN_MS);
    } finally {
      this.isLoading.value = false;
    }
  }

  /** The first position in the window of which there is no row; null when there is none. */
  private missing(): number | null {
    const [first, last] = this.wanted;
    // Before the first answer the total is that of the list as it was read before, which may have been empty.
    const end = this.isAnswered ? Math.min(last, this.total.value ?? Number.POSITIVE_INFINITY) : last;
    for (let position = first; position < end; position++) if (!this.rows.has(position)) return position;
    return null;
  }

  /** Read the page that has this position, or a step towards it. */
  private async read(position: number): Promise<void> {
    const start = this.known[0]!;
    const from = this.nearest(position);
    const boundary = this.boundaries.findLast((each) => each.at <= position) ?? BEGINNING;
    if (position < start.at && position >= start.at - NEAR) return this.goBack();
    if (position < start.at || (position >= from.at + NEAR && boundary.at > from.at)) return this.jump(boundary);
    const isNear = position - from.at < PAGE;
    const fields = isNear ? this.question.fields : this.question.fields.slice(0, 1);
    const answer = await this.page(fields, isNear ? PAGE : Math.min(HOP, position - from.at), from.marker);
    const isFirst = !this.isAnswered;
    const shown = this.before === null ? null : this.proof.value;
    if (isFirst && shown !== null && skippedIn(answer.proof) > skippedIn(shown)) throw new LessWholeError(shown);
    batch(() => this.take(from, answer, isNear));
    if (isFirst && answer.body.marker !== null) void this.readBoundaries();
  }

  private page(fields: readonly string[], limit: number, marker: string | null): Promise<Answer<QueryAnswer>> {
    const asked = { ...parametersOf(this.question), fields: fields.join(","), limit, marker };
    return get<QueryAnswer>("/fleetlight/query", asked, this.aborting.signal);
  }

  /** Go on from a boundary, and forget where the list was read before. */
  private jump(boundary: Known): void {
    this.rows.clear();
    this.positions.clear();
    this.known = [boundary];
    this.firstKey = null;
  }

  /** Read the keys from the boundary before up to the first row that is known, so that its position fits to that. */
  private async goBack(): Promise<void> {
    const start = this.known[0]!;
    const boundary = this.boundaries.findLast((each) => each.at < start.at) ?? BEGINNING;
    const places: Known[] = [];
    let [count, marker, isFound] = [0, boundary.marker, false];
    while (!isFound) {
      places.push({ at: count, marker });
      const { body } = await this.page(this.question.fields.slice(0, 1), HOP, marker);
      const index = body.data.findIndex((cells) => String(cells[0]![1]) === this.firstKey);
      isFound = index !== -1 || body.marker === null;
      count += index === -1 ? body.data.length : index;
      marker = body.marker;
    }
    batch(() => {
      this.known = [...places.map(({ at, marker }) => ({ at: start.at - count + at, marker })), ...this.known];
      this.firstKey = null;
      const isBeginning = boundary.marker === null;
      if (isBeginning || start.at - count < 1) this.shift((isBeginning ? 0 : boundary.at) - (start.at - count));
      this.version.value++;
    });
  }

  /** The positions of a sample were wrong by so many rows. */
  private shift(by: number): void {
    const rows = [...this.rows];
    this.rows.clear();
    for (const [position, row] of rows) this.rows.set(position + by, row);
    for (const [identity, position] of this.positions) this.positions.set(identity, position + by);
    this.known = this.known.map(({ at, marker }) => ({ at: at + by, marker }));
    if (this.total.value !== null) this.total.value = Math.max(this.total.value, this.known.at(-1)!.at);
  }

  private take(from: Known, answer: Answer<QueryAnswer>, isShown: boolean): void {
    const { data, marker, fields } = answer.body;
    if (from === this.known[0] && data.length > 0) this.firstKey = String(data[0]![0]![1]);
    const known = this.isAnswered && this.proof.value !== null ? [this.proof.value] : [];
    this.proof.value = worst([answer.proof, ...known]);
    this.isAnswered = true;
    if (isShown) {
      this.fields = fields;
      data.forEach((cells, index) => this.keep(from.at + index, cells));
    }
    const end = from.at + data.length;
    if (marker === null) {
      this.total.value = end;
      this.isWhole.value = true;
    } else {
      this.remember({ at: end, marker });
      if (this.total.value === null || this.total.value <= end) {
        this.total.value = end + PAGE; // until it is known how many there are
        this.isWhole.value = false;
        this.least.value = end;
      }
    }
    if (data.length === 0 && marker !== null) this.known = this.known.filter((each) => each !== from);
    this.forget();
    this.version.value++;
  }

  private keep(position: number, cells: readonly Cell[]): void {
    const key = String(cells[0]![1]);
    this.rows.set(position, { key, cells, mark: null });
    this.positions.set(this.identityOf(cells), position);
  }

  /** Drop what is far from the window. */
  private forget(): void {
    const [first, last] = this.wanted;
    if (this.rows.size <= 2 * KEPT) return;
    for (const [position, row] of this.rows) {
      if (position >= first - KEPT && position <= last + KEPT) continue;
      this.rows.delete(position);
      const identity = this.identityOf(row.cells);
      if (this.positions.get(identity) === position) this.positions.delete(identity);
    }
  }

  private async readBoundaries(): Promise<void> {
    try {
      const counting = { ...parametersOf(this.question), fields: null, order: null };
      const counted = await get<CountsAnswer>("/fleetlight/query/counts", counting, this.aborting.signal);
      const total = counted.body.groups[0]?.count ?? 0;
      this.settle(total, !counted.body.partial);
      if (total <= 2 * HOP) return;
      const parts = Math.min(MOST_BOUNDARIES, Math.ceil(total / ROWS_BETWEEN_BOUNDARIES));
      const asked = { ...parametersOf(this.question), fields: null, parts };
      const found = await get<BoundariesAnswer>("/fleetlight/query/boundaries", asked, this.aborting.signal);
      this.boundaries = found.body.boundaries.map(({ before, marker }) => ({ at: before, marker }));
      if (!found.body.partial) this.settle(found.body.total, true);
    } catch {
      // Then the list can only be scrolled through from its beginning.
    }
  }

  private settle(total: number, isWhole: boolean): void {
    batch(() => {
      this.total.value = Math.max(total, this.known.at(-1)!.at);
      this.isWhole.value = isWhole;
      this.least.value = this.total.value;
      this.version.value++;
    });
  }

  private remember(found: Known): void {
    const index = this.known.findIndex((each) => each.at >= found.at);
    if (index === -1) this.known.push(found);
    else if (this.known[index]!.at !== found.at) this.known.splice(index, 0, found);
  }

  /** The last place at or before `position` from which the list can go on. */
  private nearest(position: number): Known {
    return this.known.findLast((each) => each.at <= position) ?? this.known[0]!;
  }
}

function skippedIn({ routes }: Proof): number {
  return routes.reduce((sum, { route, count }) => sum + (route === "skipped" ? count : 0), 0);
}

/** How the cell of a row answered: whether the row may be out of date, and how old it is in seconds. */
export function awayOf(row: Row, proof: Proof | null): { readonly ageS: number | null } | null {
  const name = row.cells[1]?.[1];
  const found = proof?.routes.find((route) => route.cell === name && isAway(route.route));
  return found === undefined ? null : { ageS: found.ageS };
}
