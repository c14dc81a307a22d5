# shellcheck shell=bash
# Sourced: checks of commands, counted in `passed` and `failed`.
passed=0
failed=0

# check NAME EXPECTED_EXIT PATTERN COMMAND...: the pattern must occur in what it prints.
check() {
    local name=$1 expected=$2 pattern=$3 output code
    shift 3
    output=$(timeout 120 "$@" 2>&1 </dev/null)
    code=$?
    # Expected may be a pattern such as [01].
    # shellcheck disable=SC2053
    if [[ $code == $expected ]] && grep -qE -- "$pattern" <<<"$output"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $name: exit $code (expected $expected), wanted /$pattern/ in:"
        sed 's/^/    /' <<<"$output" | tail -n 20
    fi
}
