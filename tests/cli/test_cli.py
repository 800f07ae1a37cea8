"""The command line: exit codes, one clear message per mistake, pure JSON, and every verb documented."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from effkit.cli import app as application
from effkit.cli import main
from effkit.cli.common import parse_size, size_text, slug
from effkit.cli.plan import common_name, folded
from effkit.errors import UsageError
from effkit.inventory import take_inventory
from effkit.planning import make_plan
from effkit.recipe import load_recipe
from effkit.records import Ceilings
from tests.study.helpers import write_suite
from tests.tiny import save_tiny, tiny_llama

ROOT = Path(__file__).parent.parent.parent
VERBS = {
    "compress-eval", "plan", "compress", "eval", "bench", "report", "recipes", "passes", "suites", "hardware", "doctor",
}  # fmt: skip


@pytest.fixture(autouse=True)
def known_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is measured in these tests."""
    from effkit.measure import roofline

    ceilings = Ceilings(
        device="cpu", memory_read_bytes_per_s=1e10, fp32_flop_per_s=1e11, bf16_flop_per_s=2e11, threads=2, method="test"
    )
    monkeypatch.setattr(roofline, "measure_ceilings", lambda device="cpu", refresh=False: ceilings)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("model") / "tiny"))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    code, out, err = run(capsys, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def test_every_verb_is_there_has_an_example_and_is_documented() -> None:
    group = typer.main.get_command(application.app)
    assert set(group.commands) == VERBS  # type: ignore[attr-defined]
    readme = (ROOT / "README.md").read_text()
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        assert f"Example: effkit {name}" in command.help, name
        assert any("--json" in parameter.opts for parameter in command.params), name
        assert re.search(rf"`effkit {name}|`{name}`|effkit {name}", readme), f"README.md does not mention {name}"


def test_help_ends_well_and_shows_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0 and all(verb in out for verb in VERBS)
    assert run(capsys, "--version")[1].startswith("effkit 0.")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["plan", "MODEL"], "--recipe"),
        (["plan", "MODEL", "--recipe", "int88"], "did you mean 'int8'"),
        (["plan", "MODEL", "--recipe", "int8", "--device", "H100-SX"], "did you mean 'H100-SXM'"),
        (["plan", "nowhere/at/all.gguf", "--recipe", "int8"], "there is no nowhere/at/all.gguf"),
        (["plan", "sample:smolm2-135m", "--recipe", "int8"], "sample:smollm2-135m"),
        (["plan", "MODEL", "--recipe", "int8", "--batch", "0"], "--batch"),
        (["compress-eval", "MODEL", "--recipe", "int8", "--suite", "text-quik"], "did you mean 'text-quick'"),
        (["compress-eval", "MODEL", "--recipe", "int8", "--memory-limit", "4 gigs"], "write it like 4GiB"),
        (["compress-eval", "MODEL", "--recipe", "int8", "--device", "tpu", "--out", "OUT"], "--device 'tpu'"),
        (["compress-eval", "MODEL", "--recipe", "int8", "--out", "FILE"], "is a file"),
        (["compress", "MODEL", "--recipe", "int8", "--out", "OUT", "--dtype", "fp16"], "allowed: stored"),
        (["compress", "MODEL", "--recipe", "int8", "--out", "FULL"], "FULL"),
        (["compress", "MODEL", "--recipe", "int8", "--out", "x" * 300], "cannot be a directory"),
        (["compress-eval", "MODEL", "--recipe", "int8", "--out", "x" * 300], "cannot be a directory"),
        (["eval", "MODEL", "--suite", "nothing.txt"], "no suite or text file at nothing.txt"),
        (["bench", "MODEL", "--recipe", "nope.yaml"], "no recipe file at nope.yaml"),
        (["report", "OUT"], "run.sqlite"),
        (["recipes", "int9"], "did you mean 'int8'"),
        (["passes", "int9"], "did you mean 'int8'"),
        (["suites", "quick"], "ready suites"),
        (["hardware", "h2000"], "h2000"),
    ],
)
def test_a_users_mistake_is_one_clear_message_and_exit_code_two(
    capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "theirs").write_text("theirs")
    places = {
        "MODEL": model,
        "OUT": str(tmp_path / "out"),
        "FILE": str(tmp_path / "file"),
        "FULL": str(tmp_path / "full"),
    }
    code, out, err = run(capsys, *(places.get(word, word) for word in arguments))
    assert code == 2, (out, err)
    flat = re.sub(r"[\s│╭╮╰╯─]+", " ", err)
    assert places.get(message, message) in flat
    assert "Traceback" not in err and out == ""
    assert (tmp_path / "file").read_text() == "mine" and (tmp_path / "full" / "theirs").read_text() == "theirs"


def test_all_mistakes_of_one_command_are_told_at_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("name: w\npasses:\n  - use: int8\n    weigths: channel\n")
    code, _, err = run(
        capsys, "compress-eval", "MODEL", "-r", "int88", "-r", str(wrong), "-s", "text-quik", "--memory-limit", "x"
    )
    assert code == 2
    for part in ("'int8'", "did you mean 'weights'", "line 4", "'text-quick'", "--memory-limit"):
        assert part in err


def test_a_fault_of_effkit_is_a_short_message_with_a_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from effkit import recipe

    def broken() -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(recipe, "ready_recipes", broken)
    code, _, err = run(capsys, "recipes")
    assert code == 1 and "ZeroDivisionError: by zero" in err and "Traceback" not in err
    log = Path(re.search(r"details are in (\S+)", err)[1])  # type: ignore[index]
    assert "Traceback" in log.read_text()
    log.unlink()


def test_an_interrupt_is_exit_code_130(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from effkit import recipe

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(recipe, "ready_recipes", interrupted)
    assert run(capsys, "recipes")[0] == 130


def test_plan_shows_every_layer_coverage_and_what_to_expect(capsys: pytest.CaptureFixture[str], model: str) -> None:
    code, out, _ = run(capsys, "plan", model, "--recipe", "int8", "--device", "h100-sxm")
    assert code == 0
    flat = re.sub(r"[\s│┃]+", " ", out)
    assert "of the weight bytes covered" in flat and "int8 per channel" in flat
    assert "H100-SXM" in flat and "this machine 10.0 GB/s" in flat


def test_plan_as_json_holds_layers_reasons_and_predictions(capsys: pytest.CaptureFixture[str], model: str) -> None:
    data = as_json(capsys, "plan", model, "--recipe", "int8", "--device", "H100-SXM", "--context", "128")
    layers = {layer["name"]: layer for layer in data["plans"][0]["passes"][0]["layers"]}
    assert layers["model.norm"]["reason"] and not layers["model.norm"]["action"]
    assert layers["lm_head"]["note"] == "shares model.embed_tokens"
    fp32, int8 = data["predictions"]
    here = int8["decode_tokens_per_s_at_most"]["this machine"]
    assert here == pytest.approx(1e10 / int8["decode_bytes_per_token"])
    assert fp32["decode_tokens_per_s_at_most"]["H100-SXM"] < int8["decode_tokens_per_s_at_most"]["H100-SXM"]


def test_repeated_layers_are_folded_into_one_line() -> None:
    plan = make_plan(take_inventory(tiny_llama(layers=12)), load_recipe("int8"))
    groups = folded(plan.passes[0].layers)
    names = [common_name([layer.name for layer in group]) for group in groups]
    assert "model.layers.{0-11}.mlp.up_proj" in names
    assert sum(len(group) for group in groups) == len(plan.passes[0].layers)
    assert common_name(["a.1.b", "a.3.b"]) == "a.{1,3}.b"


def test_compress_then_eval_against_the_dense_model(
    capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path
) -> None:
    done = as_json(capsys, "compress", model, "--recipe", "int8", "--out", str(tmp_path / "int8"))
    assert done["weight_file_bytes"] > 0 and done["plan"]["coverage"]["share"] > 0.99
    suite = str(write_suite(tmp_path))
    data = as_json(capsys, "eval", str(tmp_path / "int8"), "--baseline", model, "--suite", suite)
    accuracy = data["accuracy"][0]
    assert abs(accuracy["perplexity_ratio"] - 1) < 0.05 and accuracy["kl_mean"] > 0
    code, out, _ = run(capsys, "eval", model, "--suite", suite)
    assert code == 0 and "perplexity" in out


def test_a_compressed_model_cannot_be_compressed_again(
    capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path
) -> None:
    assert run(capsys, "compress", model, "--recipe", "int8", "--out", str(tmp_path / "int8"))[0] == 0
    code, _, err = run(capsys, "compress", str(tmp_path / "int8"), "--recipe", "int8", "--out", str(tmp_path / "again"))
    assert code == 2 and "already compressed" in err
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("verb", ["recipes", "passes", "suites", "hardware"])
def test_lists_are_json_lists_and_their_entries_can_be_shown(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    listed = as_json(capsys, verb)
    name = listed[0]["name"]
    assert as_json(capsys, verb, name)
    for arguments in ((verb,), (verb, name)):
        code, out, _ = run(capsys, *arguments)
        assert code == 0 and name in out


def test_a_shown_recipe_is_a_file_that_can_be_used(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, out, _ = run(capsys, "recipes", "int8")
    (tmp_path / "mine.yaml").write_text(out)
    assert load_recipe(tmp_path / "mine.yaml") == load_recipe("int8")


def test_doctor_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    data = as_json(capsys, "doctor")
    assert data["devices"][0]["ceilings"]["memory_read_bytes_per_s"] == 1e10
    assert data["native_library"] and any(kernel["name"] == "int8-expand" for kernel in data["kernels"])
    code, out, _ = run(capsys, "doctor")
    assert code == 0 and "measured ceilings" in out


@pytest.mark.parametrize(
    ("text", "size"), [("4GiB", 4 << 30), ("500 MB", 500_000_000), ("1.5kb", 1500), ("1000000", 1_000_000)]
)
def test_sizes_are_read_in_binary_and_decimal_units(text: str, size: int) -> None:
    assert parse_size(text, "--x") == size


@pytest.mark.parametrize("text", ["", "GiB", "4GX", "-1GB", "0", "1e9"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--x"):
        parse_size(text, "--x")


def test_sizes_are_shown_in_decimal_units() -> None:
    assert [size_text(n) for n in (0, 999, 1500, 538_100_000, 2.5e12)] == [
        "0 B",
        "999 B",
        "1.5 kB",
        "538.1 MB",
        "2.5 TB",
    ]


def test_the_default_output_folder_has_a_plain_name() -> None:
    assert slug("sample:smollm2-135m") == "sample-smollm2-135m"
    assert slug("org/model") == "org-model"


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    command = f"{sys.executable} -m effkit hardware | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=ROOT)
    assert "Traceback" not in done.stderr
