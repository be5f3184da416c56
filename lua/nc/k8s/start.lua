--- The script that a rendered pod starts with: it gets ncrun, checks it, and hands over.
--
-- It needs sh and, to fetch, curl, wget or python3. Its words are the recipe, the recipe's parameters
-- and maybe `--` and a command.

local start = {}

--- Where things are in a rendered pod.
start.FOLDER = "/etc/ncrun" -- the ConfigMap: this script, the recipe
start.HOME = "/ncrun"       -- an emptyDir that takes the binary

--- An init container of an image that holds nothing but ncrun runs this, where delivery=image.
start.INSTALL = [[
-- Copies the running ncrun to where the other container starts it.
local from <close> = assert(io.open("/proc/self/exe", "rb"))
local to <close> = assert(io.open("]] .. start.HOME .. [[/ncrun", "wb"))
assert(to:write(from:read "a"))
]]

local HEAD <const> = [[
#!/bin/sh
# Gets ncrun, checks it against the SHA-256 below, and hands over: sh start RECIPE [name=value ...]
base=%s
machine=$(uname -m)
case $machine in
%s
*) sum= ;;
esac
here=%s

fetch() { # FILE: by whatever this image has
    for tool in curl wget python3; do
        command -v "$tool" >/dev/null 2>&1 || continue
        case $tool in
        curl) curl -fsSL --connect-timeout 10 --max-time 300 -o "$1" "$base/ncrun-$machine" ;;
        wget) wget -q -T 30 -O "$1" "$base/ncrun-$machine" ;;
        python3) python3 -c 'import shutil, sys, urllib.request
try:
    with urllib.request.urlopen(sys.argv[1], timeout=30) as body, open(sys.argv[2], "wb") as file:
        shutil.copyfileobj(body, file)
except OSError as e:
    sys.exit("python3: %%s" %% e)' "$base/ncrun-$machine" "$1" ;;
        esac && return 0
    done
    return 1
}

digest() { # FILE
    sha256sum "$1" 2>/dev/null || openssl dgst -sha256 -r "$1" 2>/dev/null || python3 -c 'import hashlib, sys
print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest(), sys.argv[1])' "$1"
}

right() { # FILE: it is there and what this manifest expects
    [ -s "$1" ] && digest "$1" | { read -r is rest && [ "${is#\\}" = "$sum" ]; }
}

get() {
    [ -n "$sum" ] || { why="there is none for $machine"; return 1; }
    for wait in 1 3 0; do
        right "$here/ncrun" && chmod +x "$here/ncrun" && return 0
        why="$base/ncrun-$machine can't be fetched"
        if fetch "$here/ncrun.part"; then
            why="$base/ncrun-$machine is not the one of this manifest (its SHA-256 differs)"
            if right "$here/ncrun.part"; then
                mv "$here/ncrun.part" "$here/ncrun" && chmod +x "$here/ncrun" && return 0
                why="$here/ncrun can't be written"
            fi
        fi
        sleep "$wait"
    done
    return 1
}

]]

-- Where an init container brings it.
local BROUGHT <const> = [[
#!/bin/sh
# Hands over to the ncrun that the init container has put here: sh start RECIPE [name=value ...]
here=%s
why="the init container has put none into $here"

get() {
    [ -s "$here/ncrun" ] && chmod +x "$here/ncrun"
}

]]

local HAND_OVER <const> = [[
if get; then
    exec "$here/ncrun" "$@"
fi
]]

local STOP <const> = [[
echo "start: no ncrun: $why" >&2
exit 1
]]

local GO_ON <const> = [[
echo "start: no ncrun: $why; the command runs without it, and no log of it will be kept" >&2
while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done
shift
"$@" &
child=$!
trap 'kill -TERM "$child" 2>/dev/null' TERM INT # as PID 1 this shell must pass it on
wait "$child"
code=$?
while kill -0 "$child" 2>/dev/null; do # a trap ends a wait early
    wait "$child"
    code=$?
done
exit "$code"
]]

--- A word of sh.
function start.quote(s)
    if s:find "^[%w_./:@%%+=,-]+$" then return s end
    return "'" .. s:gsub("'", [['\'']]) .. "'"
end

--- The script's text.
---@param base string?                 the address that ncrun-<machine> is below; nil: an init container
---  brings it
---@param sums table<string, string>  machine as `uname -m` says it -> SHA-256
---@param goes_on boolean             whether the command after `--` runs where ncrun can't be had
---@return string
function start.script(base, sums, goes_on)
    local head
    if base then
        local cases = {}
        for machine, sum in pairs(sums) do cases[#cases + 1] = ("%s) sum=%s ;;"):format(machine, sum) end
        table.sort(cases)
        head = HEAD:format(start.quote(base), table.concat(cases, "\n"), start.HOME)
    else
        head = BROUGHT:format(start.HOME)
    end
    return head .. HAND_OVER .. (goes_on and GO_ON or STOP)
end

return start
