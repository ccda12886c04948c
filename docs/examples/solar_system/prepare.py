"""Write `bodies.csv` and `positions.csv` from JPL's ephemeris DE423; see `SOURCE.md`.

    pip install jplephem==2.24 de423==2010.1 de421==2008.1
    python prepare.py

Run it once. The example reads the written files, and needs none of these packages.
"""

import csv
import warnings
from pathlib import Path

import de421
import de423
import numpy as np
from jplephem import Ephemeris

warnings.simplefilter("ignore")  # the package format is deprecated in favour of SPICE files

HERE = Path(__file__).parent
EPOCH = 2455197.5  # 2010 January 1.0 TDB
DAYS = np.arange(0, 2 * 366 + 16, 16)
PLANETS = ["mercury", "venus", "mars", "jupiter", "saturn", "uranus", "neptune"]
ORDER = ["sun", "mercury", "venus", "earth", "moon", *PLANETS[2:]]
DAY = 86400.0


def states(ephemeris, days):
    """Return barycentric positions (m) and velocities (m/s) of each body, of shape (3, days)."""

    def state(name):
        position, velocity = ephemeris.position_and_velocity(name, EPOCH, days)
        return np.array([position * 1e3, velocity * 1e3 / DAY])

    found = {name: state(name) for name in ["sun", *PLANETS]}
    centre, moon = state("earthmoon"), state("moon")  # the moon's state is relative to the earth
    found["earth"] = centre - ephemeris.earth_share * moon
    found["moon"] = found["earth"] + moon
    return found


def gm(ephemeris):
    """Return standard gravitational parameters in m^3/s^2, from those in au^3/day^2."""
    si = (ephemeris.AU * 1e3) ** 3 / DAY**2
    names = ["GM1", "GM2", "GM4", "GM5", "GM6", "GM7", "GM8"]
    found = {name: getattr(ephemeris, key) * si for name, key in zip(PLANETS, names, strict=True)}
    found["sun"] = ephemeris.GMS * si
    found["moon"] = ephemeris.GMB * si / (1 + ephemeris.EMRAT)
    found["earth"] = ephemeris.GMB * si - found["moon"]
    return found


def main():
    new, old = Ephemeris(de423), Ephemeris(de421)
    parameters, found, other = gm(new), states(new, DAYS), states(old, DAYS)
    with (HERE / "bodies.csv").open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["name", "gm_m3_s2", "x_m", "y_m", "z_m", "vx_m_s", "vy_m_s", "vz_m_s"])
        for name in ORDER:
            position, velocity = found[name][:, :, 0]
            numbers = [f"{parameters[name]:.13e}", *(f"{x:.3f}" for x in position)]
            rows.writerow([name, *numbers, *(f"{v:.9f}" for v in velocity)])
    with (HERE / "positions.csv").open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["day", "name", "x_m", "y_m", "z_m"])
        for i, day in enumerate(DAYS):
            for name in ORDER:
                rows.writerow([day, name, *(f"{x:.0f}" for x in found[name][0, :, i])])
    print("largest difference of heliocentric positions between DE423 and DE421:")
    for name in ORDER[1:]:
        a, b = (e[name][0] - e["sun"][0] for e in (found, other))
        print(f"  {name:8} {np.linalg.norm(a - b, axis=0).max() / 1e3:9.3f} km")


if __name__ == "__main__":
    main()
