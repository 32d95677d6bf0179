/** Whether changes come to what is shown, a way to hold them back, and those that wait to be taken in. */

import { Icon } from "./icons";

export type LiveState = "live" | "paused" | "waiting";

export interface LiveBarProps {
  readonly state: LiveState;
  /** Why no changes come. */
  readonly reason: string;
  readonly pending: number;
  readonly onPause: (isPaused: boolean) => void;
  readonly onTakeIn: () => void;
}

const WORDS: Readonly<Record<LiveState, string>> = { live: "Live", paused: "Paused", waiting: "Not live" };

export function LiveBar({ state, reason, pending, onPause, onTakeIn }: LiveBarProps) {
  const isPaused = state === "paused";
  return (
    <span class="live" role="group" aria-label="Changes">
      <span class={`live-${state}`} title={state === "waiting" ? `No changes come: ${reason || "connecting"}` : undefined}>
        <Icon name={state} /> {WORDS[state]}
      </span>
      <button type="button" class="plain" title={isPaused ? "Go on" : "Pause"} aria-label={isPaused ? "Go on" : "Pause"} onClick={() => onPause(!isPaused)}>
        <Icon name={isPaused ? "play" : "paused"} />
      </button>
      {pending > 0 && (
        <button type="button" class="pending" onClick={onTakeIn}>
          Show {pending === 1 ? "1 change" : `${pending.toLocaleString("en")} changes`}
        </button>
      )}
    </span>
  );
}
