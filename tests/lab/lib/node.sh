# shellcheck shell=bash
# One node: its disk, its boot loop, its end.

# NODE. An overlay of the cached root and the node's own layer, and what makes it this node.
node_disk() {
    local node=$1 disk=$STATE/$1 root=$STATE/$1/root other home
    mkdir -p "$disk"/{upper,work,root}
    mount -t overlay "$PREFIX-$node" -o "lowerdir=$(base_path),upperdir=$disk/upper,workdir=$disk/work" "$root"
    echo "$node" >"$root/etc/hostname"
    { echo '127.0.0.1 localhost'; for other in "${NODES[@]}"; do echo "$(management_address "$other") $other"; done; } >"$root/etc/hosts"
    # what belongs to this machine and not to the cached root: resolver, CAs, apt's settings
    cp "$(resolver)" "$root/etc/resolv.conf"
    cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
    apt-config dump | grep -E '^Acquire::(http|https|Check-|Retries|ForceIP)' >"$root/etc/apt/apt.conf.d/90host" || true
    # a stable release's lists change a few times a year: a young lab does not fetch them again (Ansible's
    # cache_valid_time goes by this folder's age)
    touch "$root/var/lib/apt/lists"
    ssh-keygen -q -t ed25519 -N '' -C "$node" -f "$root/etc/ssh/ssh_host_ed25519_key"
    echo "$(management_address "$node"),$node $(cut -d ' ' -f 1,2 "$root/etc/ssh/ssh_host_ed25519_key.pub")" >>"$STATE/known_hosts"
    for home in root "home/$USERNAME"; do
        install -d -m 0700 "$root/$home/.ssh"
        cp "$STATE/id_ed25519.pub" "$root/$home/.ssh/authorized_keys"
        chown -R --reference="$root/$home" "$root/$home/.ssh"
    done
}

# NODE. In a session of its own, so that neither a terminal's end nor a Ctrl-C at it takes the node along.
node_boot() {
    rm -f "$STATE/$1/stay-off"
    local closing=(); [[ -v LOCK_FD ]] && closing=("$LOCK_FD")
    (   for fd in "${closing[@]}"; do exec {fd}>&-; done
        exec setsid --fork "$HERE/lab" _supervise "$1" </dev/null >>"$STATE/$1/console.log" 2>&1 )
}

# NODE. The power button: boots until the node goes off by itself (nspawn exits 133 for a reboot).
cmd__supervise() {
    local node=$1 status binds=()
    node_cgroup "$node" loop $$
    mapfile -t binds <"$STATE/binds"
    while :; do
        node_links_up "$node"
        status=0
        nspawn "$node" "${binds[@]/#/--bind-ro=}" || status=$?
        say "$node: nspawn ended with $status"
        [[ $status == 133 && ! -e $STATE/$node/stay-off ]] || break
    done
}

# NODE OPTION...
#   UNIFIED_HIERARCHY: the node sees pure cgroup v2 even where the host is "hybrid"
#   API_VFS_WRITABLE=network: /sys/class/net of its own namespace (else the host's interfaces show, and
#     Ansible's facts are wrong) and a writable /proc/sys/net
#   TMPFS_TMP=0: /tmp on disk, not in a tenth of the memory
#   keep-unit, register=no: no machined, no running systemd on the host needed
nspawn() {
    local node=$1; shift
    (   node_cgroup "$node" unit "$BASHPID"
        export SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 SYSTEMD_NSPAWN_API_VFS_WRITABLE=network SYSTEMD_NSPAWN_TMPFS_TMP=0
        exec systemd-nspawn --quiet --boot --register=no --keep-unit \
            --directory="$STATE/$node/root" --machine="$PREFIX-$node" --hostname="$node" \
            --network-namespace-path="/run/netns/$PREFIX-$node" --capability=CAP_NET_ADMIN \
            --resolv-conf=off --timezone=off --link-journal=no --console=read-only "$@" systemd.show_status=yes )
}

# NODE PART PID: `loop` and `unit` lie side by side, as a v2 cgroup that hands out controllers holds no process
node_cgroup() {
    local root; for root in $(cgroup_roots); do
        mkdir -p "$root/$PREFIX/$1/$2"
        echo "$3" >"$root/$PREFIX/$1/$2/cgroup.procs"
    done
}
node_cgroup_remove() {
    local root; for root in $(cgroup_roots); do
        [[ ! -d $root/$PREFIX/$1 ]] || find "$root/$PREFIX/$1" -depth -type d -exec rmdir {} +
    done
}

leader() {                                # the node's PID 1, as the host numbers it
    local procs pid; procs=$(cgroup_v2)/$PREFIX/$1/unit/payload/init.scope/cgroup.procs
    [[ -e $procs ]] && read -r pid <"$procs" && [[ -n $pid ]] && echo "$pid"
}

node_wait_ended() {                       # NODE TENTHS-OF-A-SECOND
    local i; for ((i = 0; i < $2; i++)); do
        grep -qs 'populated 1' "$(cgroup_v2)/$PREFIX/$1/cgroup.events" || return 0
        sleep 0.1
    done; return 1
}

# NODE SIGNAL TENTHS: RTMIN+4 is an orderly poweroff, KILL a power cut. What is left after that is in the
# node's own cgroup, and so is the boot loop: nothing here is found by its name.
node_stop() {
    local node=$1 signal=$2 patience=$3 pid
    [[ ! -d $STATE/$node ]] || touch "$STATE/$node/stay-off"
    if pid=$(leader "$node"); then kill -s "$signal" "$pid" 2>/dev/null || true; fi
    if ! node_wait_ended "$node" "$patience"; then
        cgroup_kill "$(cgroup_v2)/$PREFIX/$node"
        node_wait_ended "$node" 100 || say "$node: processes that do not die: $(cat "$(cgroup_v2)/$PREFIX/$node"/*/cgroup.procs)"
    fi
    node_cgroup_remove "$node"
}

cgroup_kill() {
    if [[ -e $1/cgroup.kill ]]; then echo 1 >"$1/cgroup.kill"; return; fi
    local pid; find "$1" -name cgroup.procs -exec cat {} + | while read -r pid; do kill -KILL "$pid" 2>/dev/null || true; done
}

node_remove() {                           # NODE: its mounts and its files, after node_stop
    local node=$1 root=$STATE/$1/root
    if mountpoint -q "$root"; then
        rm -f "/run/systemd/nspawn/locks/inode-$(stat -c %d:%i "$root")"   # a killed nspawn leaves it
        umount "$root"
    fi
    rm -rf --one-file-system "${STATE:?}/$node"
    rm -rf --one-file-system "/run/systemd/nspawn/propagate/$PREFIX-$node"
}
