"""What a device can do: memory, bandwidth and peaks, each with its worth."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from effkit.errors import UsageError, did_you_mean
from effkit.hardware.tables import NO_VALUE, known, rows

_NUMBER = re.compile(r"(?P<most><=)?(?P<value>\d+(?:\.\d+)?)(?P<derived>d)?(?P<rest>.*)", re.DOTALL)

# Column of hardware.csv -> (field of Device, power of ten to base units).
_COLUMNS = {
    "mem_gb": ("memory_bytes", 9),
    "mem_bw_gbs": ("memory_bytes_per_s", 9),
    "fp32": ("fp32_flop_per_s", 12),
    "tf32": ("tf32_flop_per_s", 12),
    "bf16": ("bf16_flop_per_s", 12),
    "fp16": ("fp16_flop_per_s", 12),
    "fp8": ("fp8_flop_per_s", 12),
    "int8": ("int8_op_per_s", 12),
    "host_gbs_dir": ("host_bytes_per_s", 9),
    "link_gbs_bidir": ("link_bytes_per_s", 9),
    "tdp_w": ("tdp_w", 0),
    "cuda_cores": ("cuda_cores", 0),
}
_PEAKS = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8")
_ALIASES = {"mem_bw": "mem_bw_gbs", "link": "link_gbs_bidir"}
# Columns of text, and the field each becomes.
_TEXTS = {"host": "host_link", "sms": "units", "cc": "architecture"}


@dataclass(frozen=True)
class Device:
    """One device; every None has its reason in ``reasons``, by field name.

    Attributes:
        name: as in the table, such as ``H100-SXM``.
        kind: ``gpu``, ``tpu``, ``asic``, ``npu`` or ``cpu``.
        memory_bytes: device memory; what the driver leaves usable where that is known, else the nominal size. For
            processors the most that can be installed, for shared memory the least that is sold.
        memory_bytes_per_s: peak memory bandwidth.
        fp32_flop_per_s, tf32_flop_per_s, bf16_flop_per_s, fp16_flop_per_s, fp8_flop_per_s: dense peaks.
        int8_op_per_s: dense INT8 peak.
        sparse24: whether 2:4 sparsity is accelerated.
        host_link: the link to the host, such as ``PCIe4x16``.
        host_bytes_per_s: of that link, each direction.
        link_bytes_per_s: of the links to other devices, both directions together.
        tdp_w: thermal design power (base power where two are stated).
        cuda_cores: FP32 lanes.
        units: multiprocessors or their like, as published (``132``, ``304CU``, ``8P+16E``).
        architecture: CUDA compute capability, gfx name or vector extension.
        sources: keys of :func:`sources`.
        derived: fields that were computed from others, not read.
        from_memory: fields that no source was at hand for.
        notes: by field: what else the table says; under ``remarks`` what concerns the whole row.
    """

    name: str
    kind: str
    memory_bytes: int | None
    memory_bytes_per_s: float | None
    fp32_flop_per_s: float | None
    tf32_flop_per_s: float | None
    bf16_flop_per_s: float | None
    fp16_flop_per_s: float | None
    fp8_flop_per_s: float | None
    int8_op_per_s: float | None
    sparse24: bool
    host_link: str | None
    host_bytes_per_s: float | None
    link_bytes_per_s: float | None
    tdp_w: float | None
    cuda_cores: int | None
    units: str | None
    architecture: str | None
    sources: tuple[str, ...]
    derived: frozenset[str]
    from_memory: frozenset[str]
    reasons: Mapping[str, str]
    notes: Mapping[str, str]

    def flop_per_s(self, dtype: str) -> float | None:
        """Return the dense peak for ``fp32``, ``tf32``, ``bf16``, ``fp16``, ``fp8`` or ``int8``; operations per second.

        Raises:
            UsageError: another dtype.
        """
        if dtype not in _PEAKS:
            raise UsageError(f"no peak is kept for {dtype!r}; known: {', '.join(_PEAKS)}")
        value: float | None = getattr(self, _COLUMNS[dtype][0])
        return value

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        sets = {name: sorted(plain[name]) for name in ("derived", "from_memory")}
        return {
            **plain,
            **sets,
            "sources": list(self.sources),
            "reasons": dict(self.reasons),
            "notes": dict(self.notes),
        }

    def worth(self, field: str) -> str:
        """Say how far the figure in ``field`` can be trusted: ``read``, ``derived``, ``from memory`` or ``missing``."""
        if getattr(self, field) is None:
            return "missing"
        if field in self.from_memory:
            return "from memory"
        return "derived" if field in self.derived else "read"


def device(name: str) -> Device:
    """Return the device of that name, in any case.

    Raises:
        UsageError: there is none; names the nearest ones.

    Example:
        >>> device("h100-sxm").memory_bytes_per_s
        3350000000000.0
    """
    by_lower = {found.name.lower(): found for found in devices().values()}
    wanted = name.strip().lower()
    if wanted in by_lower:
        return by_lower[wanted]
    close = [found.name for lower, found in by_lower.items() if wanted and lower.startswith(wanted)]
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else did_you_mean(wanted, by_lower)
    for lower, found in by_lower.items():
        hint = hint.replace(repr(lower), repr(found.name))
    raise UsageError(f"no device is called {name!r} in the hardware table; {hint or 'known: ' + ', '.join(devices())}")


@functools.cache
def devices() -> Mapping[str, Device]:
    """Return every device by name, in the order of the table."""
    return MappingProxyType({row["id"]: _device(row) for row in rows("hardware")})


def _device(row: dict[str, str]) -> Device:
    values: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    notes: dict[str, str] = {}
    flags = _flags(row["from_memory_fields"])
    derived = set(flags.derived)
    for column, (field, power) in _COLUMNS.items():
        values[field], remark, is_derived = _number(row[column], power)
        if remark:
            (reasons if values[field] is None else notes)[field] = remark
        if is_derived:
            derived.add(field)
    for column, field in _TEXTS.items():
        values[field] = known(row[column])
        if values[field] is None:
            reasons[field] = NO_VALUE[row[column]]
    if row["usable_mib"]:
        values["memory_bytes"] = float(row["usable_mib"]) * 2**20
        notes["memory_bytes"] = f"usable; {row['mem_gb']} GB nominal"
    if row["sparse24"] not in {"yes", "no"}:
        notes["sparse24"] = f"other sparsity: {row['sparse24']}"
    for field in ("memory_bytes", "cuda_cores"):
        values[field] = None if values[field] is None else round(values[field])
    present = {field for field, value in values.items() if value is not None} | {"remarks", "sparse24"}
    return Device(
        name=row["id"],
        kind=row["kind"],
        sparse24=row["sparse24"] == "yes",
        sources=tuple(key for key in row["src"].split(";") if key),
        derived=frozenset(derived & present),
        from_memory=frozenset(flags.from_memory & present),
        reasons=MappingProxyType(reasons),
        notes=MappingProxyType({k: v for k, v in _joined(notes, flags.notes).items() if k in present}),
        **values,
    )


def _number(cell: str, power: int) -> tuple[float | None, str, bool]:
    """Return (value, what else the cell says or why there is no value, whether it is marked as derived)."""
    if cell in NO_VALUE:
        return None, NO_VALUE[cell], False
    match = _NUMBER.fullmatch(cell)
    if match is None:
        raise ValueError(f"hardware table: {cell!r} is neither a number nor one of {sorted(NO_VALUE)}")
    plain = not match["most"] and not match["rest"]
    return float(f"{match['value']}e{power}"), "" if plain else f"stated as {cell}", bool(match["derived"])


@dataclass(frozen=True)
class _Flags:
    from_memory: frozenset[str]
    derived: frozenset[str]
    notes: dict[str, str]


def _flags(cell: str) -> _Flags:
    """Read the column from_memory_fields: names of columns, each perhaps with a remark, and remarks on the row."""
    from_memory: set[str] = set()
    derived: set[str] = set()
    notes: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in re.split(r";(?![^(]*\))", cell))):
        word, remark = re.fullmatch(r"(\w+)(.*)", item).groups()  # type: ignore[union-attr]
        named = _fields_of(word)
        if not named:
            notes["remarks"] = f"{notes['remarks']}; {item}" if "remarks" in notes else item
            from_memory.update(_all_fields() if item.endswith("from memory") else ())
            continue
        is_derived = "derived" in remark or "=" in remark
        (derived if is_derived else from_memory).update(named)
        notes.update({field: remark.strip(" ()=") for field in named if remark.strip()})
    return _Flags(frozenset(from_memory), frozenset(derived), notes)


def _fields_of(word: str) -> tuple[str, ...]:
    """Return the fields that a column's name, or ``peaks``, stands for; empty for any other word."""
    if word == "peaks":
        return tuple(_COLUMNS[column][0] for column in _PEAKS)
    if word == "host":  # the rate follows from the link
        return ("host_link", "host_bytes_per_s")
    column = _ALIASES.get(word, word)
    if column in _COLUMNS:
        return (_COLUMNS[column][0],)
    return (_TEXTS[column],) if column in _TEXTS else ()


def _all_fields() -> tuple[str, ...]:
    return (*(field for field, _ in _COLUMNS.values()), *_TEXTS.values())


def _joined(first: Mapping[str, str], second: Mapping[str, str]) -> dict[str, str]:
    return {key: "; ".join(filter(None, (first.get(key), second.get(key)))) for key in {**first, **second}}
