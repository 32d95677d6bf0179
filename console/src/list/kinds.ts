/** The lists that there are. */

export interface ListKind {
  /** The part of the address. */
  readonly path: string;
  readonly title: string;
  /** One of them. */
  readonly singular: string;
  /** The item type of the query language. */
  readonly what: string;
  /** The field that names an item for ever. */
  readonly key: string;
  readonly columns: readonly string[];
  readonly order: readonly string[];
  readonly facets: readonly string[];
  /** What all of them fulfil, besides what is asked for. */
  readonly base: string;
  /** Whether they can be listed as of a moment. */
  readonly hasPast: boolean;
  /** What the filter bar says before anything is typed. */
  readonly example: string;
  /** What a list says that has none of them. */
  readonly empty: string;
  readonly isForAdmins: boolean;
}

const INSTANCE = {
  what: "instance",
  key: "uuid",
  order: ["name"],
  // Of the fields that every store counts itself: by any other, the API reads the whole fleet row by row.
  facets: ["cell", "vm_state", "task_state", "zone", "flavor_id", "project_id"],
  hasPast: true,
  isForAdmins: false,
} as const;

export const LISTS: readonly ListKind[] = [
  {
    ...INSTANCE,
    path: "instances",
    title: "Instances",
    singular: "instance",
    columns: ["name", "cell", "host", "vm_state", "task_state", "be/vcpus", "be/memory", "nic.ips", "project_id", "created_at"],
    base: "",
    empty: "No instance yet. Users create them through the compute API.",
    example: 'web   or   vm_state == "active" and be/memory > 4096',
  },
  {
    ...INSTANCE,
    path: "reservations",
    title: "Reservations",
    singular: "reservation",
    columns: ["name", "cell", "pnode", "be/vcpus", "be/memory", "disk_usage", "project_id", "created_at"],
    base: "forthcoming",
    empty: "No reservation yet: reserve capacity, before anything runs on it.",
    example: 'batch   or   cell == "cell1"',
  },
  {
    path: "nodes",
    title: "Nodes",
    singular: "node",
    what: "node",
    key: "uuid",
    columns: ["name", "cell", "group", "role", "mtotal", "mfree", "dtotal", "dfree", "ctotal", "pinst_cnt"],
    order: ["name"],
    facets: ["cell", "group", "role", "drained", "offline"],
    base: "",
    hasPast: false,
    empty: "No node yet: hosts of native cells and of Ganeti clusters are nodes.",
    example: 'compute-07   or   drained or offline',
    isForAdmins: true,
  },
  {
    path: "jobs",
    title: "Jobs",
    singular: "job",
    what: "job",
    key: "id",
    columns: ["id", "cell", "status", "summary", "received_ts", "start_ts", "end_ts", "opresult"],
    // Numbers count in each cell.
    order: ["-received_ts"],
    facets: ["cell", "status"],
    base: "",
    hasPast: false,
    empty: "No job yet: whatever is done to instances and nodes of native cells becomes one.",
    example: 'status == "running"',
    isForAdmins: true,
  },
  {
    path: "locks",
    title: "Locks",
    singular: "lock",
    what: "lock",
    key: "name",
    columns: ["name", "cell", "mode", "owner", "pending"],
    order: ["name"],
    facets: ["cell"],
    base: "",
    hasPast: false,
    empty: "No lock is held: jobs hold them while they run.",
    example: 'name =* "instance/*"',
    isForAdmins: true,
  },
  {
    path: "networks",
    title: "Networks",
    singular: "network",
    what: "network",
    key: "uuid",
    columns: ["name", "cell", "network", "gateway", "free_count", "reserved_count", "inst_cnt"],
    order: ["name"],
    facets: ["cell"],
    base: "",
    hasPast: false,
    empty: "No network yet: native cells and Ganeti clusters have some once they are made.",
    example: 'free_count < 10',
    isForAdmins: true,
  },
];
