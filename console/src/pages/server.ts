/** A server as the compute API shows it, as far as the console reads it. */

import type { Json } from "../api/types";

export interface Server {
  readonly id: string;
  readonly name: string;
  readonly tenant_id: string;
  readonly locked?: boolean;
  readonly flavor: Readonly<Record<string, Json>>;
  readonly addresses: Readonly<Record<string, readonly { readonly addr: string; readonly version: number; readonly "OS-EXT-IPS-MAC:mac_addr": string }[]>>;
  readonly "OS-EXT-STS:vm_state": string;
  readonly "OS-EXT-STS:task_state": string | null;
  readonly "os-extended-volumes:volumes_attached": readonly { readonly id: string; readonly delete_on_termination: boolean }[];
}

/** Where locks, flavors and their like are as they are named now. */
export const NEWEST = { "X-OpenStack-Nova-API-Version": "2.96" };
