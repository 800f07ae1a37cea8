from __future__ import annotations

from pathlib import Path

import pytest

from effkit.errors import RecipeError, UsageError
from effkit.suite import Suite, default_suite, load_suite, ready_suites


def test_every_ready_suite_loads_and_bears_the_name_of_its_file() -> None:
    assert {"text-quick", "text-wikitext2", "encoder-quick"} <= set(ready_suites())
    for name in ready_suites():
        assert load_suite(name).name == name


def test_topics_are_joined_in_sorted_order_with_one_empty_line() -> None:
    from pydoc_data.topics import topics

    first, second = sorted(topics)[:2]
    text = load_suite("text-quick").read_text()
    assert text.startswith(f"{topics[first]}\n\n{topics[second]}\n\n")


def test_all_faults_of_a_suite_come_at_once_with_lines_and_suggestions(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\nwindw: 12\nstride: 0\nwindows: 0\nbos: alwys\ndecode_batches: [1, 1]\n")
    with pytest.raises(RecipeError) as caught:
        load_suite(path)
    message = str(caught.value)
    assert len(caught.value.problems) == 5
    for part in (
        "line 2, windw",
        "did you mean 'window'",
        "line 3, stride",
        "line 4, windows",
        "line 5, bos",
        "line 6",
    ):
        assert part in message


def test_numbers_written_as_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\nwindow: '64'\nstride: 64\n")
    with pytest.raises(RecipeError, match="window"):
        load_suite(path)


def test_a_stride_above_the_window_is_refused_because_tokens_would_go_unscored() -> None:
    with pytest.raises(RecipeError, match="unscored"):
        Suite.from_dict({"name": "gap", "window": 64, "stride": 65})


def test_a_text_file_named_in_a_suite_is_relative_to_the_suite(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("hello there")
    (tmp_path / "mine.yaml").write_text("name: mine\ntext: words.txt\n")
    assert load_suite(tmp_path / "mine.yaml").read_text() == "hello there"


def test_a_text_file_is_a_suite_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("hello there")
    suite = load_suite(path)
    assert suite.name == "text-quick:words.txt"
    assert suite.read_text() == "hello there"
    assert suite.window == load_suite("text-quick").window


def test_a_ready_suite_takes_a_text_file_after_a_colon(tmp_path: Path) -> None:
    path = tmp_path / "wiki.raw"
    path.write_text("hello there")
    suite = load_suite(f"text-wikitext2:{path}")
    assert suite.windows == "all"
    assert suite.text_label == "wiki.raw"


def test_a_suite_without_its_file_says_how_to_name_one() -> None:
    with pytest.raises(UsageError, match=r"text-wikitext2:path/to/file\.txt"):
        load_suite("text-wikitext2").read_text()


@pytest.mark.parametrize("content", [b"", b" \n\n", b"\xff\xfe\x00bad"])
def test_an_empty_or_undecodable_text_is_a_clear_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"empty|UTF-8"):
        load_suite(path).read_text()


def test_a_misspelt_name_brings_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="did you mean 'text-quick'"):
        load_suite("text-quik")


def test_a_missing_path_is_not_taken_for_a_name() -> None:
    with pytest.raises(UsageError, match="no suite or text file at"):
        load_suite("there/is/none.yaml")


def test_a_suite_naming_a_missing_text_says_so_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("name: mine\ntext: none.txt\n")
    with pytest.raises(RecipeError, match=r"line 2, text: no text file at 'none\.txt'"):
        load_suite(tmp_path / "mine.yaml")


def test_the_fingerprint_follows_settings_and_text_but_not_names(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("hello there")
    suite = load_suite(path)
    renamed = suite.model_copy(update={"name": "other", "description": "other"})
    assert renamed.fingerprint() == suite.fingerprint()
    assert suite.model_copy(update={"window": 512, "stride": 512}).fingerprint() != suite.fingerprint()
    before = suite.fingerprint()
    path.write_text("hello where")
    assert suite.fingerprint() != before


def test_a_suite_survives_its_own_dictionary() -> None:
    suite = load_suite("text-quick")
    assert Suite.from_dict(suite.to_dict()) == suite


def test_a_suite_is_fitted_to_short_models_and_says_what_changed() -> None:
    suite, notes = load_suite("text-quick").fitted(40)
    assert (suite.window, suite.stride, suite.prompt_tokens) == (40, 40, 40)
    assert suite.decode_context + suite.decode_tokens <= 40
    assert any("window is 40 instead of 1024" in note for note in notes)


def test_a_suite_that_fits_is_left_as_it_is() -> None:
    suite = load_suite("text-quick")
    assert suite.fitted(8192) == (suite, ())
    assert suite.fitted(None) == (suite, ())


def test_the_default_suite_follows_the_task() -> None:
    assert default_suite("causal-lm") == "text-quick"
    assert default_suite("encoder") == "encoder-quick"
