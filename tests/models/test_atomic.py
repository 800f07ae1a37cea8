"""A directory is replaced as a whole or not at all, whatever happens to the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from effkit.errors import CheckpointError, UsageError
from effkit.models import atomic
from effkit.models.atomic import MANIFEST, check_writable, recover, replaced_directory
from effkit.models.files import locked

# Kills itself at the n-th thing that Python reports to audit hooks (open, rename, mkdir, remove, ...).
WRITER = """
import os, signal, sys
from pathlib import Path
from effkit.models import atomic
if sys.argv[3] == "no-exchange":
    atomic._exchange = lambda left, right: False
left = int(sys.argv[2])
def hook(event, arguments):
    global left
    if event.split(".")[0] in ("open", "os", "shutil", "ctypes", "tempfile"):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
with atomic.replaced_directory(sys.argv[1]) as folder:
    sys.addaudithook(hook)
    for name in ("a", "b", atomic.MANIFEST):
        (folder / name).write_text("new")
"""


def write(target: Path, content: str) -> None:
    with replaced_directory(target) as folder:
        for name in ("a", "b", MANIFEST):
            (folder / name).write_text(content)


def content(target: Path) -> set[str]:
    return {(target / name).read_text() for name in ("a", "b", MANIFEST)}


@pytest.mark.parametrize("exchange", ["exchange", "no-exchange"])
@pytest.mark.parametrize("existing", [True, False])
def test_a_kill_at_any_point_leaves_the_old_or_the_new(
    exchange: str, existing: bool, tmp_path: Path, child_environment: dict[str, str]
) -> None:
    seen = set()
    for point in range(1, 200, 1 if existing else 3):
        target = tmp_path / str(point) / "out"
        if existing:
            write(target, "old")
        done = subprocess.run(
            [sys.executable, "-c", WRITER, str(target), str(point), exchange], env=child_environment, check=False
        )
        recover(target)
        if target.exists():
            found = content(target)
            assert found in ({"old"}, {"new"}), f"killed at point {point}"
            seen |= found
        else:
            assert not existing
            seen.add("none")
        write(target, "next")
        assert content(target) == {"next"}
        assert [entry.name for entry in target.parent.iterdir()] == ["out"]
        if done.returncode == 0:
            break
    else:
        pytest.fail("the writer never came to its end")
    assert seen == {"old" if existing else "none", "new"}


def test_an_error_inside_leaves_the_old_directory_and_no_litter(tmp_path: Path) -> None:
    write(tmp_path / "out", "old")

    class InterruptError(Exception):
        pass

    def half_written() -> None:
        with replaced_directory(tmp_path / "out") as folder:
            (folder / "a").write_text("half")
            raise InterruptError

    with pytest.raises(InterruptError):
        half_written()
    assert content(tmp_path / "out") == {"old"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


def test_stale_folders_of_killed_saves_are_swept(tmp_path: Path) -> None:
    stale = tmp_path / ".o[u]t.effkit-tmp-abc"
    stale.mkdir()
    (stale / "part").write_text("x")
    other = tmp_path / ".other.effkit-tmp-abc"
    other.mkdir()
    write(tmp_path / "o[u]t", "new")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [other.name, "o[u]t"]


def test_a_second_writer_of_the_same_directory_is_refused(tmp_path: Path) -> None:
    with replaced_directory(tmp_path / "out") as folder:
        (folder / MANIFEST).write_text("1")
        with pytest.raises(CheckpointError, match="another process is writing"), replaced_directory(tmp_path / "out"):
            pass
    assert (tmp_path / "out" / MANIFEST).read_text() == "1"


def test_foreign_directories_and_files_are_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    with pytest.raises(UsageError, match="not an effkit checkpoint"):
        write(tmp_path / "thesis", "new")
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="is a file"):
        check_writable(tmp_path / "file")
    with pytest.raises((UsageError, CheckpointError)):
        check_writable("/")
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years of work"


def test_an_empty_directory_and_a_link_to_one_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and content(tmp_path / "real") == {"new"}


def test_an_unwritable_place_is_reported_before_the_work(tmp_path: Path) -> None:
    for place in (Path("/sys/effkit/out"), Path("/proc/effkit/out")):
        with pytest.raises(CheckpointError, match="nothing can be written to"):
            check_writable(place)
    (tmp_path / "file").write_text("x")
    with pytest.raises((UsageError, CheckpointError)):
        check_writable(tmp_path / "file" / "out")


def test_a_disk_too_small_is_reported_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"needs 1\d{18} bytes and the disk has \d+ bytes free"):
        check_writable(tmp_path / "out", needed_bytes=10**18)


def test_checking_creates_nothing(tmp_path: Path) -> None:
    assert check_writable(tmp_path / "new" / "deep" / "out") == tmp_path / "new" / "deep" / "out"
    assert list(tmp_path.iterdir()) == []


def test_parents_are_made(tmp_path: Path) -> None:
    write(tmp_path / "new" / "deep" / "out", "new")
    assert content(tmp_path / "new" / "deep" / "out") == {"new"}


def test_a_lock_that_was_removed_meanwhile_is_taken_anew(tmp_path: Path) -> None:
    with locked(tmp_path / "lock", wait=False):
        pass
    assert not (tmp_path / "lock").exists()
    with locked(tmp_path / "lock", wait=True):
        assert (tmp_path / "lock").exists()


def test_file_systems_without_exchange_fall_back_to_two_renames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic, "_exchange", lambda left, right: False)
    write(tmp_path / "out", "old")
    write(tmp_path / "out", "new")
    assert content(tmp_path / "out") == {"new"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]
