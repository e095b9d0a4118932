# shellcheck shell=bash
# Sourced by prepare: the ordinary user whose runtimes are tested beside root's.

SUBID_COUNT=65536
# Free of distribution defaults (100000 and up) and of the ranges container engines like to take for root.
SUBID_FIRST=700000000

# The mapped ids of a sandbox are strangers here: every folder above an image must let them pass.
check_parents_searchable() {
    local folder=$CACHE
    # Those that are not there yet will be made searchable.
    while [[ ! -e $(dirname -- "$folder") ]]; do folder=$(dirname -- "$folder"); done
    while [[ $folder != / ]]; do
        folder=$(dirname -- "$folder")
        [[ $(stat -c %A -- "$folder") == *[xt] ]] ||
            die "$folder is not searchable by other users: set CODEBRIDGE_TEST_CACHE to a place that is"
    done
}

ensure_account() {
    local entry uid home
    if entry=$(getent passwd "$TEST_USER"); then
        IFS=: read -r _ _ uid _ _ home _ <<<"$entry"
        [[ $uid == "$TEST_UID" ]] || die "user $TEST_USER exists with uid $uid instead of $TEST_UID"
        [[ $home == "$TEST_HOME" ]] || usermod --home "$TEST_HOME" "$TEST_USER"
        return 0
    fi
    say "adding user $TEST_USER"
    # Left alone, useradd would pick id ranges by itself.
    useradd --uid "$TEST_UID" --user-group --home-dir "$TEST_HOME" --no-create-home --shell /usr/sbin/nologin \
        -K SUB_UID_COUNT=0 -K SUB_GID_COUNT=0 "$TEST_USER"
}

# The first range from SUBID_FIRST on that overlaps no line of either file: one start for both keeps maps readable.
free_subid_start() {
    cat /etc/subuid /etc/subgid | sort -t : -k 2,2n | awk -F : -v start="$SUBID_FIRST" -v count="$SUBID_COUNT" '
        $2 < start + count && $2 + $3 > start { start = $2 + $3 }
        END { print start }'
}

ensure_subids() {
    local start
    touch /etc/subuid /etc/subgid
    if grep -q "^$TEST_USER:" /etc/subuid && grep -q "^$TEST_USER:" /etc/subgid; then
        return 0
    fi
    say "giving $TEST_USER subordinate ids"
    start=$(free_subid_start)
    grep -q "^$TEST_USER:" /etc/subuid ||
        usermod --add-subuids "$start-$((start + SUBID_COUNT - 1))" "$TEST_USER"
    grep -q "^$TEST_USER:" /etc/subgid ||
        usermod --add-subgids "$start-$((start + SUBID_COUNT - 1))" "$TEST_USER"
}

# Stage and rename, so that a file is either the old one or the whole new one.
write_file() {
    local target=$1 text
    text=$(cat)
    [[ -f $target && $(<"$target") == "$text" ]] && return 0
    printf '%s\n' "$text" >"$target.new"
    chmod 644 "$target.new"
    mv -- "$target.new" "$target"
}

write_containers_conf() {
    local folder=$TEST_HOME/.config/containers
    as_test_user mkdir -p "$folder"
    # Podman's own choice for an ordinary user may be vfs, which copies the whole image for each container.
    write_file "$folder/storage.conf" <<'STORAGE'
[storage]
driver = "overlay"
STORAGE
    # No systemd session here: neither its cgroup manager nor its journal can be counted on.
    write_file "$folder/containers.conf" <<'ENGINE'
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
ENGINE
}

ensure_user() {
    ensure_account
    ensure_subids
    make_runtime_dirs
    install -d -m 755 -o "$TEST_UID" -g "$TEST_UID" "$TEST_HOME"
    write_containers_conf
}
