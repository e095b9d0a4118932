# shellcheck shell=bash
# Sourced by prepare: root filesystems with CPython, built from the Debian mirror this machine uses.
# A change of this file builds them again: its checksum is the recipe's name.

RECIPE=$(sha256sum "${BASH_SOURCE[0]}" | cut -d ' ' -f 1)

first_mirror() {
    local uri
    # shellcheck disable=SC2016 # apt's own placeholders
    uri=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' |
        awk '!uri && $1 == "Debian" { uri = $2 } END { print uri }')
    # Cloud images point apt at a file that lists mirrors.
    if [[ $uri == mirror+file:* ]]; then
        uri=${uri#mirror+file:}
        uri=$(awk '!uri && $1 ~ /^https?:/ { uri = $1 } END { print uri }' "/${uri##+(/)}")
    fi
    printf '%s\n' "$uri"
}

debian_mirror() {
    local uri
    uri=$(first_mirror)
    # Without an index apt does not know its own targets.
    if [[ -z $uri ]]; then
        apt update >&2 || true
        uri=$(first_mirror)
    fi
    [[ -n $uri ]] || die "apt knows no Debian mirror: see apt-get indextargets"
    printf '%s\n' "$uri"
}

# apt may reach the mirror through a proxy that only its own configuration names.
use_apt_proxy() {
    local proxy=
    eval "$(apt-config shell proxy Acquire::http::Proxy)"
    [[ -z $proxy || $proxy == DIRECT ]] || export http_proxy=$proxy
}

bootstrap() {
    local suite=$1 tree=$2 mirror
    mirror=$(debian_mirror)
    use_apt_proxy
    # In mounts of its own: what it mounts into the tree is gone with it, however it ends, so that a later rm of the
    # tree can never reach the host's /proc or /sys. All suites of today install alike, hence one script.
    unshare --mount --propagation private debootstrap --variant=minbase --include=python3 \
        "$suite" "$tree" "$mirror" /usr/share/debootstrap/scripts/sid
}

python_version() {
    chroot "$1" python3 -I -c 'import platform, sys
print(platform.python_implementation(), "%d.%d" % sys.version_info[:2])'
}

# The suite moves on; the tests want this very version as `python3`.
ensure_python() {
    local tree=$1 version=$2
    if [[ $(python_version "$tree") != "CPython $version" ]]; then
        chroot "$tree" apt-get -q update
        DEBIAN_FRONTEND=noninteractive chroot "$tree" apt-get -q install --yes --no-install-recommends "python$version"
        ln -s "/usr/bin/python$version" "$tree/usr/local/bin/python3"
    fi
    [[ $(python_version "$tree") == "CPython $version" ]] || die "no CPython $version as python3 in $tree"
}

# What an image does not need, and what debootstrap copied from this very host.
slim() {
    local tree=$1
    rm -rf "$tree"/var/cache/apt/*.bin "$tree"/var/cache/apt/archives/*.deb "$tree"/var/lib/apt/lists/* \
        "$tree"/var/log/* "$tree"/usr/share/{doc,info,lintian,locale,man}/* "${tree:?}"/dev/*
    : >"$tree/etc/resolv.conf"
    : >"$tree/etc/machine-id"
    printf 'python\n' >"$tree/etc/hostname"
}

# Sandboxes run as ids that own nothing here. The set-id bits are for the images alone: old programs with them must
# not be in reach of this machine's users.
open_for_reading() {
    find "$1" -perm /6000 -type f -exec chmod ug-s {} +
    chmod -R a+rX "$1"
}

# ensure_rootfs FOLDER SUITE PYTHON [TAR]: the folder, and the same as an archive before it was opened for reading.
ensure_rootfs() {
    local folder=$1 suite=$2 version=$3 tar=${4:-} stage marker
    marker=$CACHE/done/$(basename -- "$folder")
    [[ -d $folder && (-z $tar || -f $tar) && -f $marker && $(head -n 1 "$marker") == "$RECIPE" ]] && return 0
    say "building $(basename -- "$folder") from Debian $suite (a minute)"
    stage=$(mktemp -d "$CACHE/stage/XXXXXX")
    chmod 755 "$stage"
    bootstrap "$suite" "$stage/tree"
    ensure_python "$stage/tree" "$version"
    slim "$stage/tree"
    rm -f -- "$marker"
    if [[ -n $tar ]]; then
        tar -C "$stage/tree" --numeric-owner --sort=name -cf "$stage/image.tar" .
        mv -- "$stage/image.tar" "$tar"
    fi
    open_for_reading "$stage/tree"
    if [[ -d $folder ]]; then mv -- "$folder" "$stage/old"; fi
    mv -- "$stage/tree" "$folder"
    # The second line tells one build from another, for images made of it.
    printf '%s\n%s\n' "$RECIPE" "$(date +%s%N)" >"$stage/done"
    mv -- "$stage/done" "$marker"
    rm -rf -- "$stage"
}
