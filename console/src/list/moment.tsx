/** The list as of a moment, and what differs between two: a slider that shows how far back each cell is kept. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get } from "../api/client";
import { now } from "../parts/glyphs";
import { instant, momentOf, shownSpan, utc } from "../query/times";
import { address, choose } from "../state/address";
import { caller } from "../state/session";

export interface Past {
  readonly name: string;
  /** The earliest moment; null where no past is kept. */
  readonly since: number | null;
}

const STEPS = 1000;
/** How far back the slider goes where it is not known how far the cells go. */
const USUAL_MS = 24 * 3600 * 1000;
/** Changes may still be committed into the newest moments. */
const SETTLED_MS = 5000;

/** How far back each cell is kept; empty where the caller may not know. */
export function usePasts(isWanted: boolean): readonly Past[] | null {
  const pasts = useSignal<readonly Past[] | null>(null);
  const isAdmin = caller().is_admin;
  useEffect(() => {
    if (!isWanted) return;
    if (!isAdmin) {
      pasts.value = [];
      return;
    }
    get<{ cells: { name: string; keeps_past_until: string | null }[] }>("/fleetlight/cells")
      .then(({ body }) => {
        pasts.value = body.cells.map(({ name, keeps_past_until: since }) => ({ name, since: since === null ? null : momentOf(since) }));
      })
      .catch(() => {
        pasts.value = [];
      });
  }, [isWanted, isAdmin]);
  return pasts.value;
}

export function MomentBar({ pasts }: { pasts: readonly Past[] }) {
  const asOf = address.value.query["as_of"];
  const against = address.value.query["against"];
  const kept = pasts.flatMap(({ since }) => (since === null ? [] : [since]));
  const earliest = kept.length === 0 ? now.value - USUAL_MS : Math.max(...kept);
  const at = asOf === undefined ? now.value : momentOf(asOf);
  const without = pasts.filter(({ since }) => since === null).map(({ name }) => name);
  return (
    <section class="moment" aria-label="Time">
      <label>
        As of
        <input
          type="range"
          min={0}
          max={STEPS}
          value={placeOf(at, earliest)}
          aria-valuetext={asOf === undefined ? "now" : `${utc(at)} UTC`}
          list="kept"
          onChange={(event) => {
            const chosen = momentAt(Number(event.currentTarget.value), earliest);
            choose({ as_of: instant(Math.min(chosen, now.value - SETTLED_MS)) });
          }}
        />
      </label>
      <datalist id="kept">
        {pasts.map(({ name, since }) => since !== null && <option key={name} value={placeOf(since, earliest)} label={name} />)}
      </datalist>
      <label>
        <span class="hidden">Moment in UTC</span>
        <input
          type="datetime-local"
          step={1}
          value={utc(at).replace(" ", "T")}
          onChange={(event) => event.currentTarget.value !== "" && choose({ as_of: instant(momentOf(event.currentTarget.value)) })}
        />
        UTC
      </label>
      <button type="button" onClick={() => choose({ as_of: null, against: null, past: null })}>
        Now
      </button>
      <button type="button" aria-pressed={against !== undefined} onClick={() => choose({ against: against === undefined ? "now" : null })}>
        Compare with now
      </button>
      <span class="hint">
        {kept.length > 0 && `Kept for ${shownSpan((now.value - earliest) / 1000)}.`}
        {without.length > 0 && ` Left out, since they keep no past: ${without.join(", ")}.`}
      </span>
    </section>
  );
}

function placeOf(at: number, earliest: number): number {
  return Math.round((STEPS * (at - earliest)) / Math.max(1, now.value - earliest));
}

function momentAt(place: number, earliest: number): number {
  return earliest + (place / STEPS) * (now.value - earliest);
}
