"""The set-up scripts and tools, as a user meets them; no network: pip and venv are played by a stub."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from effkit.errors import SourceError
from tools import fetch_sample

ROOT = Path(__file__).resolve().parent.parent
BASH = shutil.which("bash") or "/bin/bash"

# Plays python3: makes environments whose python is this stub again, notes what pip is asked for.
STUB = """#!{bash}
case "$1 $2" in
"-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; : >"$3/pyvenv.cfg"; echo "venv" >>"{log}" ;;
"-m pip")
    [[ "$*" == *--version* ]] && exit "${{STUB_NO_PIP:-0}}"
    echo "pip ${{*: -1}}" >>"{log}"
    exit "${{STUB_PIP_EXIT:-0}}" ;;
"-m ensurepip") echo "ensurepip" >>"{log}" ;;
"-m pytest") echo "pytest ${{*:3}}" ;;
"-m effkit") echo "effkit ${{*:3}}"; exit "${{STUB_EFFKIT_EXIT:-0}}" ;;
tools/fetch_sample.py*) echo "fetch $2 in $PWD" ;;
*"import ensurepip"*) exit "${{STUB_ENSUREPIP_EXIT:-0}}" ;;
*"import venv"*) exit "${{STUB_VENV_EXIT:-0}}" ;;
*version_info*) exit "${{STUB_OLD_EXIT:-0}}" ;;
"--version "*) echo "Python 3.9.1" ;;
*) exec "{python}" "$@" ;;
esac
"""


class Checkout:
    """A copy of the scripts in a folder with a space in its name, with a PATH on which only a stub python3 is found."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a checkout"
        self.bin = folder / "bin"
        self.log = folder / "log"
        (self.root / "tools").mkdir(parents=True)
        self.bin.mkdir()
        for name in ("_setup.sh", "test.sh", "demo.sh"):
            shutil.copy(ROOT / "tools" / name, self.root / "tools" / name)
        for name in ("constraints.txt", "pyproject.toml", "setup.py"):
            (self.root / name).write_text(name)
        for name in ("dirname", "mkdir", "rm", "cat", "sleep", "cp"):
            (self.bin / name).symlink_to(shutil.which(name) or f"/bin/{name}")

    def add_python(self) -> None:
        stub = self.bin / "python3"
        stub.write_text(STUB.format(bash=BASH, log=self.log, python=sys.executable))
        stub.chmod(0o755)

    def test_sh(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.run("test.sh", *arguments, **environment)

    def run(self, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BASH, str(self.root / "tools" / script), *arguments],
            env={"PATH": str(self.bin), **environment},
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )

    def log_lines(self) -> list[str]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return lines


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    made = Checkout(tmp_path)
    made.add_python()
    return made


def installs(checkout: Checkout) -> list[str]:
    return ["venv", "pip setuptools", f"pip {checkout.root}[test]"]


def test_the_first_run_installs_and_passes_arguments_to_pytest(checkout: Checkout) -> None:
    done = checkout.test_sh("-k", "two words")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "pytest -k two words\n"
    assert checkout.log_lines() == installs(checkout)


def test_a_second_run_installs_nothing(checkout: Checkout) -> None:
    checkout.test_sh()
    checkout.log_lines()
    done = checkout.test_sh()
    assert done.returncode == 0
    assert checkout.log_lines() == []
    assert done.stderr == ""


def test_a_changed_lock_file_installs_again_into_the_same_environment(checkout: Checkout) -> None:
    checkout.test_sh()
    checkout.log_lines()
    (checkout.root / "constraints.txt").write_text("changed")
    assert checkout.test_sh().returncode == 0
    assert checkout.log_lines() == installs(checkout)[1:]


def test_a_native_source_that_changed_installs_again_but_the_library_built_from_it_does_not(checkout: Checkout) -> None:
    native = checkout.root / "effkit" / "kernels" / "native"
    native.mkdir(parents=True)
    (native / "rows.cpp").write_text("one")
    checkout.test_sh()
    checkout.log_lines()
    (native / "_library.cpython-311-x86_64-linux-gnu.so").write_text("built")
    checkout.test_sh()
    assert checkout.log_lines() == []
    (native / "rows.cpp").write_text("two")
    checkout.test_sh()
    assert checkout.log_lines() == installs(checkout)[1:]


def test_a_set_up_that_was_killed_starts_afresh(checkout: Checkout) -> None:
    checkout.test_sh()
    checkout.log_lines()
    leftover = checkout.root / ".venv" / "half-written"
    leftover.touch()
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    (checkout.root / ".venv" / ".effkit-unfinished").write_text(ended.stdout)
    done = checkout.test_sh()
    assert done.returncode == 0
    assert "was interrupted" in done.stderr
    assert not leftover.exists()
    assert checkout.log_lines() == installs(checkout)


def test_an_environment_whose_python_is_gone_is_made_anew(checkout: Checkout) -> None:
    checkout.test_sh()
    checkout.log_lines()
    (checkout.root / ".venv" / "bin" / "python").unlink()
    assert checkout.test_sh().returncode == 0
    assert checkout.log_lines() == installs(checkout)


def test_an_environment_without_pip_is_given_one(checkout: Checkout) -> None:
    checkout.test_sh()
    checkout.log_lines()
    assert checkout.test_sh(STUB_NO_PIP="1").returncode == 0
    assert checkout.log_lines() == ["ensurepip"]


def test_an_environment_of_an_older_python_is_not_touched(checkout: Checkout) -> None:
    checkout.test_sh()
    checkout.log_lines()
    done = checkout.test_sh(STUB_OLD_EXIT="1")
    assert done.returncode == 1
    assert "holds Python 3.9.1, and Python 3.11 or newer is needed" in done.stderr
    assert checkout.log_lines() == []


def test_a_folder_that_is_no_environment_is_not_deleted(checkout: Checkout) -> None:
    kept = checkout.root / ".venv" / "kept"
    kept.parent.mkdir()
    kept.touch()
    done = checkout.test_sh()
    assert done.returncode == 1
    assert "is no environment; move it away" in done.stderr
    assert kept.exists()


def test_a_pip_that_fails_says_to_run_again_and_the_next_run_goes_on(checkout: Checkout) -> None:
    done = checkout.test_sh(STUB_PIP_EXIT="1")
    assert done.returncode == 1
    assert "run the same command again" in done.stderr
    assert done.stdout == ""
    checkout.log_lines()
    assert checkout.test_sh().returncode == 0
    assert checkout.log_lines() == installs(checkout)[1:]


def test_a_set_up_waits_for_another_one_that_is_at_work(checkout: Checkout) -> None:
    checkout.test_sh()
    other = subprocess.Popen([shutil.which("sleep") or "sleep", "0.5"])
    unfinished = checkout.root / ".venv" / ".effkit-unfinished"
    unfinished.write_text(str(other.pid))
    waiting = subprocess.Popen(
        [BASH, str(checkout.root / "tools" / "test.sh")],
        env={"PATH": str(checkout.bin)},
        stderr=subprocess.PIPE,
        text=True,
    )
    other.wait()
    unfinished.unlink()
    _, errors = waiting.communicate()
    assert waiting.returncode == 0
    assert f"another set-up (process {other.pid}) is at work" in errors


def test_the_demo_fetches_the_sample_runs_the_main_job_and_says_where_the_reports_are(checkout: Checkout) -> None:
    done = checkout.run("demo.sh", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"fetch smollm2-135m in {checkout.root}",
        "effkit compress-eval sample:smollm2-135m --recipe int8 --suite text-quick --out out/demo --device cpu",
    ]
    assert f"{checkout.root}/out/demo/report.html" in done.stderr
    assert checkout.log_lines() == ["venv", "pip setuptools", f"pip {checkout.root}"]


def test_a_demo_that_fails_promises_no_reports(checkout: Checkout) -> None:
    done = checkout.run("demo.sh", STUB_EFFKIT_EXIT="1")
    assert done.returncode == 1
    assert "report.html" not in done.stderr


def test_without_python_the_message_names_the_package(tmp_path: Path) -> None:
    done = Checkout(tmp_path).test_sh()
    assert done.returncode == 1
    assert done.stderr.startswith(
        "error: python3 is not installed; on Debian or Ubuntu: apt install python3 python3-venv"
    )


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"STUB_OLD_EXIT": "1"}, "Python 3.11 or newer is needed; Python 3.9.1 is what python3 is here"),
        ({"STUB_VENV_EXIT": "1"}, "python3 has no venv module; on Debian or Ubuntu: apt install python3-venv"),
        ({"STUB_ENSUREPIP_EXIT": "1"}, "python3 has no ensurepip"),
        ({"PYTHON": "/nowhere/python"}, "PYTHON=/nowhere/python does not run or is older than Python 3.11"),
    ],
)
def test_what_is_missing_is_named_before_anything_is_made(
    checkout: Checkout, environment: dict[str, str], message: str
) -> None:
    done = checkout.test_sh(**environment)
    assert done.returncode == 1
    assert f"error: {message}" in done.stderr
    assert not (checkout.root / ".venv").exists()


def test_the_lock_pins_every_dependency_that_pyproject_names() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named = [*project["dependencies"], *extras["test"], *extras["dev"]]
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in lock_lines()}
    assert {name.split(">")[0].split("<")[0].split("[")[0].lower() for name in named} <= pinned


def test_the_lock_holds_exact_versions_without_local_builds_or_addresses() -> None:
    for line in lock_lines():
        name, _, version = line.partition("==")
        assert name and version, line
        assert not set(version) & set("+ @;/"), line


def lock_lines() -> list[str]:
    return [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]


def test_fetch_sample_prints_where_the_model_lies(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(fetch_sample, "fetch_sample", lambda name, progress: tmp_path / f"{name}.gguf")
    assert fetch_sample.main(["smollm2-135m"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'smollm2-135m.gguf'}\n"


def test_fetch_sample_says_what_is_wrong_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(name: str, progress: object) -> Path:
        raise SourceError(f"no sample model is called {name!r}")

    monkeypatch.setattr(fetch_sample, "fetch_sample", refuse)
    assert fetch_sample.main(["smollm3"]) == SourceError.exit_code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "error: no sample model is called 'smollm3'\n"
