"""Imports go one way, and what must start fast imports no torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.check_imports import HEAVY, RANK, check, main

ROOT = Path(__file__).resolve().parent.parent


def write_package(root: Path, files: dict[str, str]) -> Path:
    package = root / "effkit"
    for name, text in {"__init__.py": "", **files}.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return package


def messages(package: Path) -> list[str]:
    return [f"{finding.path.relative_to(package)}:{finding.line}: {finding.message}" for finding in check(package)]


def test_the_imports_of_effkit_go_one_way() -> None:
    assert [str(finding) for finding in check(ROOT / "effkit")] == []


def test_every_part_of_effkit_has_a_tier() -> None:
    parts = {path.stem if path.is_file() else path.name for path in (ROOT / "effkit").iterdir()}
    assert parts - {"__init__", "__pycache__", "data", "py"} <= set(RANK)


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("numerics/affine.py", "import torch\nfrom effkit.planning import Plan\n", "numerics must not import planning"),
        ("numerics/affine.py", "def f():\n    from effkit import planning\n", "numerics must not import planning"),
        ("numerics/affine.py", "from .. import planning\n", "numerics must not import planning"),
        (
            "numerics/affine.py",
            "try:\n    pass\nfinally:\n    from ..planning import Plan\n",
            "must not import planning",
        ),
        ("measure/timing.py", "import effkit.models\n", "measure must not know models"),
        ("errors.py", "import effkit.numerics\n", "errors must not import numerics"),
        ("planning.py", "from effkit import load\n", "import load from its own module"),
        ("newcomer.py", "", "'newcomer' has no tier"),
        (
            "report/html.py",
            "import torch.nn\n",
            "effkit.report.html must not import torch: effkit.report.html -> torch.nn",
        ),
    ],
)
def test_a_wrong_import_is_found(tmp_path: Path, file: str, text: str, expected: str) -> None:
    package = write_package(
        tmp_path, {"planning.py": "", "models/__init__.py": "", "numerics/__init__.py": "", file: text}
    )
    found = messages(package)
    assert any(expected in message for message in found), found
    assert main([str(package)]) == 1


def test_a_finding_names_the_file_and_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = write_package(
        tmp_path, {"planning.py": "", "numerics/affine.py": "import math\n\n\nimport effkit.planning\n"}
    )
    assert main([str(package)]) == 1
    assert capsys.readouterr().out == (
        f"{package / 'numerics' / 'affine.py'}:4: "
        "numerics must not import planning, which lies above it (imports effkit.planning)\n"
    )


def test_torch_behind_another_module_is_found_with_the_way_to_it(tmp_path: Path) -> None:
    files = {
        "report/__init__.py": "",
        "report/html.py": "from effkit.numerics.affine import scale\n",
        "numerics/__init__.py": "",
        "numerics/affine.py": "import torch\nscale = 1\n",
    }
    way = "effkit.report.html -> effkit.numerics.affine -> torch"
    assert messages(write_package(tmp_path, files)) == [
        f"report/html.py:1: effkit.report.html must not import torch: {way}"
    ]


def test_a_parent_package_that_imports_torch_makes_its_modules_heavy(tmp_path: Path) -> None:
    files = {"report/__init__.py": "", "report/html.py": "import effkit.numerics.pure\n", "numerics/pure.py": ""}
    package = write_package(tmp_path, {**files, "numerics/__init__.py": "import torch\n"})
    assert any("effkit.report.html must not import torch" in message for message in messages(package))


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("report/html.py", "def f():\n    import torch\n"),
        ("report/html.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n"),
        ("errors.py", "import typing\nif typing.TYPE_CHECKING:\n    from effkit.planning import Plan\n"),
        ("planning.py", "from effkit.numerics import affine\nfrom effkit import errors, __version__\n"),
        ("cli/main.py", "from effkit.planning import Plan\n"),
    ],
)
def test_a_right_import_is_left_alone(tmp_path: Path, file: str, text: str) -> None:
    files = {"planning.py": "", "errors.py": "", "numerics/__init__.py": "", "numerics/affine.py": "", file: text}
    assert messages(write_package(tmp_path, files)) == []


def loaded_modules(code: str) -> set[str]:
    """Run ``code`` in a fresh interpreter and return the top-level names of all modules it has loaded then."""
    script = f"{code}\nimport json, sys\nprint('\\n' + json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    return {name.split(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


def test_import_effkit_loads_neither_torch_nor_pydantic() -> None:
    assert not loaded_modules("import effkit; dir(effkit)") & {*HEAVY, "pydantic", "typer", "rich", "numpy"}


def test_help_loads_no_torch() -> None:
    code = """
import sys
from effkit.cli import main
sys.argv = ["effkit", "--help"]
try:
    main()
except SystemExit as end:
    assert not end.code
"""
    assert not loaded_modules(code) & {*HEAVY, "numpy", "scipy", "matplotlib"}


@pytest.mark.parametrize(
    "module", ["errors", "records", "recipe", "registry", "targets", "strictyaml", "suite", "hardware", "report"]
)
def test_leaves_and_reports_load_no_torch(module: str) -> None:
    assert not loaded_modules(f"import effkit.{module}") & HEAVY


def test_every_public_name_can_be_imported() -> None:
    loaded_modules("import effkit\nfor name in effkit.__all__:\n    assert getattr(effkit, name) is not None, name")
