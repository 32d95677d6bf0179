"""Work on a whole cell in the index: make it equal to its source, and remove old rows and cells.

`reconcile` has the procedure; read it first. Each kind of source has a Comparison:

`native_cell`    a cell that numbers its changes: by digests of ranges, or every row by content
`external_cell`  a cell that does not: every row, compared with its document
`other_index`    another index, for documents that no cell can give: by digests of ranges

`ranges` divides the uuids for all of them, `differences` names the results. On top of them:

sync             `fill` writes all rows without comparing (`api_source` has the rows of an API), and `recorded_sync`
                 saves the progress; a cell that does not number its changes uses `external_cell.compare_cell`
verify           `reconcile.verify` of a Comparison, with repair or without
rebuild          `rebuild`, and `rebuild_cells` for each cell: fill (or copy), follow, verify, switch
restore          `restored_cell` warns lists, then compares every row by content; in indexers and in a sync

Beside them: `retention` removes old deleted rows, `cell_removal` a cell; `dead_letter_retries` repeats messages.
"""
