"""The weekly CO₂ record of Mauna Loa."""

from __future__ import annotations

import csv
import dataclasses
import datetime
from pathlib import Path

import numpy as np

FILE = Path(__file__).resolve().parents[1] / "data" / "mauna_loa_co2.csv"


@dataclasses.dataclass(frozen=True)
class Record:
    """Concentrations in ppm at times in years (decimal, of the Gregorian calendar)."""

    year: np.ndarray
    ppm: np.ndarray

    def where(self, mask: np.ndarray) -> Record:
        """Return the part of the record that a mask selects."""
        return Record(self.year[mask], self.ppm[mask])


def read_record() -> Record:
    """Read the whole record, 1958 to 2001."""
    with FILE.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    days = [datetime.date.fromisoformat(row["date"]).toordinal() for row in rows]
    start = datetime.date(1958, 1, 1).toordinal()
    year = 1958 + (np.array(days) - start) / 365.2425
    return Record(year, np.array([float(row["co2"]) for row in rows]))
