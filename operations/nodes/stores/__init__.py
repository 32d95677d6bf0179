"""Where what is remembered of nodes is kept: in a server that the processes of a cell share, or nowhere."""
