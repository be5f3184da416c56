#!/bin/sh
# embed.sh FILE... - print assembly that holds each file's bytes and the table embed.h declares.
# lua/nc/task.lua is named "nc.task", manifests/models.lua "manifests.models", recipes/x.lua keeps its
# path; what a build has made goes by the file's name.
set -eu
n=0
printf '\t.section .rodata\n'
for f; do
    printf '.Lfile%d:\n\t.incbin "%s"\n.Lfile%d_end:\n\t.byte 0\n' "$n" "$f" "$n"
    case $f in
    lua/*) name=$(printf %s "${f#lua/}" | sed 's/\.lua$//; s|/|.|g') ;;
    manifests/*) name=$(printf %s "$f" | sed 's/\.lua$//; s|/|.|g') ;;
    build/*) name=${f##*/} ;;
    *) name=$f ;;
    esac
    printf '.Lname%d:\n\t.asciz "%s"\n.Lpath%d:\n\t.asciz "%s"\n' "$n" "$name" "$n" "$f"
    n=$((n + 1))
done
printf '\t.section .data.rel.ro, "aw"\n\t.balign 8\n\t.globl embed_files\nembed_files:\n'
i=0
while [ "$i" -lt "$n" ]; do
    printf '\t.quad .Lname%d, .Lpath%d, .Lfile%d, .Lfile%d_end\n' "$i" "$i" "$i" "$i"
    i=$((i + 1))
done
printf '\t.globl embed_count\n\t.section .rodata\n\t.balign 8\nembed_count:\n\t.quad %d\n' "$n"
printf '\t.section .note.GNU-stack, "", @progbits\n'
