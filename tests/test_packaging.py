"""What is built for installation holds everything effkit needs, with or without a C++ compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOT_SOURCE = shutil.ignore_patterns(".*", "out", "build", "dist", "*.egg-info", "__pycache__", "*.so", "tests")

ASK = """
import json
import effkit
from effkit import hardware
from effkit.recipe import load_recipe, ready_recipes
from effkit.suite import load_suite, ready_suites
print(json.dumps({
    "home": effkit.__file__,
    "recipes": [load_recipe(name).name for name in ready_recipes()],
    "suites": [load_suite(name).name for name in ready_suites()],
    "devices": len(hardware.devices()),
}))
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, so that nothing built earlier slips in and nothing is left behind."""
    copy = tmp_path_factory.mktemp("packaging") / "source"
    shutil.copytree(ROOT, copy, ignore=NOT_SOURCE)
    return copy


def build(source: Path, kind: str, out: Path, **environment: str) -> Path:
    code = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(out)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=source,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return out / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built where no compiler works."""
    return build(source, "wheel", tmp_path_factory.mktemp("wheel"), CC="false", CXX="false")


def test_a_wheel_without_a_compiler_holds_all_modules_and_data(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "effkit").rglob("*.py")}
    assert modules <= names
    assert {f"effkit/recipes/{path.name}" for path in (ROOT / "recipes").glob("*.yaml")} <= names
    assert {f"effkit/evals/{path.name}" for path in (ROOT / "evals").glob("*.yaml")} <= names
    assert {f"effkit/data/hardware/{path.name}" for path in (ROOT / "effkit/data/hardware").glob("*.csv")} <= names
    templates = {str(path.relative_to(ROOT)) for path in (ROOT / "effkit/report/templates").glob("*.*")}
    assert templates <= names
    assert "effkit/py.typed" in names
    assert not [name for name in names if name.endswith((".so", ".pyc"))]
    assert {name.split("/")[0] for name in names} == {"effkit", f"{'-'.join(wheel.stem.split('-')[:2])}.dist-info"}


def test_an_installed_wheel_finds_its_recipes_suites_and_tables(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(
        [sys.executable, "-c", ASK], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert Path(found["home"]).is_relative_to(tmp_path)
    assert set(found["recipes"]) == {path.stem for path in (ROOT / "recipes").glob("*.yaml")}
    assert set(found["suites"]) == {path.stem for path in (ROOT / "evals").glob("*.yaml")}
    assert found["devices"] > 30


def test_the_checkout_finds_its_recipes_suites_and_tables() -> None:
    done = subprocess.run([sys.executable, "-c", ASK], cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert Path(found["home"]).parent == ROOT / "effkit"
    assert set(found["recipes"]) == {path.stem for path in (ROOT / "recipes").glob("*.yaml")}
    assert set(found["suites"]) == {path.stem for path in (ROOT / "evals").glob("*.yaml")}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_a_wheel_built_with_a_compiler_holds_the_native_library(source: Path, tmp_path: Path) -> None:
    names = zipfile.ZipFile(build(source, "wheel", tmp_path)).namelist()
    assert [name for name in names if name.startswith("effkit/kernels/native/_library") and name.endswith(".so")]


def test_a_source_archive_holds_what_the_native_library_is_built_from(source: Path, tmp_path: Path) -> None:
    with tarfile.open(build(source, "sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    native = {
        str(p.relative_to(ROOT)) for p in (ROOT / "effkit/kernels/native").iterdir() if p.suffix in {".h", ".cpp"}
    }
    assert native and native <= names
    assert {"setup.py", "pyproject.toml", "constraints.txt", "README.md", "LICENSE", "recipes/int8.yaml"} <= names
