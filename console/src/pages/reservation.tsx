/** Reservations: capacity that is taken before anything runs (docs/reference/rapi.md). */

import { type Signal, useSignal } from "@preact/signals";
import { sentenceOf } from "../api/client";
import { carriedOut } from "../api/jobs";
import type { QueryAnswer } from "../api/types";
import { useAttempts } from "../parts/attempt";
import { Confirm, useAsked } from "../parts/confirm";
import { Dialog } from "../parts/dialog";
import { useGot } from "../parts/got";
import { Icon } from "../parts/icons";
import { SizeFields, sizeOf } from "../parts/size_fields";

const DAY_S = 86_400;

/** What became of the last thing that was done, and a function that does one. */
function useWork(): { said: Signal<string>; isBusy: Signal<boolean>; work: (done: string, act: () => Promise<unknown>) => Promise<boolean> } {
  const isBusy = useSignal(false);
  const { said, attempt } = useAttempts(async () => (isBusy.value = false));
  const work = (done: string, act: () => Promise<unknown>): Promise<boolean> => {
    isBusy.value = true;
    said.value = "A job is under way…";
    return attempt(act, done);
  };
  return { said, isBusy, work };
}

export function NewReservation({ onMade }: { onMade: () => void }) {
  const isOpen = useSignal(false);
  const { said, isBusy, work } = useWork();
  const submit = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const names = namesOf(String(form.get("name")), Number(form.get("count")));
    const act = async (): Promise<void> => {
      // One behind the other, since each goes to where most room is left.
      for (const [made, name] of names.entries()) {
        said.value = `${made} of ${names.length} reserved…`;
        await carriedOut("POST", "/2/instances", reservationOf(name, form)).catch((error: unknown) => {
          throw made === 0 ? error : new Error(`${made} of ${names.length} are reserved, up to ${names[made - 1]}. Of ${name}: ${sentenceOf(error)}`);
        });
      }
    };
    if (await work(names.length === 1 ? `${names[0]} is reserved.` : `${names.length} are reserved, ${names[0]} to ${names.at(-1)}.`, act)) isOpen.value = false;
    onMade();
  };
  return (
    <>
      <button
        type="button"
        onClick={() => {
          isOpen.value = true;
          said.value = "";
        }}
        class="primary"
      >
        <Icon name="plus" /> Reserve
      </button>
      {!isOpen.value && said.value !== "" && <span role="status">{said.value}</span>}
      {isOpen.value && (
        <Dialog title="Reserve capacity" onClose={() => (isOpen.value = false)}>
          <form onSubmit={(event) => void submit(event)}>
            <label>Name <input name="name" required /></label>
            <label>How many <input name="count" type="number" min="1" max="100" defaultValue="1" required /></label>
            <SizeFields leastDisk={1} />
            <SystemChoice />
            <label>Ends after so many days (empty: never) <input name="days" type="number" min="1" max="3650" /></label>
            {said.value !== "" && <p role="status">{said.value}</p>}
            <button type="submit" class="primary" disabled={isBusy.value}>Reserve</button>
          </form>
        </Dialog>
      )}
    </>
  );
}

/** The operating system, which it needs to be made real. */
function SystemChoice() {
  const systems = useGot<QueryAnswer>("/fleetlight/query", { what: "os", fields: "name", limit: 200 });
  const names = new Set(systems?.data.map(([name]) => String(name![1])));
  return (
    <label>
      Operating system <input name="os" list="systems" required />
      <datalist id="systems">
        {[...names].map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
    </label>
  );
}

/** Of several, each name has its number behind its first part: batch-1.example.org. */
export function namesOf(name: string, count: number): readonly string[] {
  if (count === 1) return [name];
  const [first = "", ...rest] = name.split(".");
  return Array.from({ length: count }, (_, index) => [`${first}-${index + 1}`, ...rest].join("."));
}

/** The body of POST /2/instances. */
function reservationOf(name: string, form: FormData) {
  const { vcpus, memory_mib: memory, disk_mib: size } = sizeOf(form);
  const days = Number(form.get("days"));
  return {
    __version__: 1,
    mode: "create",
    forthcoming: true,
    name,
    os_type: String(form.get("os")),
    disk_template: "plain",
    disks: [{ size }],
    nics: [{}],
    beparams: { memory, vcpus },
    ...(days > 0 ? { expires_at: endAfter(days) } : {}),
  };
}

function endAfter(days: number): number {
  return Math.round(Date.now() / 1000) + days * DAY_S;
}

const REAL = { verb: "Make it real", does: "The instance is made on the node that is reserved, and started.", isSerious: false };
const CANCELLED = { verb: "Cancel it", does: "The reservation is gone, and what it takes gets free for others at once.", isSerious: true };

/** Make a reservation real, give it longer, or cancel it. */
export function ReservationActions({ id, onDone }: { id: string; onDone: () => void }) {
  const asked = useAsked();
  const { said, isBusy, work } = useWork();
  const path = `/2/instances/${encodeURIComponent(id)}`;
  const act = async (done: string, method: string, target: string, body?: unknown): Promise<void> => {
    if (await work(done, () => carriedOut(method, target, body))) onDone();
  };
  const ask = (what: typeof REAL, does: () => Promise<void>): void => {
    asked.value = { ...what, title: `${what.verb}?`, act: () => void does() };
  };
  return (
    <section aria-label="Actions">
      <Confirm asked={asked} />
      <div class="tools">
        <button type="button" class="primary" disabled={isBusy.value} onClick={() => ask(REAL, () => act("It is real now.", "POST", `${path}/create`, {}))}>
          {REAL.verb}
        </button>
        <button
          type="button"
          title="It ends seven days from now"
          disabled={isBusy.value}
          onClick={() => void act("It ends in seven days.", "PUT", `${path}/modify`, { expires_at: endAfter(7) })}
        >
          Seven days from now
        </button>
        <button type="button" class="serious" disabled={isBusy.value} onClick={() => ask(CANCELLED, () => act("It is cancelled.", "DELETE", path))}>
          {CANCELLED.verb}
        </button>
      </div>
      {said.value !== "" && <p role="status">{said.value}</p>}
    </section>
  );
}
