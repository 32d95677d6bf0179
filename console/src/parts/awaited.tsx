/** What stands where an answer is still to come: grey rows of about its height, or why it does not come. */

export interface AwaitedProps {
  /** Why the newest request failed; "" while it is under way. */
  readonly problem: string;
  readonly onAgain: () => void;
  /** How many rows it may have. */
  readonly rows?: number;
}

export function Awaited({ problem, onAgain, rows = 6 }: AwaitedProps) {
  if (problem !== "") return <Failed problem={problem} onAgain={onAgain} />;
  return (
    <div class="awaited" role="status" aria-label="Loading">
      {Array.from({ length: rows }, (_, index) => (
        <span key={index} />
      ))}
    </div>
  );
}

/** Why a request failed, and a way to repeat it. */
export function Failed({ problem, onAgain }: { problem: string; onAgain: () => void }) {
  return (
    <p class="problem" role="alert">
      {problem}{" "}
      <button type="button" onClick={onAgain}>Try again</button>
    </p>
  );
}

/** What went wrong with something that the caller did; nothing while all is well. */
export function Problem({ text }: { text: string }) {
  if (text === "") return null;
  return (
    <p class="problem" role="alert">{text}</p>
  );
}
