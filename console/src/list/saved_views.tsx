/** Views that were saved: filter, columns and order under a name, one's own and shared ones. */

import { useSignal } from "@preact/signals";
import { ask, get, sentenceOf } from "../api/client";
import { Problem } from "../parts/awaited";
import { Dialog } from "../parts/dialog";
import { printable } from "../parts/glyphs";
import { Icon } from "../parts/icons";
import { address, choose } from "../state/address";
import { nameOf } from "../state/people";
import type { ListKind } from "./kinds";
import type { Question } from "./rows";

interface View {
  readonly id: string;
  readonly name: string;
  readonly what: string;
  readonly filter: string;
  readonly fields: readonly string[];
  readonly order: readonly string[];
  readonly shared: boolean;
  readonly owner: string;
  readonly mine: boolean;
}

export function SavedViews({ kind, question }: { kind: ListKind; question: Question }) {
  const isOpen = useSignal(false);
  const views = useSignal<readonly View[]>([]);
  const problem = useSignal("");
  const name = useSignal("");
  const isShared = useSignal(false);
  const attempt = async (work: () => Promise<unknown>): Promise<void> => {
    try {
      await work();
      views.value = (await get<{ views: View[] }>("/fleetlight/views")).body.views.filter(({ what }) => what === kind.what);
      problem.value = "";
    } catch (error) {
      problem.value = sentenceOf(error);
    }
  };
  const open = (view: View): void => {
    isOpen.value = false;
    choose({ filter: view.filter || null, columns: view.fields.join(",") || null, order: view.order.join(",") || null });
  };
  const save = (): Promise<void> => {
    const columns = address.value.query["columns"]?.split(",") ?? kind.columns;
    const { filter } = address.value.query;
    const body = { name: name.value.trim(), what: kind.what, filter: filter ?? "", fields: columns, order: question.order, shared: isShared.value };
    return attempt(() => ask("POST", "/fleetlight/views", { body }));
  };
  return (
    <>
      <button
        type="button"
        onClick={() => {
          isOpen.value = true;
          void attempt(() => Promise.resolve());
        }}
      >
        <Icon name="star" /> Views
      </button>
      {isOpen.value && (
        <Dialog title="Saved views" onClose={() => (isOpen.value = false)}>
          <Problem text={problem.value} />
          <ul class="columns">
            {views.value.map((view) => (
              <li key={view.id}>
                <button type="button" class="plain link" onClick={() => open(view)}>
                  <bdi>{printable(view.name)}</bdi>
                </button>
                <span class="hint">{view.mine ? (view.shared ? "yours, shared" : "yours") : <>shared by {nameOf(view.owner)}</>}</span>
                {view.mine && (
                  <button
                    type="button"
                    aria-label={`Delete ${view.name}`}
                    onClick={() => void attempt(() => ask("DELETE", `/fleetlight/views/${view.id}`))}
                  >
                    <Icon name="close" />
                  </button>
                )}
              </li>
            ))}
          </ul>
          {views.value.length === 0 && problem.value === "" && <p>None is saved yet.</p>}
          <form
            class="row"
            onSubmit={(event) => {
              event.preventDefault();
              void save();
            }}
          >
            <label>
              Save this one as
              <input value={name.value} required onInput={(event) => (name.value = event.currentTarget.value)} />
            </label>
            <label class="check">
              <input type="checkbox" checked={isShared.value} onChange={(event) => (isShared.value = event.currentTarget.checked)} />
              Shared
            </label>
            <button type="submit">Save</button>
          </form>
        </Dialog>
      )}
    </>
  );
}
