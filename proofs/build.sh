#!/bin/sh
# Checks every file of _CoqProject, then the designs that are named: sh proofs/build.sh [DESIGN.v ...]
# What has not changed since is left. Needs Rocq, and says so where it is not there: docs/guides/proofs.md.
set -e
if ! command -v coqc >/dev/null; then
    echo "skipped: coqc is not here; docs/guides/proofs.md says how to install it"
    exit 0
fi
proofs=$(dirname "$0")
changed=
for file in $(grep '\.v$' "$proofs/_CoqProject"); do
    if [ -z "$changed" ] && [ "$proofs/${file}o" -nt "$proofs/$file" ]; then continue; fi
    changed=yes
    echo "$file"
    coqc -w none -R "$proofs" noisedesign "$proofs/$file"
done
for design in "$@"; do
    echo "$design"
    coqc -w none -R "$proofs" noisedesign "$design"
done
