"""GPUs by the names that people, clouds and drivers give them."""

from __future__ import annotations

from pathlib import Path

import pytest

from estimators.errors import BadInput
from estimators.gpus import find_gpu, known_gpus, price_notes, price_of, split_count, usable_bytes
from estimators.hardware import hardware_from_memory, hardware_from_name

GIB = 1 << 30


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("A100-80G", "A100 80GB"),
        ("A100 PCIe 80GB", "A100 80GB"),
        ("A100 SXM", "A100 80GB"),
        ("A100 (80 GiB)", "A100 80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("A100 40G", "A100 40GB"),
        ("A800", "A100 80GB"),
        ("NVIDIA H100 SXM5 80GB", "H100 80GB"),
        ("H100", "H100 80GB"),
        ("H100 PCIe", "H100 80GB PCIe"),
        ("H100 94GB", "H100 NVL 94GB"),
        ("H800", "H100 80GB"),
        ("H20", "H20"),
        ("L40", "L40"),
        ("nvidia l4", "L4"),
        ("T4 15GB", "T4"),
        ("V100", "V100 16GB"),
        ("Tesla V100 SXM2 32 GB", "V100 32GB"),
        ("P100", "P100 16GB"),
        ("4090", "RTX 4090"),
        ("3090ti", "RTX 3090 Ti"),
        ("RTX 4080 SUPER", "RTX 4080 SUPER"),
        ("3080 12GB", "RTX 3080 12GB"),
        ("4060ti 16gb", "RTX 4060 Ti 16GB"),
        ("1080 Ti", "GTX 1080 Ti"),
        ("Titan RTX", "TITAN RTX"),
        ("A5000", "RTX A5000"),
        ("RTX A6000", "RTX A6000"),
        ("RTX PRO 6000 Blackwell", "RTX PRO 6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("MI250", "MI250"),
        ("AMD Instinct MI325X", "MI325X"),
    ],
)
def test_spellings(said: str, meant: str) -> None:
    assert find_gpu(said).name == meant


def test_every_listed_name_finds_its_own_row() -> None:
    for gpu in known_gpus().values():
        for name in (gpu.name, *gpu.aliases):
            assert find_gpu(name).memory_bytes == gpu.memory_bytes, name


@pytest.mark.parametrize(
    ("said", "near"),
    [
        ("H1000", "H100 80GB"),
        ("B100", "B200"),
        ("RTX 4090 48GB", "RTX 4090"),
        ("RTX 4090 Laptop", "RTX 4090"),
        ("MI300", "MI300X"),
    ],
)
def test_an_unknown_card_is_an_error_with_the_nearest(said: str, near: str) -> None:
    with pytest.raises(BadInput) as error:
        find_gpu(said)
    assert f'did you mean "{near}"' in str(error.value)
    assert len(str(error.value)) < 170


@pytest.mark.parametrize(
    ("said", "count", "name"),
    [
        ("2x A100 80GB", 2, "A100 80GB"),
        ("8 × H100", 8, "H100"),
        ("H100 x8", 8, "H100"),
        ("L4:4", 4, "L4"),
        ("GTX 1080 Ti", None, "GTX 1080 Ti"),
        ("RTX 4090", None, "RTX 4090"),
    ],
)
def test_how_many(said: str, count: int | None, name: str) -> None:
    assert split_count(said) == (count, name)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("A100 80GB", 79.1, 79.3),
        ("A100 40GB", 39.3, 39.6),
        ("H100", 79.0, 79.6),
        ("T4", 14.5, 14.8),
        ("L4", 22.0, 22.2),
        ("RTX 4090", 23.5, 23.7),
        ("H200", 139.7, 140.4),
        ("RTX A5000", 23.3, 23.7),
    ],
)
def test_a_named_card_has_what_cuda_can_give(name: str, low: float, high: float) -> None:
    """Totals that torch reports on these cards; the last by the rule for cards without a known one."""
    assert low <= hardware_from_name(name, 1).devices[0].free_bytes / GIB <= high


def test_the_drivers_reserve_is_under_a_gibibyte() -> None:
    for gpu in known_gpus().values():
        assert 0 <= gpu.memory_bytes - usable_bytes(gpu) < 1.3 * GIB, gpu.name


def test_a_card_by_its_memory() -> None:
    hardware = hardware_from_memory("Gaudi 9", 24 * GIB, 2)
    assert [device.free_bytes for device in hardware.devices] == [24 * GIB] * 2
    assert hardware.devices[0].name == "Gaudi 9"


def prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Path:
    path = tmp_path / "prices.csv"
    path.write_text(text)
    monkeypatch.setenv("ADVISOR_PRICES", str(path))
    return path


def test_own_prices_under_any_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prices(tmp_path, monkeypatch, "gpu,usd_per_gpu_hour\nH100,2.5\nH1000,1\n")
    price = price_of("H100 80GB")
    assert price is not None
    assert price.low == 2.5
    (note,) = price_notes()
    assert "H1000" in note
    assert '"H100 80GB"' in note


@pytest.mark.parametrize("amount", ["nan", "-2", "inf", "two", ""])
def test_a_price_is_a_number_of_at_least_zero(
    amount: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = prices(tmp_path, monkeypatch, f"gpu,usd_per_gpu_hour\nT4,0.3\nL4,{amount}\n")
    with pytest.raises(BadInput, match=f"{path}:3"):
        price_of("T4")
