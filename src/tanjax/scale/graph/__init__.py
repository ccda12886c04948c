"""The program as values, uses and nodes, and the constants that tracing would lose."""

from ._expansions import expansion as expansion, is_expanded as is_expanded
from ._literals import trace as trace
