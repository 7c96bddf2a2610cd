# shellcheck shell=bash disable=SC2034  # used by the files beside this one
# Names, addresses and places of the lab. Everything it makes on the host carries $PREFIX in its name.

LAB=${TWINSPARK_LAB_NAME:-lab}            # another name (at most 6 letters): a lab beside this one
PREFIX=twinspark-$LAB
STATE=${TWINSPARK_LAB_STATE:-/var/tmp/$PREFIX}         # volatile: node disks, key, logs; gone after `down`
CACHE=${TWINSPARK_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/twinspark}
LOCK=/run/lock/$PREFIX.lock

SUITE=bookworm                            # systemd 252, Python 3.11: what env/locks/lab-cpu.lock is made for
NODES=(spark1 spark2)
declare -A NUMBER=([spark1]=11 [spark2]=12)            # last byte of each address
MANAGEMENT=enP7s7                         # interface names as on a Spark
RAILS=(enp1s0f0np0 enP2p1s0f0np0)         # one QSFP cable: two PCIe functions of one port
USERNAME=deploy                           # sudo without a password, as Ansible wants it

NET=${TWINSPARK_LAB_NET:-nat}             # nat: the nodes reach the package index; none: no way out
RAIL_ADDRESSES=${TWINSPARK_LAB_RAIL_ADDRESSES:-0}      # 1: the lab addresses the rails, not site.yml
TIMEOUT=${TWINSPARK_LAB_TIMEOUT:-90}      # seconds until a booted node must answer on ssh

say() { printf 'lab: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

management_address() { echo "10.77.0.${NUMBER[$1]}"; }
rail_address() { echo "10.77.$2.${NUMBER[$1]}"; }      # NODE RAIL (1 or 2)
is_node() { [[ -n ${1:-} && -v NUMBER[$1] ]] || die "no node '${1:-}': there are ${NODES[*]}"; }
inside() { local space=$1; shift; nsenter --net="/run/netns/$PREFIX-$space" -- "$@"; }
