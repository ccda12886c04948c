"""The table of entries that compute torch's operations, and the call of an entry."""
