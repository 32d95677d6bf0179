"""Operations of Ganeti on instances."""
