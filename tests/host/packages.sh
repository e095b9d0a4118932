# shellcheck shell=bash
# Sourced by prepare: what comes from package registries.

PACKAGES=(podman crun runc uidmap rootlesskit slirp4netns fuse-overlayfs iptables debootstrap debian-archive-keyring
    ca-certificates docker-registry git openssl python3 python3-venv gcc libc6-dev skopeo util-linux mount passwd)

missing_packages() {
    local wanted=("${PACKAGES[@]}") installed
    # Docker's own packages conflict with Debian's: where a daemon is there already, it is not replaced.
    command -v dockerd >/dev/null && command -v docker >/dev/null || wanted+=(docker.io)
    installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${wanted[@]}" 2>/dev/null |
        awk '$2 == "installed" { print $1 }') || true
    comm -23 <(printf '%s\n' "${wanted[@]}" | sort) <(printf '%s\n' "$installed" | sort)
}

apt() {
    DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@"
}

ensure_packages() {
    local missing
    mapfile -t missing < <(missing_packages)
    ((${#missing[@]})) || return 0
    say "installing packages: ${missing[*]}"
    # A run that was killed may have left dpkg halfway.
    dpkg --configure -a
    # One third-party source out of reach must not matter: the install says what cannot be had.
    apt update || true
    # Never at the price of something the machine has: a conflict is for its owner to settle.
    apt install --yes --no-install-recommends --no-remove "${missing[@]}"
}

cargo_deny_is_current() {
    [[ $(cargo-deny --version 2>/dev/null) == "cargo-deny $CARGO_DENY_VERSION" ]]
}

ensure_cargo_deny() {
    cargo_deny_is_current && return 0
    command -v cargo >/dev/null || die "no cargo on PATH: install Rust first"
    say "building cargo-deny $CARGO_DENY_VERSION (some minutes)"
    # Into the cache, so that a version somebody uses elsewhere stays as it is. In a folder of its own, so that no
    # cargo configuration of the checkout takes part.
    mkdir -p "$CACHE/tools"
    cd "$CACHE/tools" || die "cannot enter $CACHE/tools"
    env -u CARGO_TARGET_DIR -u RUSTFLAGS cargo install --locked --force --root "$CACHE/tools" \
        --version "$CARGO_DENY_VERSION" cargo-deny
    hash -r
    # An older one earlier on PATH would win over ours.
    [[ -x $CACHE/tools/bin/cargo-deny ]] || die "cargo install left no $CACHE/tools/bin/cargo-deny"
}
