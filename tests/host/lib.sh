# shellcheck shell=bash
# Shared by tests/check and the scripts of this folder: where things are, and how to act as the test user.
# Everything big is under CACHE and survives; everything under RUN may vanish with a reboot.
# shellcheck disable=SC2034 # most names are for those who source this

CACHE=$(readlink -m -- "${CODEBRIDGE_TEST_CACHE:-/var/cache/codebridge-tests}")
RUN=/run/codebridge-tests
UV_VERSION=0.13.9
COLLECTOR_VERSION=0.0.1a15
LOG=$CACHE/log

# An id range of its own, far from what distributions and adduser hand out.
TEST_USER=codebridge-test
TEST_UID=41853
TEST_HOME=$CACHE/home
TEST_RUNTIME_DIR=$RUN/user

IMAGE=docker.io/library/python:3.14-slim
ROOTFS_314=$CACHE/rootfs/python-3.14
ROOTFS_39=$CACHE/rootfs/python-3.9
IMAGE_TAR=$CACHE/images/python-3.14.tar

DOCKERD_DATA=$CACHE/dockerd
DOCKER_SOCKET=$RUN/docker.sock
DOCKER_URL=unix://$DOCKER_SOCKET
HOST_LOCK=$RUN/host.lock
BY_HAND=$RUN/dockerd.by-hand

# A bare root shell may lack the sbin folders (runc, useradd) and rustup's (cargo); our own tools come last.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin:${HOME:-/root}/.cargo/bin:$CACHE/tools/bin
export PATH

# The test user's podman has to run the distribution's tools, whatever the caller's PATH holds.
TEST_USER_PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin

die() {
    printf '%s: %s\n' "$(basename -- "$0")" "$*" >&2
    exit 1
}

require_root() {
    [[ $EUID -eq 0 ]] && return
    printf '%s: must be run as root: it installs packages, adds a user and mounts\n' "$(basename -- "$0")" >&2
    exit 2
}

# What podman leaves running would keep our locks and the caller's pipe open for ever if it inherited them.
# Call it in a subshell: a redirection of one command leaves them open in the shell that waits for the command.
close_inherited_files() {
    exec 3>&- 4>&- 6>&- 7>&- 8>&- 9>&-
}

# No login, no environment of ours: what the user's podman finds is what its files and these variables say.
as_test_user() (
    cd "$TEST_HOME" || exit
    close_inherited_files
    exec setpriv --reuid "$TEST_UID" --regid "$TEST_UID" --init-groups -- \
        env -i HOME="$TEST_HOME" USER="$TEST_USER" PATH="$TEST_USER_PATH" LANG=C.UTF-8 \
        XDG_RUNTIME_DIR="$TEST_RUNTIME_DIR" "$@"
)

# crun, and podman by it, refuse a host that mounts cgroup v2 beside the v1 controllers. hybrid_cgroups [ROOT]
hybrid_cgroups() {
    local root=${1:-}
    [[ $(stat -f -c %T "$root/sys/fs/cgroup" 2>/dev/null) == tmpfs &&
        $(stat -f -c %T "$root/sys/fs/cgroup/unified" 2>/dev/null) == cgroup2fs ]]
}

# Puts a folder with the v1 controllers alone in place of the host's. An unmount of the v2 hierarchy would leave its empty
# folder, in which crun then makes folders that are no groups.
leave_hybrid_cgroups() {
    local new name
    # A folder of its own for each run: removing a shared one would remove what others have mounted there meanwhile.
    new=$(mktemp -d /run/codebridge-tests-cgroup.XXXXXX)
    mount -t tmpfs -o mode=755 tmpfs "$new"
    for name in /sys/fs/cgroup/*; do
        if [[ -L $name ]]; then
            cp -P -- "$name" "$new/"
        elif [[ $(stat -f -c %T -- "$name") == cgroupfs ]]; then
            mkdir "$new/${name##*/}"
            mount --bind "$name" "$new/${name##*/}"
        fi
    done
    umount --recursive --lazy /sys/fs/cgroup
    mount --move "$new" /sys/fs/cgroup
    rmdir "$new"
}

# enter_own_mounts SCRIPT ARGUMENT...: runs the script again in a mount namespace in which the host is not hybrid.
# The process stays the same one, so its id tells the second time from the first.
enter_own_mounts() {
    if [[ ${CODEBRIDGE_TEST_OWN_MOUNTS:-} != "$$" ]]; then
        export CODEBRIDGE_TEST_OWN_MOUNTS=$$
        exec unshare --mount --propagation private -- "$@"
    fi
    if hybrid_cgroups; then
        leave_hybrid_cgroups
        export CODEBRIDGE_TEST_HYBRID=1
    fi
}

# On a host where /run is no tmpfs these are still there after a reboot, elsewhere they are not.
make_runtime_dirs() {
    install -d -m 755 "$RUN"
    install -d -m 700 -o "$TEST_UID" -g "$TEST_UID" "$TEST_RUNTIME_DIR"
}

# Rootless podman keeps a process that pins its user and mount namespace; later calls join that mount namespace and
# see the mounts of the moment when it was started.
pause_pid() {
    local file=$TEST_RUNTIME_DIR/libpod/tmp/pause.pid pid
    [[ -r $file ]] || return 1
    pid=$(<"$file")
    [[ $pid =~ ^[0-9]+$ ]] && grep -qs "^Uid:[[:space:]]${TEST_UID}[[:space:]]" "/proc/$pid/status" || return 1
    printf '%s\n' "$pid"
}

stop_pause_process() {
    local pid
    pid=$(pause_pid) || return 0
    kill -KILL "$pid" || return 0
    rm -f -- "$TEST_RUNTIME_DIR/libpod/tmp/pause.pid"
}

# One from outside our mounts would lead podman back to the hybrid cgroups that it refuses.
stop_foreign_pause_process() {
    local pid
    pid=$(pause_pid) || return 0
    if hybrid_cgroups "/proc/$pid/root"; then stop_pause_process; fi
}

# Several runs may share the daemon and the user: each holds this lock, and the last one to leave cleans up, unless a
# person works here too (see dockerd).
enter_host() {
    make_runtime_dirs
    exec 9>>"$HOST_LOCK"
    if flock --nonblock 9; then stop_foreign_pause_process; fi
    flock --shared 9
}

leave_host() {
    exec 9>&-
    exec 7>>"$HOST_LOCK"
    if flock --nonblock 7 && [[ ! -e $BY_HAND ]]; then
        stop_pause_process
        "$HOST_SCRIPTS/dockerd" stop --last
    fi
    exec 7>&-
}

start_dockerd() {
    "$HOST_SCRIPTS/dockerd" start --held
}

# Debian has no uv; it is one static program, in $CACHE/tools/uv/bin.
ensure_uv() {
    local stage
    [[ $("$CACHE/tools/uv/bin/uv" --version 2>/dev/null) == "uv $UV_VERSION "* && -x $CACHE/tools/uv/bin/uvx ]] && return 0
    say "installing uv $UV_VERSION"
    stage=$(mktemp -d "$CACHE/stage/XXXXXX")
    chmod 755 "$stage"
    /usr/bin/python3 -m venv "$stage/python"
    "$stage/python/bin/python" -m pip --quiet install --no-input --disable-pip-version-check --no-deps \
        --target "$stage/uv" "uv==$UV_VERSION"
    install -d -m 755 "$CACHE/tools"
    rm -rf -- "$CACHE/tools/uv"
    mv -- "$stage/uv" "$CACHE/tools/uv"
    rm -rf -- "$stage"
}

# A collector for OpenTelemetry: one program, $CACHE/tools/rotel/rotel/rotel-agent.
ensure_collector() {
    local stage
    [[ -x $CACHE/tools/rotel/rotel/rotel-agent && -d $CACHE/tools/rotel/rotel-$COLLECTOR_VERSION.dist-info ]] && return 0
    say "installing rotel $COLLECTOR_VERSION"
    stage=$(mktemp -d "$CACHE/stage/XXXXXX")
    chmod 755 "$stage"
    /usr/bin/python3 -m venv "$stage/python"
    "$stage/python/bin/python" -m pip --quiet install --no-input --disable-pip-version-check --no-deps \
        --target "$stage/rotel" "rotel==$COLLECTOR_VERSION"
    install -d -m 755 "$CACHE/tools"
    rm -rf -- "$CACHE/tools/rotel"
    mv -- "$stage/rotel" "$CACHE/tools/rotel"
    rm -rf -- "$stage"
}
