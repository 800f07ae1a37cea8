"""The hardware tables: every cell parses, nothing is invented, and doubtful figures keep their mark."""

from __future__ import annotations

import csv
import dataclasses
import json

import pytest

from effkit import hardware
from effkit.errors import UsageError
from effkit.hardware.specs import _COLUMNS
from effkit.hardware.tables import DATA_DIR, NO_VALUE


def table(name: str) -> list[dict[str, str]]:
    with (DATA_DIR / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_row_of_the_device_table_becomes_one_device() -> None:
    assert list(hardware.devices()) == [row["id"] for row in table("hardware")]
    assert len({name.lower() for name in hardware.devices()}) == len(hardware.devices())


@pytest.mark.parametrize("row", table("hardware"), ids=lambda row: row["id"])
def test_each_cell_is_its_number_in_base_units_or_none_with_a_reason(row: dict[str, str]) -> None:
    device = hardware.device(row["id"])
    for column, (field, power) in _COLUMNS.items():
        cell, value = row[column].strip(), getattr(device, field)
        if cell in NO_VALUE:
            assert value is None
            assert device.reasons[field] == NO_VALUE[cell]
        elif column == "mem_gb" and row["usable_mib"]:
            assert value == int(row["usable_mib"]) * 2**20
        else:
            leading = cell.lstrip("<=").split("-")[0].split("(")[0].split("/")[0].split()[0].rstrip("d")
            assert value == pytest.approx(float(leading) * 10**power, rel=1e-12)
            assert field not in device.reasons


@pytest.mark.parametrize("device", hardware.devices().values(), ids=lambda device: device.name)
def test_only_fields_with_a_value_are_marked_and_only_missing_ones_have_reasons(device: hardware.Device) -> None:
    optional = [f.name for f in dataclasses.fields(device) if f.type.endswith("| None")]
    missing = {name for name in optional if getattr(device, name) is None}
    assert set(device.reasons) == missing
    assert not missing & (device.derived | device.from_memory)
    assert device.derived | device.from_memory <= set(optional)


def test_figures_are_dense_peaks_in_base_units() -> None:
    h100 = hardware.device("H100-SXM")
    assert h100.memory_bytes == 81559 * 2**20
    assert h100.memory_bytes_per_s == 3.35e12
    assert h100.flop_per_s("bf16") == 989e12
    assert h100.int8_op_per_s == 1979e12
    assert h100.tdp_w == 700
    assert h100.cuda_cores == 16896
    assert h100.sparse24
    assert h100.worth("bf16_flop_per_s") == "read"
    assert h100.worth("architecture") == "from memory"


def test_a_device_without_bf16_says_so_instead_of_zero() -> None:
    t4 = hardware.device("T4")
    assert t4.bf16_flop_per_s is None
    assert t4.worth("bf16_flop_per_s") == "missing"
    assert t4.flop_per_s("bf16") is None


def test_derived_figures_are_marked_with_how_they_were_derived() -> None:
    xeon = hardware.device("Xeon-8480+")
    assert xeon.fp32_flop_per_s == 7.2e12
    assert xeon.worth("fp32_flop_per_s") == "derived"
    assert xeon.notes["fp32_flop_per_s"] == "derived at 2.0GHz base"
    assert hardware.device("H200").worth("cuda_cores") == "derived"
    assert hardware.device("RTX5090").worth("int8_op_per_s") == "derived"


@pytest.mark.parametrize(
    ("name", "field", "value", "note"),
    [
        ("Xeon-8480+", "memory_bytes", 4096 * 10**9, "stated as <=4096"),
        ("Xeon-6980P", "memory_bytes_per_s", 845e9, "stated as 845(614 RDIMM); derived 12ch x 8800/6400"),
        ("Apple-M4-ANE", "memory_bytes", 16 * 10**9, "stated as 16-32 shared"),
        ("i9-14900K", "tdp_w", 125, "stated as 125/253"),
        ("TPU-v6e", "memory_bytes_per_s", 1.64e12, "book says 1600"),
    ],
)
def test_a_cell_with_two_figures_keeps_the_other_in_a_note(name: str, field: str, value: float, note: str) -> None:
    device = hardware.device(name)
    assert getattr(device, field) == value
    assert device.notes[field] == note


def test_a_remark_on_a_whole_row_from_memory_marks_all_its_figures() -> None:
    i9 = hardware.device("i9-14900K")
    assert "13900K" in i9.notes["remarks"]
    assert i9.worth("memory_bytes_per_s") == "from memory"


def test_names_are_found_in_any_case_and_unknown_ones_bring_the_nearest() -> None:
    assert hardware.device(" h200 ") is hardware.device("H200")
    with pytest.raises(UsageError, match="did you mean 'H100-PCIe' or 'H100-SXM'"):
        hardware.device("H100")
    with pytest.raises(UsageError, match="'RTX4090'"):
        hardware.device("rtx4900")
    with pytest.raises(UsageError, match="known: T4, L4"):
        hardware.device("")


def test_an_unknown_dtype_is_refused() -> None:
    with pytest.raises(UsageError, match="fp8, int8"):
        hardware.device("H200").flop_per_s("fp4")


@pytest.mark.parametrize("device", hardware.devices().values(), ids=lambda device: device.name)
def test_a_device_is_plain_json(device: hardware.Device) -> None:
    data = json.loads(json.dumps(device.to_dict()))
    assert data["name"] == device.name
    assert data["from_memory"] == sorted(device.from_memory)


def test_every_price_parses_and_purchases_are_not_mistaken_for_hours() -> None:
    prices = hardware.prices()
    assert len(prices) == len(table("prices"))
    assert all(0 < price.low_usd <= price.high_usd for price in prices)
    assert all(price.high_usd < 20 for price in prices if price.per == "hour")
    assert {price.device for price in prices if price.per == "purchase"} >= {"RTX4090", "EPYC-9654"}
    mi300x = next(price for price in prices if price.device == "MI300X")
    assert (mi300x.low_usd, mi300x.high_usd, mi300x.note) == (1.50, 1.85, "Azure/Oracle 6.00")


def test_prices_name_devices_of_the_table_except_one_virtual_processor() -> None:
    assert {price.device for price in hardware.prices()} - set(hardware.devices()) == {"SPR-vCPU"}


def test_prices_and_electricity_from_memory_have_no_source_and_say_so() -> None:
    for entry in (*hardware.prices(), *hardware.electricity()):
        assert (entry.source is None) == entry.from_memory, entry


def test_electricity_splits_sectors_and_carries_the_source_of_the_row_above() -> None:
    iowa = {e.sector: e for e in hardware.electricity() if e.region == "US-Iowa"}
    assert iowa["commercial"].price_per_kwh == 0.0979
    assert iowa["industrial"].price_per_kwh == 0.0604
    assert iowa["industrial"].currency == "USD"
    assert iowa["industrial"].source is not None and "EIA" in iowa["industrial"].source


def test_every_country_has_a_carbon_intensity() -> None:
    carbon = hardware.carbon()
    assert len(carbon) == len(table("carbon"))
    assert carbon["USA"].gco2e_per_kwh == 369.473
    assert carbon["USA"].year == 2023
    assert all(0 <= entry.gco2e_per_kwh < 2000 for entry in carbon.values())


def test_measured_rates_name_devices_of_the_table_and_agree_with_their_share() -> None:
    for found, row in zip(hardware.efficiencies(), table("mamf"), strict=True):
        assert set(found.devices) <= set(hardware.devices()), found.family
        assert found.measured_flop_per_s / (float(row["spec"]) * 1e12) == pytest.approx(found.share_of_peak, abs=1e-3)


def test_every_source_key_that_is_used_is_explained() -> None:
    used = {key for device in hardware.devices().values() for key in device.sources}
    used |= {price.source for price in hardware.prices() if price.source}
    used |= {found.source for found in hardware.efficiencies()}
    assert used <= set(hardware.sources())


def test_routes_and_checked_claims_are_kept() -> None:
    assert len(hardware.portability()) == len(table("portability"))
    assert {claim.claim for claim in hardware.claims()} >= {"NVSwitch joins 18 GPUs"}
