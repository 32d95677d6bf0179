/** The fields of a form that say how large an instance is, in GiB; a flavor fills them. */

import { useGot } from "./got";

interface Flavor {
  readonly id: string;
  readonly name: string;
  readonly vcpus: number;
  readonly ram: number;
  readonly disk: number;
  readonly "OS-FLV-EXT-DATA:ephemeral": number;
}

/** onFlavor: called when a flavor has filled the form. */
export function SizeFields({ leastDisk, onFlavor }: { leastDisk: number; onFlavor?: (form: HTMLFormElement) => void }) {
  const flavors = useGot<{ flavors: readonly Flavor[] }>("/v2.1/flavors/detail")?.flavors ?? [];
  const fill = ({ form, value }: HTMLSelectElement): void => {
    const flavor = flavors.find((each) => each.id === value);
    if (flavor === undefined) return;
    const sizes = { vcpus: flavor.vcpus, memory: flavor.ram / 1024, disk: flavor.disk + flavor["OS-FLV-EXT-DATA:ephemeral"] };
    for (const [name, size] of Object.entries(sizes)) (form!.elements.namedItem(name) as HTMLInputElement).value = String(size);
    onFlavor?.(form!);
  };
  return (
    <>
      {flavors.length > 0 && (
        <label>
          Flavor{" "}
          <select onChange={(event) => fill(event.currentTarget)}>
            <option value="">any size</option>
            {flavors.map(({ id, name }) => (
              <option key={id} value={id}>{name}</option>
            ))}
          </select>
        </label>
      )}
      <label>vCPU <input name="vcpus" type="number" min="1" defaultValue="2" required /></label>
      <label>Memory in GiB <input name="memory" type="number" min="0.125" step="any" defaultValue="4" required /></label>
      <label>Disk in GiB <input name="disk" type="number" min={leastDisk} step="any" defaultValue="20" required /></label>
    </>
  );
}

/** What a form says of the size, as the API takes it. */
export function sizeOf(form: FormData): { vcpus: number; memory_mib: number; disk_mib: number } {
  const mib = (name: string): number => Math.round(Number(form.get(name)) * 1024);
  return { vcpus: Number(form.get("vcpus")), memory_mib: mib("memory"), disk_mib: mib("disk") };
}
