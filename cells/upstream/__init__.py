"""APIs of other software that cells are: where they are, our accounts there, and how they are asked over HTTP."""
