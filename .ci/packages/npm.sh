#!/bin/sh
# Becomes the program for this machine: no process of Node.js stays in between.
case $(uname -s) in
    Darwin) system=macos ;;
    *) system=$(uname -s | tr '[:upper:]' '[:lower:]') ;;
esac
case $(uname -m) in
    arm64) processor=aarch64 ;;
    amd64) processor=x86_64 ;;
    *) processor=$(uname -m) ;;
esac
# npm makes a link to this file.
program=$(dirname -- "$(readlink -f -- "$0")")/codebridge-$processor-$system
if [ ! -x "$program" ]; then
    printf 'error: this npm package has no codebridge for %s on %s\n' "$system" "$processor" >&2
    printf 'hint: build it from the source with cargo\n' >&2
    exit 1
fi
exec "$program" "$@"
