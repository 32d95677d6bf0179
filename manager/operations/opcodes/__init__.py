"""Ganeti's operations (opcodes) as operations of jobs: a second vocabulary beside the actions of servers."""
