/** A new reservation: capacity that is taken before anything runs (docs/reference/rapi.md). */

import { useSignal } from "@preact/signals";
import { ask, sentenceOf } from "../api/client";
import { Dialog } from "../parts/dialog";

export function NewReservation() {
  const isOpen = useSignal(false);
  const said = useSignal("");
  const submit = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const text = (name: string): string => String(form.get(name) ?? "");
    const body = {
      __version__: 1,
      mode: "create",
      forthcoming: true,
      name: text("name"),
      disk_template: "plain",
      disks: [{ size: Number(text("disk")) * 1024 }],
      nics: [{}],
      os_type: text("os") || null,
      beparams: { memory: Number(text("memory")) * 1024, vcpus: Number(text("vcpus")) },
    };
    try {
      const { body: job } = await ask<number>("POST", "/2/instances", { body });
      said.value = `Job ${job} makes it.`;
      isOpen.value = false;
    } catch (error) {
      said.value = sentenceOf(error);
    }
  };
  return (
    <>
      <button
        type="button"
        onClick={() => {
          isOpen.value = true;
          said.value = "";
        }}
      >
        Reserve
      </button>
      {!isOpen.value && said.value !== "" && <span role="status">{said.value}</span>}
      {isOpen.value && (
        <Dialog
          title="Reserve capacity"
          onClose={() => {
            isOpen.value = false;
          }}
        >
          <form onSubmit={(event) => void submit(event)}>
            <label>
              Name <input name="name" required />
            </label>
            <label>
              vCPU <input name="vcpus" type="number" min="1" value="2" required />
            </label>
            <label>
              Memory in GiB <input name="memory" type="number" min="1" value="4" required />
            </label>
            <label>
              Disk in GiB <input name="disk" type="number" min="1" value="20" required />
            </label>
            <label>
              Operating system <input name="os" />
            </label>
            {said.value !== "" && (
              <p class="problem" role="alert">
                {said.value}
              </p>
            )}
            <button type="submit">Reserve</button>
          </form>
        </Dialog>
      )}
    </>
  );
}
