"""Changes of the instances of native cells: the locked row, instance actions, migrations."""
