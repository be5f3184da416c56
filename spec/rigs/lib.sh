# shellcheck shell=bash
# What the rigs share. A rig is a few real daemons whose whole state lives in one folder:
#
#   DIR/.rig     made first; it says that everything in DIR is the rig's and may be cleared, and names
#                the rig: spec/rigs/NAME-down stops it
#   DIR/.lock    held (flock) while a script works on DIR, so that two never do
#   DIR/pids     "name pid started" of each daemon, in starting order
#   DIR/mounts   the mount points of its file systems
#   DIR/log/     what each of them says
#   DIR/env      the export lines of a rig that is up
#   DIR/ready    exists once everything has answered
#
# An -up script prints export lines on stdout and everything else on stderr. Exit codes: 0 up or
# stopped, 1 failed, 2 usage, 3 the folder can't be used, 4 a port is taken, 5 a program is missing.

export LC_ALL=C
exec </dev/null # a closed stdin would become some daemon's first socket

RIG=''           # the folder, absolute
RIG_DEADLINE=0   # in bash's SECONDS
RIG_NAMES=()     # daemons, in starting order
declare -A RIG_PID=() RIG_STARTED=()

say() {
    printf 'rig: %s\n' "$*" >&2
}

die() {
    local code=$1
    shift
    say "error: $*"
    exit "$code"
}

need() { # HINT PROGRAM...
    local hint=$1 program
    shift
    for program; do
        command -v "$program" >/dev/null || die 5 "$program not found; $hint"
    done
}

# Reads name=value arguments into the variables that are named first: options "tls_port store" "$@"
options() {
    local known=" $1 " arg
    shift
    for arg; do
        [[ $arg == *=* && $known == *" ${arg%%=*} "* ]] ||
            die 2 "unknown option $arg; there is:$known"
        printf -v "${arg%%=*}" %s "${arg#*=}"
    done
}

port_number() {
    if [[ ! $1 =~ ^(0|[1-9][0-9]{3,4})$ ]] || (($1 > 65535 || ($1 > 0 && $1 < 1024))); then
        die 2 "not a port (0, or 1024 to 65535): $1"
    fi
}

# ---- the folder ---------------------------------------------------------------------------

# Locks the folder that holds a rig, makes it where told to, and reads what runs in it.
rig_open() { # DIR make|look
    # Daemons put these paths into their configuration unquoted.
    [[ $1 =~ ^[A-Za-z0-9/._-]+$ ]] || die 2 "a rig's folder may hold only A-Z a-z 0-9 / . _ - : $1"
    [[ $2 != make ]] || mkdir -p "$1" 2>/dev/null || die 3 "can't make $1"
    RIG=$(cd "$1" 2>/dev/null && pwd -P) || die 3 "can't enter $1"
    [[ $RIG != / ]] || die 3 "the folder is /"
    # Unix sockets live in it and their paths have 107 bytes.
    ((${#RIG} <= 70)) || die 3 "path too long (${#RIG} bytes, 70 fit): $RIG"
    [[ -e $RIG/.rig || -z $(find "$RIG" -mindepth 1 ! -path "$RIG/.lock" -print -quit) ]] ||
        die 3 "$RIG holds something that is not a rig; not touching it"
    exec 9>"$RIG/.lock"
    flock -w 60 9 || die 3 "another script is at work on $RIG"

    local name pid started
    [[ -e $RIG/pids ]] || return 0
    while read -r name pid started; do
        remember "$name" "$pid" "$started"
    done <"$RIG/pids"
}

# Removes the state. -xdev: a file system that is still mounted below is not ours to empty.
rig_clear() {
    find "$RIG" -xdev -mindepth 1 ! -path "$RIG/.lock" -delete
    RIG_NAMES=() RIG_PID=() RIG_STARTED=()
}

# Marks an empty folder as a rig's, sets the clock, and sees that a failure leaves nothing running.
rig_begin() { # NAME SECONDS
    echo "$1" >"$RIG/.rig"
    : >"$RIG/pids"
    mkdir "$RIG/log" "$RIG/run"
    RIG_DEADLINE=$((SECONDS + $2))
    trap rig_failed EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

rig_failed() {
    local code=$?
    trap - EXIT
    local file
    for file in "$RIG"/log/*; do
        [[ ! -f $file ]] || grep -E ' -1 |[Ee]rror|denied|failed|in use' "$file" | grep -v rocksdb: |
            tail -n 6 | cut -c 1-240 | sed "s|^|${file##*/}: |" >&2 || true
    done
    daemons_kill || true
    mounts_remove
    say "start failed; what was started has been stopped; logs in $RIG/log"
    exit $((code ? code : 1))
}

# Publishes the rig's variables: from here on it is up.
rig_ready() { # "NAME='value'"...
    printf 'export %s\n' "$@" >"$RIG/env"
    : >"$RIG/ready"
    trap - EXIT INT TERM
    cat "$RIG/env"
}

# ---- daemons ------------------------------------------------------------------------------

remember() { # NAME PID STARTED
    RIG_NAMES+=("$1")
    RIG_PID[$1]=$2
    RIG_STARTED[$1]=$3
}

# Prints when a process started (ticks since boot). Together with its pid this names one process
# for ever, however often the pid is used again. A zombie counts as gone: in a container there may
# be nobody to reap it.
started_at() { # PID
    local stat fields
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
    read -ra fields <<<"${stat##*) }"
    [[ ${fields[0]} != [ZX] ]] && echo "${fields[19]}"
}

alive() { # NAME
    local now
    now=$(started_at "${RIG_PID[$1]}") && [[ $now == "${RIG_STARTED[$1]}" ]]
}

count_alive() {
    local name count=0
    for name in "${RIG_NAMES[@]}"; do
        ! alive "$name" || count=$((count + 1))
    done
    echo "$count"
}

# Starts a daemon that stays in the foreground, in a session of its own.
start() { # NAME COMMAND...
    local name=$1 started fd
    shift
    (
        exec </dev/null >>"$RIG/log/$name.out" 2>&1
        # A descriptor of the caller's that lived on here would keep our lock, or hang whoever
        # reads the caller's pipe to its end.
        for fd in /proc/self/fd/*; do
            fd=${fd##*/}
            ((fd <= 2)) || eval "exec $fd>&-"
        done
        trap - EXIT INT TERM
        exec setsid "$@"
    ) &
    disown $!
    started=$(started_at $!) || die 1 "$name did not start"
    remember "$name" $! "$started"
    echo "$name $! $started" >>"$RIG/pids"
}

# Repeats a command until it succeeds; gives up when the daemon has ended or the time is over.
wait_for() { # NAME WHAT COMMAND...
    local name=$1 what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        alive "$name" || die 1 "$name ended while waiting for $what"
        ((SECONDS < RIG_DEADLINE)) || die 1 "time is over, still waiting for $what"
        sleep 0.05
    done
}

# Runs a tool of the rig, its words in log/NAME.out, within the rig's time. Without our lock: if we
# are killed, a tool that hangs must not keep it.
tool() { # NAME COMMAND...
    local name=$1 left=$((RIG_DEADLINE - SECONDS))
    shift
    timeout $((left > 0 ? left : 1)) "$@" >>"$RIG/log/$name.out" 2>&1 9>&- || die 1 "$1 failed ($name)"
}

# Kills what the rig started, last started first, and nothing else. KILL: the state is thrown away,
# and an orderly end takes seconds.
daemons_kill() {
    local i name
    for ((i = ${#RIG_NAMES[@]} - 1; i >= 0; i--)); do
        name=${RIG_NAMES[i]}
        ! alive "$name" || kill -KILL "${RIG_PID[$name]}" 2>/dev/null || true
    done
    for ((i = 0; i < 100; i++)); do
        [[ $(count_alive) != 0 ]] || break
        sleep 0.05
    done
    [[ $(count_alive) == 0 ]] || die 1 "a daemon is still alive after KILL; see $RIG/pids"
    rm -f "$RIG/ready"
    : >"$RIG/pids"
}

# Takes away the mount points whose daemons have been killed.
mounts_remove() {
    local point
    [[ -e $RIG/mounts ]] || return 0
    while read -r point; do
        umount -l "$point" 2>/dev/null || true
    done <"$RIG/mounts"
    rm "$RIG/mounts"
}

# ---- ports --------------------------------------------------------------------------------

listening() { # PORT: on any address, IPv4 or IPv6
    local hex
    printf -v hex ':%04X' "$1"
    cat /proc/net/tcp /proc/net/tcp6 2>/dev/null |
        awk -v port="$hex" '$4 == "0A" && substr($2, length($2) - 4) == port { found = 1 }
                            END { exit !found }'
}

# Prints the first free port from FIRST on. Keep FIRST under 32000: above, the kernel hands ports
# to outgoing connections.
free_port() { # FIRST
    local port
    for ((port = $1; port < $1 + 400; port++)); do
        listening "$port" || { echo "$port" && return; }
    done
    die 4 "no free port from $1 to $((port - 1))"
}
