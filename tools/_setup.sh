# Sourced by demo.sh and test.sh: makes .venv beside the checkout and installs effkit with the pinned dependencies.
#
#   set_up EXTRAS     EXTRAS: none, or names as pip takes them, such as test,dev
#
# Needs bash and a python3 >= 3.11 with venv and ensurepip; PYTHON=/path/to/python3 picks another than the first on
# PATH. A second call is fast: a stamp says what is installed. A set-up that was killed half-way starts afresh.
# Afterwards `$python` is the environment's interpreter.

set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.venv
python=$venv/bin/python
unfinished=$venv/.effkit-unfinished # holds the process number of the set-up that is at work

say() { printf '%s\n' "$*" >&2; }

fail() {
    say "error: $*"
    exit 1
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    local candidate
    if [[ -n ${PYTHON:-} ]]; then
        is_new_enough "$PYTHON" || fail "PYTHON=$PYTHON does not run or is older than Python 3.11"
        printf '%s' "$PYTHON"
        return
    fi
    for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
        if is_new_enough "$candidate"; then
            printf '%s' "$candidate"
            return
        fi
    done
    command -v python3 >/dev/null 2>&1 ||
        fail "python3 is not installed; on Debian or Ubuntu: apt install python3 python3-venv"
    fail "Python 3.11 or newer is needed; $(python3 --version 2>&1 || echo 'something that does not run') is what python3 is here"
}

make_venv() {
    local base
    base=$(find_python)
    "$base" -c 'import venv' >/dev/null 2>&1 ||
        fail "$base has no venv module; on Debian or Ubuntu: apt install python3-venv"
    "$base" -c 'import ensurepip' >/dev/null 2>&1 ||
        fail "$base has no ensurepip, so it cannot give an environment its pip; on Debian or Ubuntu: apt install python3-venv"
    if [[ -e $venv && ! -e $venv/pyvenv.cfg && ! -e $unfinished ]]; then
        fail "$venv is there, but is no environment; move it away"
    fi
    say "making $venv with $("$base" --version)"
    rm -rf -- "$venv"
    mkdir -p -- "$venv" && echo "$$" >"$unfinished"
    "$base" -m venv "$venv" || fail "the environment could not be made in $venv; is the disk full?"
}

wait_for_other_setup() {
    local owner waited=0
    while owner=$(cat -- "$unfinished" 2>/dev/null) && [[ -n $owner && $owner != "$$" ]] && kill -0 "$owner" 2>/dev/null; do
        ((waited > 0)) || say "another set-up (process $owner) is at work in $venv; waiting for it"
        ((waited < 1800)) || fail "process $owner still holds $unfinished; if that is no set-up, delete the file"
        sleep 2
        waited=$((waited + 2))
    done
}

# What an up-to-date environment's stamp holds: requirements, native sources, the interpreter and where it all lies.
fingerprint() {
    "$python" - "$root" <<'PY'
import hashlib, pathlib, sys
root = pathlib.Path(sys.argv[1])
state = hashlib.sha256(f"{sys.version}\n{sys.prefix}\n{root}".encode())
native = (path for path in sorted(root.glob("effkit/kernels/native/*")) if path.suffix in {".cpp", ".h"})
for path in (root / "constraints.txt", root / "pyproject.toml", root / "setup.py", *native):
    state.update(path.read_bytes())
print(state.hexdigest())
PY
}

install() {
    local pip=("$python" -m pip --disable-pip-version-check --retries 5 --timeout 60)
    [[ -t 2 ]] || pip+=(-qq) # errors only
    "${pip[@]}" install --constraint "$root/constraints.txt" setuptools >&2 &&
        "${pip[@]}" install --no-build-isolation --constraint "$root/constraints.txt" --editable "$1" >&2
}

set_up() {
    local extras=$1 target=$root stamp wanted
    [[ $extras == none ]] || target+="[$extras]"
    stamp=$venv/.effkit-installed-$extras
    wait_for_other_setup
    if [[ -e $unfinished ]]; then
        say "the last set-up was interrupted; starting $venv afresh"
        make_venv
    elif ! "$python" -c '' >/dev/null 2>&1; then
        make_venv
    elif ! is_new_enough "$python"; then
        fail "$venv holds $("$python" --version 2>&1), and Python 3.11 or newer is needed; move it away"
    elif ! "$python" -m pip --version >/dev/null 2>&1; then # made by a tool that leaves pip out
        "$python" -m ensurepip >/dev/null 2>&1 || fail "$venv has no pip and cannot be given it; move it away"
    fi
    wanted=$(fingerprint)
    [[ ! -f $stamp || $(<"$stamp") != "$wanted" ]] || return 0
    say "installing effkit and its pinned dependencies (several hundred MB or, where torch brings CUDA, some GB; minutes the first time)"
    echo "$$" >"$unfinished"
    if ! install "$target"; then
        rm -f -- "$unfinished" # pip has put back what it changed
        fail "pip could not install the dependencies (its message stands above); run the same command again to go on"
    fi
    echo "$wanted" >"$stamp"
    rm -f -- "$unfinished"
}
