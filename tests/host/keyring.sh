# shellcheck shell=bash
# Sourced by prepare: the keyring of GNOME. Its package wants a desktop of a hundred packages to ask for passwords; the tests
# need the daemon alone, whose libraries are among PACKAGES.

KEYRING=$CACHE/keyring

ensure_keyring() {
    local stage
    [[ -d $KEYRING ]] && return 0
    say "getting the keyring of GNOME"
    stage=$(mktemp -d "$CACHE/stage/XXXXXX")
    (
        cd "$stage" || die "cannot enter $stage"
        apt download gnome-keyring
        dpkg-deb --extract gnome-keyring_*.deb kept
    )
    chmod 755 "$stage/kept"
    mv -- "$stage/kept" "$KEYRING"
    rm -rf -- "$stage"
}
