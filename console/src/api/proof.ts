/** What an answer covers: its headers, read. The rules are docs/reference/headers.md. */

export type Route = "index" | "live" | "changelog" | "index-while-down" | "skipped";

/** How one cell answered; of a very large fleet, how `count` cells did. ageS: seconds; null where it is not said. */
export interface CellRoute {
  readonly cell: string | null;
  readonly route: Route;
  readonly count: number;
  readonly watermark: number | null;
  readonly ageS: number | null;
}

export interface Proof {
  readonly isComplete: boolean;
  readonly routes: readonly CellRoute[];
  readonly at: number;
}

/** Of the headers of an answer that came at `at` (milliseconds since the epoch). */
export function proofOf(headers: Headers, at: number): Proof {
  return {
    isComplete: headers.get("Fleetlight-Complete") === "true",
    routes: routesOf(headers.get("Fleetlight-Route") ?? ""),
    at,
  };
}

/** `cell1=index;watermark=7;age=0.8, *live=2`: a member of a dictionary (RFC 8941) for each cell or each route. */
export function routesOf(header: string): CellRoute[] {
  return header.split(",").flatMap((member): CellRoute[] => {
    const [item = "", ...parameters] = member.trim().split(";");
    if (item === "") return [];
    const [key = "", value] = item.split("=");
    const named = Object.fromEntries(parameters.map((each) => each.trim().split("=") as [string, string]));
    const rest = { watermark: numberOf(named["watermark"]), ageS: numberOf(named["age"]) };
    if (key.startsWith("*")) return [{ cell: null, route: key.slice(1) as Route, count: Number(value), ...rest }];
    if (value === undefined) return [{ cell: null, route: key as Route, count: 1, ...rest }];
    return [{ cell: key, route: value as Route, count: 1, ...rest }];
  });
}

/** The proof of several pages of one list: complete if all are, and as old as the oldest. */
export function worst(proofs: readonly Proof[]): Proof | null {
  const [first, ...rest] = proofs;
  if (first === undefined) return null;
  return rest.reduce((all, each) => {
    const older = (ageOf(each) ?? 0) > (ageOf(all) ?? 0) ? each : all;
    const isComplete = all.isComplete && each.isComplete;
    return { ...(isComplete || older.isComplete === isComplete ? older : all.isComplete ? each : all), isComplete };
  }, first);
}

/** How old the oldest row may be, in seconds, as its cell says. */
export function ageOf(proof: Proof): number | null {
  const ages = proof.routes.flatMap((route) => (route.ageS === null ? [] : [route.ageS]));
  return ages.length === 0 ? null : Math.max(...ages);
}

/** The cells whose rows are missing, or may be out of date. */
export function isAway(route: Route): boolean {
  return route === "skipped" || route === "index-while-down";
}

function numberOf(text: string | undefined): number | null {
  return text === undefined ? null : Number(text);
}
