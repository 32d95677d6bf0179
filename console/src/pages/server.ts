/** A server as the compute API shows it, as far as the console reads it. */

import type { Json } from "../api/types";

type Place = "OS-EXT-SRV-ATTR:host" | "OS-EXT-SRV-ATTR:hypervisor_hostname" | "OS-EXT-AZ:availability_zone" | "host_status" | "OS-EXT-SRV-ATTR:hostname";

/** Members are not told of hosts. */
export interface Server extends Readonly<Partial<Record<Place, string | null>>> {
  readonly id: string;
  readonly name: string;
  readonly tenant_id: string;
  readonly user_id: string;
  readonly key_name: string | null;
  readonly description?: string | null;
  readonly created: string;
  readonly updated: string;
  readonly "OS-SRV-USG:launched_at": string | null;
  readonly locked?: boolean;
  readonly locked_reason?: string | null;
  readonly fault?: { readonly code: number; readonly message: string; readonly created: string };
  readonly flavor: Readonly<Record<string, Json>>;
  readonly image: { readonly id: string } | string;
  readonly addresses: Readonly<Record<string, readonly { readonly addr: string; readonly version: number; readonly "OS-EXT-IPS-MAC:mac_addr": string }[]>>;
  readonly security_groups?: readonly { readonly name: string }[];
  readonly tags?: readonly string[];
  readonly metadata: Readonly<Record<string, string>>;
  readonly "OS-EXT-STS:vm_state": string;
  readonly "OS-EXT-STS:task_state": string | null;
  readonly "OS-EXT-STS:power_state": number;
  readonly "os-extended-volumes:volumes_attached": readonly { readonly id: string; readonly delete_on_termination: boolean }[];
}

/** "" of one that was made from a volume. */
export function imageOf({ image }: Server): string {
  return typeof image === "string" ? image : image.id;
}

/** Where locks, flavors and their like are as they are named now. */
export const NEWEST = { "X-OpenStack-Nova-API-Version": "2.96" };
