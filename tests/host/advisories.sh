# shellcheck shell=bash
# Sourced by tests/check: known vulnerabilities of our dependencies. Their database lives on the open internet, which a
# build machine may not have; only where it has, cargo-deny is built to look them up. All else that .cargo/deny.toml says
# is checked by tests/it/dependencies.rs.

CARGO_DENY_VERSION=0.20.2
ADVISORIES=https://github.com/RustSec/advisory-db

cargo_deny_is_current() {
    [[ $(cargo-deny --version 2>/dev/null) == "cargo-deny $CARGO_DENY_VERSION" ]]
}

# Into the cache, so that a version that is used elsewhere stays as it is, and from a folder outside of the checkout, so
# that its cargo configuration has no effect. Without optimisation: it runs for a second.
build_cargo_deny() {
    mkdir -p "$CACHE/tools"
    cd "$CACHE/tools" || return
    env -u CARGO_TARGET_DIR -u RUSTFLAGS nice -n 19 cargo install --locked --force --debug --root "$CACHE/tools" \
        --version "$CARGO_DENY_VERSION" cargo-deny
    # An older one earlier on PATH would win over ours.
    [[ -x $CACHE/tools/bin/cargo-deny ]]
}

advisories() {
    cargo_deny_is_current || build_cargo_deny || return
    hash -r
    cargo deny --locked --config "$ROOT/.cargo/deny.toml" check advisories
}

check_advisories() {
    if timeout 20 git ls-remote --quiet "$ADVISORIES" HEAD >"$STEP_LOGS/advisory-db.log" 2>&1; then
        step advisories advisories
    else
        printf '== advisories\n   NOT CHECKED: the advisory database cannot be reached from here\n'
    fi
}
