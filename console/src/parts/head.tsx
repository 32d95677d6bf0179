/** The headings of a table. */

/** numbers: those whose columns stand at the right. */
export function Head({ titles, numbers = [] }: { titles: readonly string[]; numbers?: readonly string[] }) {
  return (
    <thead>
      <tr>
        {titles.map((title) => (
          <th key={title} scope="col" class={numbers.includes(title) ? "number" : undefined}>{title}</th>
        ))}
      </tr>
    </thead>
  );
}
