"""`fleetlight compare`: Fleetlight beside the Nova that is there. It asks both the same, and only reads.

`questions`, `catalogue` and `access_log` say what is asked, `sites` asks it, `differences` and `explained` judge two
answers, `cases` judges them over time, `tally` counts, and `report` shows what was found.
"""
