/** Whether changes come to what is shown, a way to hold them back, and those that wait to be taken in. */

export type LiveState = "live" | "paused" | "waiting";

export interface LiveBarProps {
  readonly state: LiveState;
  /** Why no changes come. */
  readonly reason: string;
  readonly pending: number;
  readonly onPause: (isPaused: boolean) => void;
  readonly onTakeIn: () => void;
}

export function LiveBar({ state, reason, pending, onPause, onTakeIn }: LiveBarProps) {
  return (
    <span class="live">
      <button
        type="button"
        aria-pressed={state === "paused"}
        title={state === "waiting" ? `No changes come: ${reason || "connecting"}` : "Pause or go on"}
        onClick={() => onPause(state !== "paused")}
      >
        {{ live: "● live", paused: "‖ paused", waiting: "○ not live" }[state]}
      </button>
      {pending > 0 && (
        <button type="button" class="pending" onClick={onTakeIn}>
          {pending === 1 ? "1 change" : `${pending.toLocaleString("en")} changes`}
        </button>
      )}
    </span>
  );
}
