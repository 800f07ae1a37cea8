"""Recipes are strict: every fault is found at once, with its line, the value, the allowed values and a suggestion."""

from __future__ import annotations

from pathlib import Path

import pytest

from effkit.errors import RecipeError, UsageError
from effkit.recipe import Recipe, load_recipe, ready_recipes


def read(tmp_path: Path, text: str) -> Recipe:
    file = tmp_path / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    return load_recipe(file)


def faults(tmp_path: Path, text: str) -> dict[str, str]:
    with pytest.raises(RecipeError) as caught:
        read(tmp_path, text)
    return {f"{problem.line}:{problem.where}": str(problem) for problem in caught.value.problems}


def test_every_ready_recipe_is_valid_and_opens_with_its_command() -> None:
    ready = ready_recipes()
    assert "int8" in ready
    for name, path in ready.items():
        assert load_recipe(name).name == name
        assert path.read_text().startswith("# effkit compress-eval ")


def test_defaults_are_filled_in_and_survive_a_round_trip() -> None:
    recipe = Recipe.from_dict({"name": "mine", "passes": [{"use": "int8"}]})
    assert recipe.to_dict()["passes"][0]["weights"] == "channel"
    assert Recipe.from_dict(recipe.to_dict()) == recipe


@pytest.mark.parametrize("name", ["", "../victim", "a/b", "/abs", ".hidden", "x" * 65, "two words", "[red]a[/red]"])
def test_a_name_that_could_leave_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    found = faults(tmp_path, f"name: '{name}'\npasses:\n  - use: int8\n")
    assert "letters, digits" in found["1:name"]
    with pytest.raises(RecipeError, match="letters, digits"):
        Recipe.from_dict({"name": name, "passes": [{"use": "int8"}]})


@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_the_names_of_the_dense_rows_are_reserved(tmp_path: Path, name: str) -> None:
    assert "is the name of a dense row" in faults(tmp_path, f"name: {name}\npasses:\n  - use: int8\n")["1:name"]


def test_a_duplicate_key_hides_no_other_fault(tmp_path: Path) -> None:
    found = faults(tmp_path, "name: a\nname: b\npasses:\n  - use: int8\n    skp: [x]\n    weights: grp\n")
    assert len(found) == 3


def test_a_file_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    assert "nested too deeply" in str(faults(tmp_path, "name: " + "[" * 5000 + "]" * 5000 + "\n"))


def test_a_recipe_cannot_be_changed() -> None:
    recipe = load_recipe("int8")
    with pytest.raises(Exception, match="frozen"):
        recipe.passes[0].weights = "tensor"  # type: ignore[attr-defined]
    with pytest.raises(Exception, match="frozen"):
        recipe.name = "other"  # type: ignore[misc]


def test_all_faults_come_at_once_each_with_its_line(tmp_path: Path) -> None:
    found = faults(
        tmp_path,
        "name: mine\n"
        "pases: 1\n"
        "passes:\n"
        "  - use: int9\n"
        "  - use: int8\n"
        "    weights: chanel\n"
        "    group_sze: 32\n"
        "    untie: 'true'\n"
        "    min_coverage: 3\n",
    )
    assert "did you mean 'passes'?" in found["2:pases"]
    assert "did you mean 'int8'?" in found["4:passes[0].use"]
    assert "allowed: channel" in found["6:passes[1].weights"]
    assert "did you mean 'channel'?" in found["6:passes[1].weights"]
    assert "unknown setting" in found["7:passes[1].group_sze"]
    assert "'true'" in found["8:passes[1].untie"]
    assert "less than or equal to 1" in found["9:passes[1].min_coverage"]
    assert len(found) == 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\nname: b\npasses:\n  - use: int8\n", "the key stands twice"),
        ("name: a\npasses:\n  use: int8\n", "should be a valid list"),
        ("name: a\npasses: []\n", "name at least one pass"),
        ("name: a\n", "is required"),
        ("name: a\npasses:\n  - int8\n", "must be a mapping that starts with `use:`"),
        ("name: a\npasses:\n  - weights: channel\n", "has no `use:`"),
        ("", "the file is empty"),
        ("- a\n- b\n", "must be a mapping"),
        ("name: [a\n", "not valid YAML"),
        ("name: !!python/object/apply:os.system ['true']\npasses:\n  - use: int8\n", "is not plain data"),
        ("name: a\nuse_weights_only: &x [*x]\npasses:\n  - use: int8\n", "alias refers to itself"),
        ("name: 8\npasses:\n  - use: int8\n", "should be a valid string"),
    ],
)
def test_malformed_files_are_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        read(tmp_path, text)
    assert message in str(caught.value)
    assert "mine.yaml" in str(caught.value)


def test_yaml_exponents_without_a_point_are_numbers(tmp_path: Path) -> None:
    recipe = read(tmp_path, "name: a\npasses:\n  - use: int8\n    min_coverage: 1e-3\n")
    assert recipe.passes[0].min_coverage == 0.001


def test_an_unknown_name_suggests_the_ready_one() -> None:
    with pytest.raises(UsageError, match="did you mean 'int8'"):
        load_recipe("int88")


def test_a_missing_file_and_a_directory_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no recipe file at"):
        load_recipe(tmp_path / "absent.yaml")
    with pytest.raises(UsageError, match="is a directory"):
        load_recipe(tmp_path)


def test_a_fingerprint_follows_the_settings_and_not_the_description() -> None:
    base = {"name": "a", "passes": [{"use": "int8"}]}
    same = Recipe.from_dict({**base, "description": "words"})
    spelled_out = Recipe.from_dict({"name": "a", "passes": [{"use": "int8", "weights": "channel"}]})
    other = Recipe.from_dict({"name": "a", "passes": [{"use": "int8", "skip": ["lm_head"]}]})
    assert Recipe.from_dict(base).fingerprint() == same.fingerprint() == spelled_out.fingerprint()
    assert other.fingerprint() != same.fingerprint()
