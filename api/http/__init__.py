"""What all faces over HTTP share: errors, bodies, query strings, the server. Knows no face."""
