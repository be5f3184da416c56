#!/bin/bash
# The main job from end to end, on this machine: the local server plays model hub and S3 bucket, a
# real published model goes from one into the other, and what is then in the bucket is compared with
# what was published. Exit code 0 only if all of it is there and right. See `make demo`.
#
#   DEMO_SIZE=4GiB    also stage a generated checkpoint of that size
set -euo pipefail
cd "${BASH_SOURCE[0]%/*}/.."

# Nothing of this machine's own storage or hub takes part.
unset "${!AWS_@}" "${!HF_@}" NC_BUCKET
export NO_PROXY=127.0.0.1,localhost

dir=$(mktemp -d "${TMPDIR:-/tmp}/ncrun-demo.XXXXXX")
server=''
finish() {
    [[ -z $server ]] || { kill "$server" && wait "$server"; } 2>/dev/null || true
    rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

step() {
    printf '\n$ %s\n' "$*"
}

start_server() {
    build/ncdev root="$dir/s3" hub="$dir/hub" port=0 >"$dir/env" &
    server=$!
    for _ in {1..100}; do
        ! grep -q '^export NCDEV_ADMIN=' "$dir/env" || break
        sleep 0.1
    done
    # shellcheck disable=SC1091 # written by the server
    . "$dir/env"
}

stage() { # REPOSITORY
    step build/ncrun recipes/stage-weights.lua model="$1"
    build/ncrun recipes/stage-weights.lua model="$1"
}

# Reads every file of a repository back from the bucket and compares.
compare() { # REPOSITORY
    local file key count=0
    while read -r file; do
        key=models/${1##*/}/$file
        curl -sS -f --noproxy '*' --aws-sigv4 "aws:amz:$AWS_REGION:s3" \
            --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" \
            -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' \
            "$AWS_ENDPOINT_URL/$NC_BUCKET/$key" | cmp - "$dir/hub/$1/$file"
        count=$((count + 1))
    done < <(cd "$dir/hub/$1" && find . -type f -printf '%P\n' | sort)
    echo "$1: $count files in the bucket, each the same as on the hub"
}

models=(cmusphinx/en-us-acoustic)
spec/fixtures/make-acoustic "$dir/hub"
if [[ -n ${DEMO_SIZE:-} ]]; then
    models+=(demo/checkpoint)
    spec/fixtures/make-checkpoint "$dir/hub/demo/checkpoint" size="$DEMO_SIZE" shards=8
fi
start_server

begin=${EPOCHREALTIME/./}
for model in "${models[@]}"; do
    stage "$model"
done
end=${EPOCHREALTIME/./}

echo
for model in "${models[@]}"; do
    compare "$model"
done

step build/ncrun spec/demo-list.lua
build/ncrun spec/demo-list.lua | tee "$dir/list"
for model in "${models[@]}"; do
    grep -q "models/${model##*/}/\.complete\$" "$dir/list"
done
find "$dir/hub" -type f -printf '%s\n' | awk -v us=$((end - begin)) \
    '{ sum += $1 } END { printf "\n%.1f MB staged in %.2f s: %.1f MB/s\n", sum / 1e6, us / 1e6, sum / us }'
