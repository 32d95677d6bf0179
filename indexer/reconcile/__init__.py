"""Work on the whole of a cell in the index: making a target equal to its source, and the ends of rows and cells.

The procedure is in `reconcile`; read that first. What is compared is a Comparison:

`native_cell`    a cell that numbers its changes: by digests of ranges, or every row by content
`external_cell`  a cell that does not: every row, beside its document
`other_index`    another index, for what no cell can give: by digests of ranges

`ranges` divides the uuids for all of them, `differences` names what is found. What is made of that:

sync             `fill` (all rows, nothing compared; `api_source` for rows of an API), and `recorded_sync`, which notes
                 how far the index is then; of a cell that does not number its changes, `external_cell.compare_cell`
verify           `reconcile.verify` of a Comparison, with repair or without
rebuild          `rebuild`, and `rebuild_cells` for each cell: fill (or copy), follow, verify, switch
restore          `restored_cell`: lists are warned, then every row by content; in indexers and in a sync

Beside them: `retention` (old deleted rows leave), `cell_removal` (a cell leaves), `dead_letter_retries`.
"""
