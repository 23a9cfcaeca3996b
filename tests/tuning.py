"""The CPU with other numbers, so that small arrays are large."""

from tracejit import tuning


def tune(monkeypatch, **numbers):
    """Replace some of the sizes of caches and units."""
    cpu = tuning.TUNINGS["cpu"]
    caches = {name: n for name, n in numbers.items() if name in tuning.Caches._fields}
    units = {name: n for name, n in numbers.items() if name not in caches}
    changed = cpu._replace(caches=cpu.caches._replace(**caches), units=cpu.units._replace(**units))
    monkeypatch.setitem(tuning.TUNINGS, "cpu", changed)
