"""Where what is remembered of nodes is kept: in the process, or in a server that the processes of a cell share."""
