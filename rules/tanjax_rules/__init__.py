"""The rule packs that ship with tanjax, written with its public names only."""
