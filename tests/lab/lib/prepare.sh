# shellcheck shell=bash
# What `run` prepares before the lab and the tests: the controller's environment, wheels, the lab's model.
# Whatever is made appears whole: a marker is written last, an interrupted step is done again.

CACHE=${TWINSPARK_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/twinspark}
LOGS=$ROOT/.cache/log
WHEELS=$CACHE/wheels
MODEL=$CACHE/lab-model
BIN=$ROOT/.venv/bin
export UV_SYSTEM_CERTS=1 UV_PYTHON_DOWNLOADS=never PIP_DISABLE_PIP_VERSION_CHECK=1

fail() { printf 'run: %s\n' "$*" >&2; exit 2; }
need_root() { ((EUID == 0)) || fail "\`./run $1\` needs root: the lab is two systemd nodes of this machine (\`./run setup\` does not)"; }
export BEGAN=${BEGAN:-$EPOCHSECONDS}
clock() { local since=$((EPOCHSECONDS - BEGAN)); printf '[%2d:%02d]' $((since / 60)) $((since % 60)); }

# FUNCTION or PROGRAM, ARGUMENT...: in a process of its own, so that `set -e` counts in it even where the
# caller asks for its status (bash switches it off there)
apart() { if declare -F "$1" >/dev/null; then "$ROOT/run" _call "$@"; else "$@"; fi; }

# TITLE COMMAND...: one line when it begins, its time when it ends; its words go to a log and, when it
# fails, their end to the screen.
step() {
    local title=$1 began=$EPOCHSECONDS log; shift
    mkdir -p "$LOGS"
    log=$LOGS/$(tr -cs '[:alnum:]' '-' <<<"$title" | sed 's/-*$//').log
    printf '%s %s ... ' "$(clock)" "$title"
    if apart "$@" >"$log" 2>&1 </dev/null; then printf '%d s\n' $((EPOCHSECONDS - began)); return; fi
    printf 'failed after %d s\n' $((EPOCHSECONDS - began))
    tail -n 25 "$log" | sed 's/^/    /'
    fail "$title failed; all of its words: $log"
}

# ---- the controller
debian_packages() {                       # PACKAGE...
    local missing=() package
    for package; do
        dpkg-query --show --showformat '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
    done
    ((${#missing[@]})) || return 0
    export DEBIAN_FRONTEND=noninteractive
    apt-get update && apt-get install --yes --no-install-recommends "${missing[@]}"
}

lab_packages() {
    [[ -e /etc/debian_version ]] || fail "the lab needs Debian 12 or Ubuntu 24.04 (or later)"
    local packages=(systemd-container mmdebstrap nftables iproute2 openssh-client util-linux procps python3 ca-certificates)
    grep -q '^ID=debian' /etc/os-release || packages+=(debian-archive-keyring)     # the nodes are Debian
    [[ -n $(controller_python) ]] || packages+=(python3-venv)
    debian_packages "${packages[@]}"
}

controller_python() {                     # the first one that pyproject.toml allows and that can make environments
    local name; for name in python3.11 python3.12 python3.13 python3; do
        "$name" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null || continue
        command -v "$name"; return
    done; return 0
}

# [GROUP]: .venv from uv.lock, and a dependency group of pyproject.toml. Nothing that is there is removed.
controller() {
    local python uv; python=$(controller_python)
    [[ -n $python ]] || fail "needs Python 3.11, 3.12 or 3.13 with its venv module (Debian: apt-get install python3-venv)"
    "$BIN/python" -c '' 2>/dev/null || { rm -rf "$ROOT/.venv"; "$python" -m venv "$ROOT/.venv"; }
    uv=$(sed -n 's/.*"uv==\([0-9.]*\)".*/\1/p' "$ROOT/pyproject.toml")
    [[ $("$BIN/uv" --version 2>/dev/null) == "uv $uv"* ]] || "$BIN/python" -m pip install --quiet "uv==$uv"
    cd "$ROOT" && "$BIN/uv" sync --quiet --frozen --inexact ${1:+--group "$1"}
}

# ---- wheels of a lock, for the nodes' Python and C library, whatever this machine's are
wheels() {                                # LOCK
    local lock=$1 marker platforms=() minor tag
    marker=$WHEELS/.$(basename "$lock")-$(sha256sum <"$lock" | cut -c -16)
    [[ ! -e $marker ]] || return 0
    [[ $(uname -m) == x86_64 ]] || fail "the lab's engine lock is for x86_64, this machine is $(uname -m)"
    mkdir -p "$WHEELS"
    "$BIN/python" "$ROOT/tests/lab/vllm_alias.py" "$WHEELS"
    for ((minor = 36; minor >= 5; minor--)); do platforms+=(--platform "manylinux_2_${minor}_x86_64"); done
    for tag in manylinux2014 manylinux2010 manylinux1; do platforms+=(--platform "${tag}_x86_64"); done
    "$BIN/python" -m pip download -qq --require-hashes --no-deps --only-binary :all: --python-version 3.11 \
        --implementation cp "${platforms[@]}" --find-links "$WHEELS" --dest "$WHEELS" --requirement "$lock" || {
        echo "If torch+cpu is what was not found: name a place for PyTorch's CPU wheels, for example in PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS."
        return 1
    }
    touch "$marker"
}

lab_model() {
    local key; key=$(cat "$ROOT"/tests/lab/recall_*.py "$ROOT/engine_overlay/src/twinspark/guards/recall.py" | sha256sum)
    [[ $(cat "$MODEL.key" 2>/dev/null) != "$key" ]] || return 0
    rm -f "$MODEL.key"
    PYTHONPATH=$ROOT/tests "$BIN/python" -m lab.recall_model "$MODEL"
    echo "$key" >"$MODEL.key"
}

# ---- the overlay's tests: the engine's libraries on CPU torch, and the stock wheel's Python files beside them
overlay_environment() {
    local venv=$CACHE/overlay-test-venv lock=$ROOT/env/locks/overlay-test.lock key
    key=$(sha256sum <"$lock")
    [[ $(cat "$venv/.complete" 2>/dev/null) != "$key" ]] || return 0
    python3.11 -c 'import venv' 2>/dev/null || fail "the overlay's tests need python3.11, the version that their lock is for"
    wheels "$lock"
    rm -rf "$venv"
    python3.11 -m venv "$venv"
    "$BIN/uv" pip install --quiet --python "$venv/bin/python" --no-cache --offline --no-index --find-links "$WHEELS" \
        --require-hashes --no-deps --only-binary :all: --requirement "$lock"
    echo "$key" >"$venv/.complete"
}

stock_wheel() {                           # prints nothing; the folder is $CACHE/stock/vllm-0.27.1
    local folder=$CACHE/stock/vllm-0.27.1 lock=$ROOT/env/locks/stock-wheel.lock key
    key=$(sha256sum <"$lock")
    [[ $(cat "$CACHE/stock/.complete" 2>/dev/null) != "$key" ]] || return 0
    rm -rf "$CACHE/stock"; mkdir -p "$folder"
    "$BIN/python" -m pip download -qq --require-hashes --no-deps --only-binary :all: --python-version 3.12 \
        --implementation cp --platform manylinux_2_28_x86_64 --dest "$CACHE/stock" --requirement "$lock"
    # the sources and the metadata: 44 MB of the 313, machine code is not what is tested
    "$BIN/python" - "$folder" "$CACHE"/stock/*.whl <<'PY'
import sys, zipfile
kept = (".py", ".json", ".jinja", ".typed", "METADATA", "entry_points.txt")
with zipfile.ZipFile(sys.argv[2]) as wheel:
    wheel.extractall(sys.argv[1], [name for name in wheel.namelist() if name.endswith(kept)])
PY
    rm "$CACHE"/stock/*.whl
    echo "$key" >"$CACHE/stock/.complete"
}

forget_cache() {                          # only what this project puts there
    local part; for part in wheels lab-model lab-model.key overlay-test-venv stock lab; do rm -rf --one-file-system "${CACHE:?}/$part"; done
    rmdir --ignore-fail-on-non-empty "$CACHE" 2>/dev/null || true
    rm -rf "$ROOT/.cache" "$ROOT/.ansible" "$ROOT/dist"
}
