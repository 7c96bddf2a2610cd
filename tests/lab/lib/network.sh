# shellcheck shell=bash
# The lab's network, all of it in namespaces of its own:
#   ctl     bridge `management` 10.77.0.1/24; Ansible runs here
#   fabric  one bridge for each rail; cutting a cable lowers a port here, and the node sees NO-CARRIER
#   spark1, spark2   the nodes' own, made afresh at every boot: a reboot forgets what was not made to last
# With NET=nat a veth pair leads from ctl to the host, which masquerades for the two interfaces concerned.

network_up() {
    local space rail
    for space in ctl fabric; do ip netns add "$PREFIX-$space"; ip -n "$PREFIX-$space" link set lo up; done
    ip -n "$PREFIX-ctl" link add management type bridge
    ip -n "$PREFIX-ctl" link set management up
    ip -n "$PREFIX-ctl" address add 10.77.0.1/24 dev management
    for rail in "${!RAILS[@]}"; do
        ip -n "$PREFIX-fabric" link add "rail$((rail + 1))" mtu 9216 type bridge
        ip -n "$PREFIX-fabric" link set "rail$((rail + 1))" up
    done
    [[ $NET != nat ]] || nat_up
}

network_down() {
    local space
    nat_down
    for space in "${NODES[@]}" ctl fabric; do netns_remove "$space"; done
    # the mount that `ip netns add` left behind, unless somebody else has namespaces too
    if mountpoint -q /run/netns && [[ -z $(ls -A /run/netns) ]]; then
        umount /run/netns && rmdir /run/netns
    fi
}

netns_remove() { [[ ! -e /run/netns/$PREFIX-$1 ]] || ip netns delete "$PREFIX-$1"; }

# NODE. The management link comes with its address, as an installed machine's does; the rails come down
# and bare, with the default MTU, as network cards do.
node_links_up() {
    local node=$1 rail name port
    node_links_down "$node"
    ip netns add "$PREFIX-$node"
    ip -n "$PREFIX-$node" link set lo up
    ip -n "$PREFIX-$node" link add "$MANAGEMENT" type veth peer name "$node" netns "$PREFIX-ctl"
    ip -n "$PREFIX-ctl" link set "$node" master management up
    ip -n "$PREFIX-$node" link set "$MANAGEMENT" up
    ip -n "$PREFIX-$node" address add "$(management_address "$node")/24" dev "$MANAGEMENT"
    # the host's MTU may be below 1500: a route's MTU keeps TCP segments small enough for it
    [[ $NET != nat ]] || ip -n "$PREFIX-$node" route add default via 10.77.0.1 mtu "$(<"$STATE/nat/mtu")"
    for rail in "${!RAILS[@]}"; do
        name=${RAILS[rail]} port=$node-$((rail + 1))
        ip -n "$PREFIX-$node" link add "$name" type veth peer name "$port" netns "$PREFIX-fabric"
        ip -n "$PREFIX-fabric" link set "$port" mtu 9216 master "rail$((rail + 1))"
        [[ -e $STATE/cut/$port ]] || ip -n "$PREFIX-fabric" link set "$port" up
        [[ $RAIL_ADDRESSES == 1 ]] || continue
        ip -n "$PREFIX-$node" link set "$name" mtu 9000 up
        ip -n "$PREFIX-$node" address add "$(rail_address "$node" $((rail + 1)))/24" dev "$name"
    done
}

node_links_down() {
    local node=$1 rail
    # one end takes the other along at once; a namespace's own end goes only some time after it
    ip -n "$PREFIX-ctl" link delete "$node" 2>/dev/null || true
    for rail in "${!RAILS[@]}"; do ip -n "$PREFIX-fabric" link delete "$node-$((rail + 1))" 2>/dev/null || true; done
    netns_remove "$node"
}

# cut|join RAIL|all [NODE]: unplug a rail, at both ends or at one
cmd_cut() { plug down "$@"; }
cmd_join() { plug up "$@"; }
plug() {
    local state=$1 which=${2:-} ends=("${NODES[@]}") rails=() node rail
    case $which in 1 | 2) rails=("$which") ;; all) rails=(1 2) ;; *) die "which rail: 1, 2 or all" ;; esac
    if [[ -n ${3:-} ]]; then is_node "$3"; ends=("$3"); fi
    is_up || die "the lab is not up"
    mkdir -p "$STATE/cut"
    for node in "${ends[@]}"; do
        for rail in "${rails[@]}"; do
            if [[ $state == down ]]; then touch "$STATE/cut/$node-$rail"; else rm -f "$STATE/cut/$node-$rail"; fi
            ip -n "$PREFIX-fabric" link set "$node-$rail" "$state"
        done
    done
}

# ---- the way out
nat_up() {
    local out; out=$(default_interface)
    mkdir -p "$STATE/nat"
    cat "/sys/class/net/$out/mtu" >"$STATE/nat/mtu"
    echo "$out $(<"/proc/sys/net/ipv4/conf/$out/forwarding")" >"$STATE/nat/forwarding"   # put back by nat_down
    ip link add "ts-$LAB" type veth peer name uplink netns "$PREFIX-ctl"
    ip address add 10.77.255.1/30 dev "ts-$LAB"
    ip link set "ts-$LAB" up
    ip -n "$PREFIX-ctl" address add 10.77.255.2/30 dev uplink
    ip -n "$PREFIX-ctl" link set uplink up
    ip -n "$PREFIX-ctl" route add default via 10.77.255.1 mtu "$(<"$STATE/nat/mtu")"
    ip route add 10.77.0.0/24 via 10.77.255.2
    inside ctl sysctl -qw net.ipv4.ip_forward=1
    echo 1 >"/proc/sys/net/ipv4/conf/$out/forwarding"       # these two alone, not the host's global switch
    echo 1 >"/proc/sys/net/ipv4/conf/ts-$LAB/forwarding"
    nft -f - <<NFT
table ip $PREFIX {
  chain way_out { type nat hook postrouting priority srcnat; ip saddr 10.77.0.0/16 oifname "$out" masquerade; }
}
NFT
}

nat_down() {
    local out before
    nft delete table ip "$PREFIX" 2>/dev/null || true
    if [[ -e $STATE/nat/forwarding ]]; then
        read -r out before <"$STATE/nat/forwarding"
        echo "$before" >"/proc/sys/net/ipv4/conf/$out/forwarding"
        rm -f "$STATE/nat/forwarding"
    fi
    ip link delete "ts-$LAB" 2>/dev/null || true
}

# CMD...: run it where Ansible runs. A resolver on the host's loopback is not there: use the one behind it.
cmd_ctl() {
    [[ -e /run/netns/$PREFIX-ctl ]] || die "the lab is not up"
    local enter=(nsenter --net="/run/netns/$PREFIX-ctl" --)
    [[ $(resolver) != /etc/resolv.conf ]] || exec "${enter[@]}" "$@"
    # shellcheck disable=SC2016  # the inner shell expands it
    exec "${enter[@]}" unshare --mount bash -c 'mount --bind "$0" /etc/resolv.conf && exec "$@"' "$(resolver)" "$@"
}

resolver() {
    local behind=/run/systemd/resolve/resolv.conf
    if [[ -e $behind ]] && grep -qE '^nameserver[[:space:]]+127\.' /etc/resolv.conf; then echo "$behind"; else echo /etc/resolv.conf; fi
}
