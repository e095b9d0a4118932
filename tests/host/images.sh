# shellcheck shell=bash
# Sourced by prepare: the archive of rootfs.sh as an image in each engine's store.

# Nobody writes to this store: podman services of tests take their images from it. From root's own they would share locks
# with every other podman, and podman 4.3 takes these in two orders: commands and services then wait for one another until
# one of them is killed.
PODMAN_IMAGES=$CACHE/podman-images

# ensure_image STORE MARKER EXISTS IMPORT: the last two are functions. An image that is there without our marker is
# somebody's own and stays; one of an older build of ours is imported again.
ensure_image() {
    local store=$1 marker=$2 exists=$3 import=$4 build
    build=$(tail -n 1 "$CACHE/done/$(basename -- "$ROOTFS_314")")
    if "$exists" && [[ ! -f $marker || $(<"$marker") == "$build" ]]; then
        return 0
    fi
    say "importing $IMAGE into $store"
    "$import"
    printf '%s\n' "$build" >"$marker.new"
    mv -- "$marker.new" "$marker"
}

root_podman_has_image() { podman image exists "$IMAGE"; }
root_podman_import() { podman import --change 'CMD ["python3"]' "$IMAGE_TAR" "$IMAGE"; }

store_podman() {
    podman --root "$PODMAN_IMAGES" --runroot "$PODMAN_IMAGES.run" --tmpdir "$PODMAN_IMAGES.run/tmp" \
        --storage-driver overlay "$@"
}
store_has_image() { [[ -f $CACHE/done/image-store && -d $PODMAN_IMAGES/overlay-images ]]; }
store_import() {
    rm -rf -- "$PODMAN_IMAGES" "$PODMAN_IMAGES.run"
    store_podman import --change 'CMD ["python3"]' "$IMAGE_TAR" "$IMAGE"
    # Podman mounts a storage onto itself.
    umount --lazy "$PODMAN_IMAGES/overlay" || true
    rm -rf -- "$PODMAN_IMAGES.run"
}

user_podman_has_image() { as_test_user podman image exists "$IMAGE"; }
user_podman_import() { as_test_user podman import --change 'CMD ["python3"]' "$IMAGE_TAR" "$IMAGE"; }

docker_here() { env -u DOCKER_CONTEXT -u DOCKER_TLS_VERIFY docker --host "$DOCKER_URL" "$@"; }
docker_import() {
    start_dockerd
    docker_here import --change 'CMD ["python3"]' "$IMAGE_TAR" "$IMAGE"
}

# Asking the daemon means starting it. Only we write to its store, so its marker is enough.
docker_has_image() { [[ -f $CACHE/done/image-docker && -d $DOCKERD_DATA/image ]]; }

check_user_storage() {
    local driver
    driver=$(as_test_user podman info --format '{{.Store.GraphDriverName}}')
    [[ $driver == overlay ]] || die "podman of $TEST_USER stores images with '$driver' instead of overlay"
}

ensure_images() {
    ensure_image "podman of root" "$CACHE/done/image-podman" root_podman_has_image root_podman_import
    ensure_image "a store of its own" "$CACHE/done/image-store" store_has_image store_import
    ensure_image "podman of $TEST_USER" "$CACHE/done/image-podman-user" user_podman_has_image user_podman_import
    check_user_storage
    ensure_image docker "$CACHE/done/image-docker" docker_has_image docker_import
}
