"""What a browser begins with: the console's page and assets, its login, and an index of what there is."""
