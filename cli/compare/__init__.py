"""`fleetlight compare`: sends the same read-only requests to Nova and to Fleetlight, and compares the answers.

`questions`, `catalogue` and `access_log` make requests, `sites` sends them, `differences` and `explained` compare two
answers, `cases` compares repeated answers, `tally` counts, and `report` shows the result.
"""
