# shellcheck shell=bash
# The stages of `./run test`, in order. A stage's failure does not hide what the later ones say.

STAGES=(lint unit overlay lab)
PASSED=0 FAILED=0
export PYTHONDONTWRITEBYTECODE=1

# NAME COMMAND...: a stage or a part of one; its words are on the screen, its result and time after them
check() {
    local name=$1 began=$EPOCHSECONDS; shift
    printf '\n%s ==> %s\n' "$(clock)" "$name"
    if apart "$@" </dev/null; then PASSED=$((PASSED + 1)); printf '%s <== %s: passed, %d s\n' "$(clock)" "$name" $((EPOCHSECONDS - began))
    else FAILED=$((FAILED + 1)); printf '%s <== %s: FAILED, %d s\n' "$(clock)" "$name" $((EPOCHSECONDS - began)); return 1; fi
}

run_tests() {
    local stage
    cd "$ROOT" || return
    (($#)) || set -- "${STAGES[@]}"
    for stage; do [[ " ${STAGES[*]} " == *" $stage "* ]] || fail "no stage '$stage': there are ${STAGES[*]}"; done
    step "Debian packages" test_packages
    # only where a lab is made: the other stages leave one that is in use alone
    [[ " $* " != *" lab "* ]] || step "nothing left of an earlier run" "$LAB" down
    step "controller environment" controller dev
    for stage; do "stage_$stage" || true; done
    printf '\n%d passed, %d failed\n' "$PASSED" "$FAILED"
    ((FAILED == 0 && PASSED > 0))
}

test_packages() { lab_packages; debian_packages shellcheck; }

stage_lint() {
    check "lint: ansible" "$BIN/ansible-lint" --offline --profile production
    check "lint: yaml" "$BIN/yamllint" --strict .
    check "lint: python" "$BIN/ruff" check
    check "lint: python format" "$BIN/ruff" format --check
    check "lint: python types" "$BIN/mypy"
    check "lint: python types of the lab" env MYPYPATH=tests:engine_overlay/src "$BIN/mypy" --explicit-package-bases \
        tests/lab/recall_codes.py tests/lab/recall_weights.py tests/lab/recall_model.py \
        tests/lab/vllm_alias.py tests/lab/nodes.py tests/lab/play.py tests/lab/engine.py \
        tests/lab/footprint.py tests/lab/footprint_probe.py tests/lab/measure.py
    check "lint: shell" shellcheck --external-sources --check-sourced run .ci/run env/locks/renew tests/lab/lab
}

# Everything that needs neither a lab nor the engine: roles' rules, renders, schema, guards, recall model.
stage_unit() {
    check "unit" "$BIN/pytest" -q -m "not gpu and not lab and not slow and not vllm"
}

# The patches and kernels on the pristine wheel, Triton in its interpreter.
stage_overlay() {
    step "overlay test environment" overlay_environment
    step "the pristine stock wheel" stock_wheel
    local stock=$CACHE/stock/vllm-0.27.1 files
    # that environment lacks what other tests import, so only files with such tests are collected
    mapfile -t files < <(grep -rlE --include='test_*.py' 'mark\.vllm' tests | sort)
    check "overlay on the pristine wheel" env CUDA_VISIBLE_DEVICES="" TRITON_INTERPRET=1 TWINSPARK_STOCK_WHEEL="$stock" \
        PYTHONPATH="$stock:$ROOT/engine_overlay/src" "$CACHE/overlay-test-venv/bin/python" -m pytest -q -m "vllm and not gpu and not slow" "${files[@]}"
}

# One boot and one converge serve all of it.
stage_lab() {
    local before; before=$(mktemp)
    "$LAB" trace >"$before"
    if check "lab: bare nodes" bare_nodes && check "lab: up" alone up; then
        check "lab: up again changes nothing, beside it a third is refused" up_again
        check "lab: guard" guard_again
        check "lab: tests" "$BIN/pytest" -q -m "lab and not undo" --durations=12 --durations-min=10
        check "lab: another release and back" "$BIN/pytest" -q -m undo --durations=6 --durations-min=10
        check "lab: uninstall leaves nothing" uninstalled
    fi
    check "lab: down" "$LAB" down
    check "lab: nothing left" same_trace "$before"
    rm -f "$before"
}
# a file, not its text: as an argument, the text would be one more process that names a lab
same_trace() { diff --label before --label after --unified=0 "$1" <("$LAB" trace); }
guard_again() { play "$ROOT/playbooks/guard.yml"; report; }
bare_nodes() { nodes; "$BIN/python" "$ROOT/tests/lab/footprint.py" take "$LOGS/bare"; }
uninstalled() {
    play "$ROOT/playbooks/uninstall.yml" -e uninstall_checkpoints=true
    "$BIN/python" "$ROOT/tests/lab/footprint.py" compare "$LOGS/bare"
}
up_again() {
    alone up & local second=$!
    sleep 5
    local said; said=$("$ROOT/run" up 2>&1) && return 1
    [[ $said == *"another ./run is at work"* ]] || { echo "the third said: $said"; return 1; }
    wait "$second"
    local recap; recap=$(sed -n '/^PLAY RECAP/,$p' "$LOGS/site.log")
    [[ $(grep -c ' changed=0 .* failed=0 ' <<<"$recap") == 2 ]]
}
