#!/bin/sh
# Checks every file of _CoqProject, then the designs that are named: sh proofs/build.sh [--checker] [DESIGN.v ...]
# With --checker it checks what the checker stands on, and builds that: checker/build/noisedesign-check.
# What has not changed since is left. Needs Rocq, and says so where it is not there: docs/guides/proofs.md.
set -e
if ! command -v coqc >/dev/null; then
    echo "skipped: coqc is not here; docs/guides/proofs.md says how to install it"
    exit 0
fi
proofs=$(cd "$(dirname "$0")" && pwd)
files=$(grep '\.v$' "$proofs/_CoqProject")
if [ "$1" = --checker ]; then
    shift
    if ! command -v ocamlfind >/dev/null; then
        echo "not built: ocamlfind is not here; docs/guides/proofs.md says how to install it" >&2
        exit 1
    fi
    build="$proofs/checker/build"
    files=$(echo "$files" | sed '/^Checker.v$/q')
fi
changed=
for file in $files; do
    if [ -z "$changed" ] && [ "$proofs/${file}o" -nt "$proofs/$file" ]; then continue; fi
    changed=yes
    echo "$file"
    coqc -w none -R "$proofs" noisedesign "$proofs/$file"
done
if [ -n "$build" ]; then
    echo checker
    mkdir -p "$build"
    cp "$proofs/checker/Extract.v" "$build"
    cd "$build"
    coqc -w none -R "$proofs" noisedesign Extract.v
    (echo "module Whole = Z"; cat checked.ml ../main.ml) > noisedesign_check.ml
    ocamlfind ocamlopt -w -a -package zarith -linkpkg noisedesign_check.ml -o noisedesign-check
    cd "$OLDPWD"
fi
for design in "$@"; do
    echo "$design"
    coqc -w none -R "$proofs" noisedesign "$design"
done
