"""The program as values, uses and nodes, and the constants that tracing would lose."""
