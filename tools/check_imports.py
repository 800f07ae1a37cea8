"""Check that imports inside effkit go one way, and that what must be light imports no torch.

Called as ``python tools/check_imports.py [package directory]``. Reads the source with :mod:`ast` and imports
nothing of effkit. Every finding names file and line. Imports under ``if TYPE_CHECKING:`` do not count: they do not
exist at run time. Imports inside functions count for the direction, but not for the weight of a module.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# From the bottom up. A part may import from its own tier, from those below it, and the leaves.
TIERS: tuple[frozenset[str], ...] = (
    frozenset({"errors", "records", "recipe", "registry", "targets", "strictyaml", "suite", "hardware"}),  # the leaves
    frozenset({"numerics"}),
    frozenset({"inventory", "kernels", "modules"}),
    frozenset({"models", "planning", "apply", "passes", "predict"}),
    frozenset({"runtimes", "measure", "training"}),
    frozenset({"study", "report"}),
    frozenset({"api"}),
    frozenset({"cli"}),
    frozenset({"__main__"}),
)
LEAVES = TIERS[0]
RANK = {part: rank for rank, parts in enumerate(TIERS) for part in parts}

# Beyond the tiers: measuring receives a finished model; it must not know how it came about.
FORBIDDEN = {"measure": frozenset({"passes", "planning", "apply", "models"}), "report": frozenset({"study"})}

TORCH_FREE = LEAVES | {"report"}
HEAVY = frozenset({"torch", "transformers", "torchao", "accelerate", "bitsandbytes"})

PUBLIC_ATTRIBUTES = frozenset({"__version__"})  # what `from effkit import NAME` may fetch inside the package


@dataclass(frozen=True)
class Import:
    """One imported name, as written.

    Attributes:
        module: absolute dotted name of the module named by the statement.
        name: what ``from module import name`` asks for, or None.
        line: 1-based.
        deferred: inside a function, so not executed when the module is imported.
    """

    module: str
    name: str | None
    line: int
    deferred: bool


@dataclass(frozen=True)
class Finding:
    """One broken rule."""

    path: Path
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


class _Imports(ast.NodeVisitor):
    def __init__(self, module: str, is_package: bool) -> None:
        self._package = module if is_package else module.rpartition(".")[0]
        self._depth = 0
        self.found: list[Import] = []

    def visit_Import(self, node: ast.Import) -> None:
        self.found += [Import(alias.name, None, node.lineno, self._depth > 0) for alias in node.names]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        if node.level:
            parents = self._package.split(".")[: len(self._package.split(".")) - node.level + 1]
            base = ".".join([*parents, base]) if base else ".".join(parents)
        self.found += [Import(base, alias.name, node.lineno, self._depth > 0) for alias in node.names]

    def visit_If(self, node: ast.If) -> None:
        for child in node.orelse if _is_type_checking(node.test) else ast.iter_child_nodes(node):
            self.visit(child)

    def _visit_function(self, node: ast.AST) -> None:
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _visit_function  # noqa: N815


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


class Package:
    """The modules of one package directory and what they import."""

    def __init__(self, directory: Path) -> None:
        self.name = directory.name
        self.paths: dict[str, Path] = {}
        self.imports: dict[str, list[Import]] = {}
        for path in sorted(directory.rglob("*.py")):
            parts = path.relative_to(directory.parent).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            module = ".".join(parts[:-1] if is_package else parts)
            visitor = _Imports(module, is_package)
            visitor.visit(ast.parse(path.read_text(encoding="utf-8"), filename=str(path)))
            self.paths[module] = path
            self.imports[module] = visitor.found

    def target(self, found: Import) -> str | None:
        """Return the module of this package that the statement loads, or None for anything outside it."""
        if found.module != self.name and not found.module.startswith(f"{self.name}."):
            return None
        inner = f"{found.module}.{found.name}"
        return inner if found.name and inner in self.paths else found.module

    def part(self, module: str) -> str:
        """Return the top-level part (``measure`` of ``effkit.measure.timing``); empty for the package itself."""
        return module.split(".")[1] if "." in module else ""

    def loaded_by(self, module: str) -> Iterator[str]:
        """Yield ``module`` and its parents: importing ``a.b.c`` runs ``a`` and ``a.b`` first."""
        while module:
            if module in self.paths:
                yield module
            module = module.rpartition(".")[0]


def check_directions(package: Package) -> list[Finding]:
    """Return a finding for each import that goes up, or sideways where that is forbidden."""
    findings = []
    for module, imports in package.imports.items():
        part = package.part(module)
        if part and part not in RANK:
            findings.append(Finding(package.paths[module], 1, f"{part!r} has no tier in tools/check_imports.py"))
            continue
        for found in imports:
            message = _objection(package, part, found)
            if message:
                findings.append(Finding(package.paths[module], found.line, message))
    return findings


def _objection(package: Package, part: str, found: Import) -> str | None:
    target = package.target(found)
    if target is None:
        return None
    other = package.part(target)
    if not other:
        known = part == "" or found.name is None or found.name in PUBLIC_ATTRIBUTES
        return None if known else f"import {found.name} from its own module, not from {package.name}"
    if part == "" or other not in RANK:
        return None
    if other in FORBIDDEN.get(part, ()):
        return f"{part} must not know {other} (imports {target})"
    if RANK[other] > RANK[part]:
        return f"{part} must not import {other}, which lies above it (imports {target})"
    return None


def check_weight(package: Package) -> list[Finding]:
    """Return a finding for each torch-free module that loads torch, with the chain of imports that leads there."""
    findings = []
    for module in package.imports:
        if package.part(module) in TORCH_FREE or module == package.name:
            chain = _heavy_chain(package, module)
            if chain:
                steps, line = chain
                shown = " -> ".join([module, *steps])
                findings.append(Finding(package.paths[module], line, f"{module} must not import torch: {shown}"))
    return findings


def _heavy_chain(package: Package, module: str) -> tuple[tuple[str, ...], int] | None:
    """Return the imports from ``module`` to a heavy one and the line of the first, or None."""
    visited: set[str] = set()
    stack: list[tuple[str, tuple[str, ...], int]] = [(name, (), 0) for name in package.loaded_by(module)]
    while stack:
        current, steps, first_line = stack.pop()
        if current in visited:
            continue
        visited.add(current)
        for found in package.imports[current]:
            if found.deferred:
                continue
            line = first_line or (found.line if current == module else 1)
            if found.module.split(".")[0] in HEAVY:
                return (*steps, found.module), line
            target = package.target(found)
            if target is not None:
                stack += [(name, (*steps, name), line) for name in package.loaded_by(target)]
    return None


def check(directory: Path) -> list[Finding]:
    """Return everything that is wrong with the imports of the package in ``directory``."""
    package = Package(directory)
    return sorted([*check_directions(package), *check_weight(package)], key=lambda f: (str(f.path), f.line))


def main(arguments: list[str] | None = None) -> int:
    """Print the findings; return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).resolve().parent.parent / "effkit"
    parser.add_argument("directory", nargs="?", type=Path, default=default)
    findings = check(parser.parse_args(arguments).directory)
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
