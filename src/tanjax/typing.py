"""Annotations for quantities: a dimension, a dtype and a shape, checked at run time on request."""

from .bridges._typing import Quantity as Quantity, checked as checked
