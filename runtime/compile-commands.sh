#!/bin/sh
# compile-commands.sh "COMPILER FLAGS" FILE... - print a compilation database for editors.
set -eu
flags=$(printf %s "$1" | sed 's/\\/\\\\/g; s/"/\\"/g')
shift
sep='['
for f; do
    printf '%s\n{"directory": "%s", "file": "%s", "command": "%s -c %s"}' "$sep" "$PWD" "$f" "$flags" "$f"
    sep=,
done
printf '\n]\n'
