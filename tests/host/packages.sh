# shellcheck shell=bash
# Sourced by prepare: what comes from package registries.

PACKAGES=(podman crun runc uidmap rootlesskit slirp4netns fuse-overlayfs iptables debootstrap debian-archive-keyring
    ca-certificates docker-registry git openssl openssh-client openssh-server python3 python3-venv gcc libc6-dev skopeo
    util-linux mount passwd strace libfaketime dbus-daemon libgck-1-0 libgcr-base-3-1 libsecret-tools)

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

# The tests start an sshd of their own; a machine that had none gets no service by it, now or at a later boot: the package's
# unit and its init script look for this file. Where there is an sshd already, it is left as it is.
keep_sshd_off() {
    install -d -m 755 /etc/ssh
    touch /etc/ssh/sshd_not_to_be_run
}

ensure_packages() {
    local missing
    mapfile -t missing < <(missing_packages)
    ((${#missing[@]})) || return 0
    say "installing packages: ${missing[*]}"
    # A run that was killed may have left dpkg halfway.
    dpkg --configure -a
    # An unreachable third-party source does not matter: the install says what is missing.
    apt update || true
    if [[ " ${missing[*]} " == *" openssh-server "* ]]; then keep_sshd_off; fi
    # Never at the price of something the machine has: a conflict is for its owner to settle.
    apt install --yes --no-install-recommends --no-remove "${missing[@]}"
}
