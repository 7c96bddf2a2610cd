# shellcheck shell=bash
# What the lab asks of the machine it runs on, and the lock that keeps two commands apart.

PROGRAMS=(systemd-nspawn:systemd-container mmdebstrap:mmdebstrap ip:iproute2 nsenter:util-linux
          ssh:openssh-client ssh-keygen:openssh-client nft:nftables flock:util-linux python3:python3)

# One line for the first thing that is missing; silence and 0 when a lab can run here.
cmd_check() {
    ((EUID == 0)) || die "needs root: it makes network namespaces and boots two nodes"
    [[ -e /etc/debian_version ]] || die "needs Debian 12 or Ubuntu 24.04 (or later): this system has no /etc/debian_version"
    local pair missing=()
    for pair in "${PROGRAMS[@]}"; do
        command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
    done
    ((${#missing[@]} == 0)) || die "missing Debian packages: $(printf '%s\n' "${missing[@]}" | sort -u | tr '\n' ' ')"
    systemd-nspawn --help | grep -q -- --network-namespace-path || die "systemd-nspawn is too old: it lacks --network-namespace-path"
    [[ -n $(cgroup_v2) ]] || die "needs a cgroup v2 hierarchy, at /sys/fs/cgroup or /sys/fs/cgroup/unified"
    unshare --net true 2>/dev/null || die "this machine does not allow network namespaces (no CAP_SYS_ADMIN, or a container without it)"
    check_overlayfs
    [[ $NET != nat || -n $(default_interface) ]] || die "no default route, so the nodes could not reach a package index: TWINSPARK_LAB_NET=none boots them without"
}

# The nodes' disks are overlays on the cached root: both folders must lie on file systems that allow it.
check_overlayfs() {
    local probe=$STATE.probe ok=0
    mkdir -p "$CACHE/lab" "$probe"/{lower,upper,work,root}
    mount -t overlay "$PREFIX-probe" -o "lowerdir=$CACHE/lab:$probe/lower,upperdir=$probe/upper,workdir=$probe/work" \
        "$probe/root" 2>/dev/null && { ok=1; umount "$probe/root"; }
    rm -rf --one-file-system "$probe"
    ((ok)) || die "overlayfs does not work with $CACHE below $(dirname "$STATE") (TWINSPARK_CACHE and TWINSPARK_LAB_STATE move them)"
}

default_interface() {
    ip -j route show default | python3 -c 'import json, sys; print(next((r["dev"] for r in json.load(sys.stdin)), ""))'
}

# ---- cgroups: a node's processes sit in one of their own, which is how `down` finds every one of them
cgroup_v2() {
    local root; for root in /sys/fs/cgroup /sys/fs/cgroup/unified; do
        [[ $(stat -fc %T "$root" 2>/dev/null) == cgroup2fs ]] && { echo "$root"; return; }
    done; return 0
}
# v2 first; on a hybrid host systemd's own v1 hierarchy too, or both nodes would share one there
cgroup_roots() {
    cgroup_v2
    [[ ! -e /sys/fs/cgroup/systemd/cgroup.procs || -e /sys/fs/cgroup/cgroup.procs ]] || echo /sys/fs/cgroup/systemd
}

# ---- one command at a time
take_lock() {
    while :; do
        exec {LOCK_FD}>>"$LOCK"
        flock --nonblock "$LOCK_FD" || lock_orphaned || die "another lab command is at work: $(<"$LOCK")"
        # whoever held it before has removed the file: then this lock guards nothing, take the new one
        [[ $LOCK -ef /proc/self/fd/$LOCK_FD ]] && break
        exec {LOCK_FD}>&-
    done
    echo "$1, pid $$" >"$LOCK"
    trap 'rm -f "$LOCK"' EXIT
}
# A command that was killed leaves a child or two with the lock, for a second or so.
lock_orphaned() {
    local holder; holder=$(<"$LOCK")
    [[ ! -d /proc/${holder##* } ]] && flock --wait 10 "$LOCK_FD"
}

# ---- traces: everything outside the cache that `up` makes or changes
cmd_trace() {
    { echo '# namespaces';  ip netns list | sort
      echo '# links';       ip -br link | awk '{ print $1 }'
      echo '# routes';      ip route
      echo '# mounts';      awk '{ print $5 }' /proc/self/mountinfo | sort
      echo '# cgroups';     find /sys/fs/cgroup -maxdepth 3 -name "$PREFIX*"
      echo '# nft tables';  nft list tables
      echo '# forwarding';  grep -H . /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv4/conf/*/forwarding
      echo '# processes'
      # shellcheck disable=SC2009  # pgrep cannot print the arguments alone
      ps -e -o args= | grep -E "systemd-nspawn|lab _supervise|$STATE" | grep -v grep | sort
      echo '# files';       ls -d "$STATE"* "$LOCK" /run/netns /run/systemd/nspawn
    } 2>/dev/null || true
}
