"""The start of a browser: the console's page and assets, its login, and an index of the API."""
