"""What changes the instances of native cells: the row under its lock, the record of actions, migrations."""
