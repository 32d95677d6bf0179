/** The shapes of the API's answers that the console reads (docs/reference; GET /openapi.json has all of them). */

/** The status of a value, by number: normal, unknown field, no data, not available, offline (Ganeti's Query2). */
export type Status = 0 | 1 | 2 | 3 | 4;
export type Json = string | number | boolean | null | readonly Json[] | { readonly [name: string]: Json };
export type Cell = readonly [Status, Json];
export type Kind = "text" | "bool" | "number" | "float" | "unit" | "timestamp" | "other" | "unknown";

export interface Field {
  readonly name: string;
  readonly title: string;
  readonly kind: Kind;
  readonly doc: string;
  /** Whether items can be sorted by it; of the fields of an answer not said. */
  readonly sortable?: boolean;
}

export interface QueryAnswer {
  readonly fields: readonly Field[];
  readonly data: readonly (readonly Cell[])[];
  readonly marker: string | null;
}

export interface Group {
  readonly by: Readonly<Record<string, Json>>;
  readonly statuses: Readonly<Record<string, Status>>;
  readonly count: number;
}

export interface CountsAnswer {
  readonly groups: readonly Group[];
  readonly partial: boolean;
}

export interface Boundary {
  readonly before: number;
  readonly value: Cell;
  readonly marker: string | null;
}

export interface BoundariesAnswer {
  readonly total: number;
  readonly partial: boolean;
  readonly boundaries: readonly Boundary[];
}

export interface Named {
  readonly id: string;
  readonly name: string;
}

/** Where no one is logged in, it says by what one can be. */
export interface NoSession {
  readonly user: null;
  readonly logins: readonly string[];
  readonly openid: { readonly name: string } | null;
}

export interface SessionAnswer {
  readonly user: Named;
  readonly project: Named | null;
  readonly projects: readonly Named[];
  readonly is_admin: boolean;
  readonly logins: readonly string[];
  /** Where to go after the log-out, to end the login at the provider too. */
  readonly logout_page: string | null;
}
