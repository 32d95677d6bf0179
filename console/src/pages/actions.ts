/** What can be done to an instance, by its state. The API decides who may (docs/contracts/nova-servers.md). */

/** What actions are about, in the order of their buttons. */
export const GROUPS = ["Power", "Rest", "Place", "Rights", "End"] as const;

type Body = Readonly<Record<string, unknown>>;

export interface Action {
  readonly name: string;
  readonly title: string;
  readonly group: (typeof GROUPS)[number];
  /** The effect of the action, shown before it is confirmed. */
  readonly does: string;
  /** The body of POST /servers/{id}/action, of some by the image of the instance; null: DELETE /servers/{id}. */
  readonly body: Body | ((image: string) => Body) | null;
  /** In which vm_state it is possible. */
  readonly from: readonly string[];
  readonly isForAdmins?: boolean;
  readonly isSerious?: boolean;
}

const ANY = ["active", "stopped", "paused", "suspended", "error", "rescued", "resized", "shelved", "shelved_offloaded", "soft-delete", "building"];

export const ACTIONS: readonly Action[] = [
  { name: "start", group: "Power", title: "Start", does: "The guest is switched on.", body: { "os-start": null }, from: ["stopped"] },
  {
    name: "stop",
    group: "Power",
    title: "Stop",
    does: "The guest is asked to shut down, and is switched off if it does not.",
    body: { "os-stop": null },
    from: ["active", "error"],
  },
  {
    name: "reboot",
    group: "Power",
    title: "Reboot",
    does: "The guest is asked to restart.",
    body: { reboot: { type: "SOFT" } },
    from: ["active"],
  },
  {
    name: "hard-reboot",
    group: "Power",
    title: "Hard reboot",
    does: "The guest is switched off and on. What it has not written to its disk is lost.",
    body: { reboot: { type: "HARD" } },
    from: ["active", "stopped", "paused", "suspended", "error"],
    isSerious: true,
  },
  { name: "pause", group: "Rest", title: "Pause", does: "The guest stands still and keeps its memory.", body: { pause: null }, from: ["active"] },
  { name: "unpause", group: "Power", title: "Go on", does: "The guest goes on where it was paused.", body: { unpause: null }, from: ["paused"] },
  { name: "suspend", group: "Rest", title: "Suspend", does: "The memory of the guest is written to disk, and it is switched off.", body: { suspend: null }, from: ["active"] },
  { name: "resume", group: "Power", title: "Resume", does: "The guest goes on where it was suspended.", body: { resume: null }, from: ["suspended"] },
  { name: "lock", group: "Rights", title: "Lock", does: "Only administrators can change it until it is unlocked.", body: { lock: null }, from: ANY },
  { name: "unlock", group: "Rights", title: "Unlock", does: "Its owners can change it again.", body: { unlock: null }, from: ANY },
  {
    name: "shelve",
    group: "Rest",
    title: "Shelve",
    does: "It is switched off, and its host gets free after a while.",
    body: { shelve: null },
    from: ["active", "stopped", "paused", "suspended"],
  },
  { name: "unshelve", group: "Power", title: "Unshelve", does: "It gets a host again and is started.", body: { unshelve: null }, from: ["shelved", "shelved_offloaded"] },
  {
    name: "migrate",
    group: "Place",
    title: "Move",
    does: "It is moved to another host, which the scheduler chooses; the guest is off meanwhile.",
    body: { migrate: null },
    from: ["active", "stopped"],
    isForAdmins: true,
  },
  { name: "confirm", group: "Power", title: "Confirm the move", does: "What it took on the host of before gets free.", body: { confirmResize: null }, from: ["resized"] },
  { name: "revert", group: "Power", title: "Undo the move", does: "It goes back to the host and size of before.", body: { revertResize: null }, from: ["resized"] },
  { name: "restore", group: "Power", title: "Restore", does: "It is not deleted any more.", body: { restore: null }, from: ["soft-delete"] },
  {
    name: "rebuild",
    group: "End",
    title: "Rebuild",
    does: "Its disk is made anew from its image: what is on it is lost. Name, addresses and volumes stay.",
    body: (image) => ({ rebuild: { imageRef: image } }),
    from: ["active", "stopped", "error"],
    isSerious: true,
  },
  {
    name: "reset-state",
    group: "Rights",
    title: "Reset state",
    does: "It is said to be active, and nothing is done to its guest: for an instance that is well and says that it is not.",
    body: { "os-resetState": { state: "active" } },
    from: ["error"],
    isForAdmins: true,
    isSerious: true,
  },
  {
    name: "delete",
    group: "End",
    title: "Delete",
    does: "It is deleted, and its disks with it.",
    body: null,
    from: ANY,
    isSerious: true,
  },
];

/** Whether an instance takes an action by that name as it is now; one with a task takes few. */
export function allows(name: string, vmState: string, task: string | null): boolean {
  const isFree = task === null || name === "delete" || name === "reset-state";
  const action = ACTIONS.find((each) => each.name === name);
  return isFree && (name === "reset-state" || action?.from.includes(vmState) === true);
}

/** Those that an instance in this state, and this caller, can have. */
export function actionsFor(vmState: string, isLocked: boolean, isAdmin: boolean): readonly Action[] {
  return ACTIONS.filter(({ name, from, isForAdmins }) => {
    if (!from.includes(vmState) || (isForAdmins === true && !isAdmin)) return false;
    if (name === "lock") return !isLocked;
    return name !== "unlock" || isLocked;
  });
}
