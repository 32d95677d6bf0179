/** Asks once before something is done, and says what will happen. */

import { type Signal, useSignal } from "@preact/signals";
import { Dialog } from "./dialog";

export interface Asked {
  /** What is done to what, such as "Delete web-1". */
  readonly title: string;
  /** What will happen, in a sentence. */
  readonly does: string;
  /** The word on the button that does it. */
  readonly verb: string;
  readonly isSerious: boolean;
  readonly act: () => void;
}

export function useAsked(): Signal<Asked | null> {
  return useSignal<Asked | null>(null);
}

export function Confirm({ asked }: { asked: Signal<Asked | null> }) {
  const found = asked.value;
  if (found === null) return null;
  const close = (): void => {
    asked.value = null;
  };
  return (
    <Dialog title={found.title} onClose={close}>
      <p>{found.does}</p>
      <p class="row">
        <button
          type="button"
          class={found.isSerious ? "serious" : "primary"}
          onClick={() => {
            close();
            found.act();
          }}
        >
          {found.verb}
        </button>
        <button type="button" onClick={close}>Leave it</button>
      </p>
    </Dialog>
  );
}
