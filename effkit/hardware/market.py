"""What devices cost to buy, rent and run, what was measured on them, and where the figures come from."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from effkit.hardware.tables import known, rows, without_memory_mark

# Measured peaks name a family; these are the devices of the table that belong to it.
_FAMILIES = {
    "A100-SXM": ("A100-40-SXM", "A100-80-SXM"),
    "A100-PCIe": ("A100-80-PCIe",),
    "GH200": ("GH200-96",),
}


@dataclass(frozen=True)
class Price:
    """What a device costs; ``low_usd`` equals ``high_usd`` where one price is stated.

    Attributes:
        device: name in :func:`devices`, or another label such as ``SPR-vCPU``.
        per: ``hour`` of one accelerator, or ``purchase``.
        kind: who asks that price, and for what.
        date: as precise as the source.
        source: key of :func:`sources`, or None.
        from_memory: no source was at hand.
        note: what else the cell says.
    """

    device: str
    low_usd: float
    high_usd: float
    per: str
    kind: str
    date: str
    source: str | None
    from_memory: bool
    note: str = ""


@dataclass(frozen=True)
class Electricity:
    """Price of one kWh for one kind of customer."""

    region: str
    sector: str
    price_per_kwh: float
    currency: str
    period: str
    source: str | None
    from_memory: bool


@dataclass(frozen=True)
class Carbon:
    """Carbon intensity of a country's electricity in one year; the table came without a source."""

    iso3: str
    country: str
    year: int
    gco2e_per_kwh: float


@dataclass(frozen=True)
class Efficiency:
    """Best matmul rate that was measured on a family of devices, and its share of the data sheet's peak."""

    family: str
    devices: tuple[str, ...]
    dtype: str
    measured_flop_per_s: float
    share_of_peak: float
    source: str


@dataclass(frozen=True)
class Source:
    """Where figures come from."""

    key: str
    title: str
    address: str


@dataclass(frozen=True)
class Portability:
    """By which route a model reaches a kind of device."""

    target: str
    route: str
    source: str


@dataclass(frozen=True)
class Claim:
    """A figure that is often repeated, and what was found when it was checked."""

    claim: str
    verdict: str
    right_value: str
    source: str


@functools.cache
def prices() -> tuple[Price, ...]:
    """Return every price; several of one device are kept apart by who asks them and when."""
    return tuple(_price(row) for row in rows("prices"))


@functools.cache
def electricity() -> tuple[Electricity, ...]:
    """Return electricity prices by region and sector."""
    found: list[Electricity] = []
    source: str | None = None
    for row in rows("electricity"):
        source = source if row["src"] == "same" else known(row["src"])
        sectors, values = row["sector"].split("/"), row["price"].split("/")
        for sector, value in zip(sectors, values, strict=True):
            period, from_memory = without_memory_mark(row["period"])
            currency = row["unit"].removesuffix("/kWh")
            found.append(Electricity(row["region"], sector, float(value), currency, period, source, from_memory))
    return tuple(found)


@functools.cache
def carbon() -> Mapping[str, Carbon]:
    """Return carbon intensities by ISO 3166 code of three letters, such as ``FRA``."""
    return MappingProxyType(
        {r["iso3"]: Carbon(r["iso3"], r["country"], int(r["year"]), float(r["gco2e_per_kwh"])) for r in rows("carbon")}
    )


@functools.cache
def efficiencies() -> tuple[Efficiency, ...]:
    """Return the measured matmul rates (the best achievable, over all shapes tried)."""
    return tuple(
        Efficiency(
            family=row["id"],
            devices=_FAMILIES.get(row["id"], (row["id"],)),
            dtype=row["dtype"],
            measured_flop_per_s=float(row["measured_tflops"]) * 1e12,
            share_of_peak=float(row["eff"]),
            source=row["src"],
        )
        for row in rows("mamf")
    )


@functools.cache
def sources() -> Mapping[str, Source]:
    """Return every source by its key."""
    return MappingProxyType({row["key"]: Source(row["key"], row["title"], row["address"]) for row in rows("sources")})


@functools.cache
def portability() -> tuple[Portability, ...]:
    """Return the routes to each kind of device."""
    return tuple(Portability(row["target"], row["route"], row["status_source"]) for row in rows("portability"))


@functools.cache
def claims() -> tuple[Claim, ...]:
    """Return the figures that were checked."""
    return tuple(Claim(row["claim"], row["verdict"], row["right_value"], row["src"]) for row in rows("claims"))


def _price(row: dict[str, str]) -> Price:
    match = re.fullmatch(r"(?P<low>\d+(?:\.\d+)?)(?:-(?P<high>\d+(?:\.\d+)?))?\s*(?P<note>.*)", row["usd_per_accel_hr"])
    if match is None:
        raise ValueError(f"price table: {row['usd_per_accel_hr']!r} of {row['id']} is not a price")
    kind, from_memory = without_memory_mark(row["kind"])
    note = match["note"].strip("()")
    return Price(
        device=row["id"],
        low_usd=float(match["low"]),
        high_usd=float(match["high"] or match["low"]),
        per="purchase" if note in {"MSRP", "list"} else "hour",
        kind=kind,
        date=row["date"],
        source=known(row["src"]),
        from_memory=from_memory,
        note=note,
    )
