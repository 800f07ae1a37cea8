"""What README and docs say is true: tables are current, links lead somewhere, examples run, every verb is explained."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from effkit.recipe import Recipe
from tools import readme_tables

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def code_blocks(language: str) -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_generated_tables_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert readme_tables.main(["--check"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_every_verb_of_the_command_line_is_in_the_readme() -> None:
    import typer

    from effkit.cli.app import app

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        assert command.hidden or f"`effkit {name}`" in text, name


def test_every_recipe_of_the_readme_is_valid() -> None:
    blocks = code_blocks("yaml")
    assert blocks
    for block in blocks:
        Recipe.from_dict(yaml.safe_load(block))


def test_the_python_example_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from tests.tiny import tiny_llama

    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"model": tiny_llama()}
    (block,) = code_blocks("python")
    before, _, after = block.partition("model = effkit.load")
    exec(before, names)
    ids = torch.arange(3, 20)[None]
    with torch.no_grad():
        expected = names["model"](ids).logits  # type: ignore[operator]
        exec(f"model = effkit.load{after}", names)
        assert torch.equal(names["model"](ids).logits, expected)  # type: ignore[operator]


def test_every_setting_of_a_pass_is_in_the_table_of_passes() -> None:
    from effkit.registry import PassConfig, pass_types

    table = readme_tables.passes()
    for name, kind in pass_types().items():
        assert f"`{name}`" in table
        for setting in set(kind.model_fields) - set(PassConfig.model_fields):
            assert f"`{setting}: " in table


def test_a_stale_table_fails_the_check_and_shows_the_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table: recipes -->\nold\n<!-- end table -->\nafter\n", encoding="utf-8")
    assert readme_tables.main(["--check", str(page)]) == 1
    assert "-old" in capsys.readouterr().out
    assert "old" in page.read_text()
    assert readme_tables.main([str(page)]) == 0
    written = page.read_text()
    assert "`int8`" in written and "old" not in written
    assert written.startswith("before\n") and written.endswith("after\n")
    assert readme_tables.main(["--check", str(page)]) == 0


def test_an_unknown_table_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no table is called 'recipe'; known: .*recipes"):
        readme_tables.rendered("<!-- table: recipe -->\n<!-- end table -->")


def test_a_bar_in_a_cell_does_not_split_it() -> None:
    assert readme_tables.table(("a",), [("x | y",)]).splitlines()[-1] == "| x \\| y |"
