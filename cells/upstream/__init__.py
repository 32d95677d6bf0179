"""APIs of other software that cells are: where they are, who we are there, and how they are asked over HTTP."""
