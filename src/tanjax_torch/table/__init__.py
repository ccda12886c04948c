"""What an operation of torch computes: the table of entries, and how an entry is called."""
