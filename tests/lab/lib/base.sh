# shellcheck shell=bash
# The nodes' root file system: built once from Debian's packages, then the read-only lower layer of both.

# What a Spark's own system image has too, as far as the roles touch it, and what is large. The rest of the
# host role's packages are left for that role to install. (libnuma1: without it the CPU engine dies with
# "no attribute 'init_cpu_memory_env'".)
PACKAGES=(systemd systemd-sysv dbus libpam-systemd openssh-server sudo ca-certificates
          python3 python3-venv python3-dev python3-apt
          iproute2 iputils-ping ethtool netplan.io nftables pciutils kmod procps curl rsync libnuma1 g++)
# timers and consoles that only make noise here; tmp.mount: /tmp stays on disk, wheels are unpacked there
MASKED=(apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer
        console-getty.service systemd-networkd-wait-online.service tmp.mount)

base_path() {                             # the recipe is part of the name: another recipe, another root
    local key; key=$(echo "$SUITE $USERNAME" | cat - "$HERE/lib/base.sh" | sha256sum)
    echo "$CACHE/lab/$SUITE-${key:0:12}"
}

base_build() {
    local base work; base=$(base_path); work=$base.new
    [[ -d $base ]] && return
    say "building the nodes' root file system (once, about a minute)"
    bases_remove
    mkdir -p "$CACHE/lab"
    # without a mirror mmdebstrap takes Debian's own; a Debian host says where its packages come from
    local mirror=()
    if grep -q '^ID=debian' /etc/os-release; then
        # shellcheck disable=SC2016  # apt-get expands it
        mapfile -t -n 1 mirror < <(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages')
    fi
    mmdebstrap --quiet --variant=apt --skip=cleanup/apt/lists --dpkgopt=force-unsafe-io --include="$(IFS=,; echo "${PACKAGES[*]}")" \
        "$SUITE" "$work" "${mirror[@]}" || { rm -rf --one-file-system "$work"; die "mmdebstrap could not build $SUITE (its words are above)"; }
    base_configure "$work"
    mv "$work" "$base"                    # complete or absent
    say "root file system: $(du -sh "$base" | cut -f 1)"
}

bases_remove() {                          # all but one that a running lab stands on
    local old; for old in "$CACHE/lab/"*/; do
        grep -qF "lowerdir=${old%/}," /proc/self/mountinfo || rm -rf --one-file-system "$old"
    done
    rmdir --ignore-fail-on-non-empty "$CACHE/lab" 2>/dev/null || true
}

base_configure() {
    local root=$1 unit
    : >"$root/etc/machine-id"             # empty: made at boot, and no "first boot"
    rm -f "$root"/etc/ssh/ssh_host_*_key* "$root"/etc/{hostname,resolv.conf}
    printf '%s\n' 'UseDNS no' 'PasswordAuthentication no' >"$root/etc/ssh/sshd_config.d/lab.conf"
    mkdir -p "$root/var/log/journal"      # the journal outlives a reboot, as it does on a Spark
    ln -sf /lib/systemd/system/multi-user.target "$root/etc/systemd/system/default.target"
    for unit in "${MASKED[@]}"; do ln -sf /dev/null "$root/etc/systemd/system/$unit"; done
    # `netplan apply` calls `udevadm control --reload`: let udevd run although /sys is read-only here
    mkdir -p "$root/etc/systemd/system/systemd-udevd.service.d"
    printf '[Unit]\nConditionPathIsReadWrite=\n' >"$root/etc/systemd/system/systemd-udevd.service.d/lab.conf"
    chroot "$root" useradd --create-home --shell /bin/bash --groups sudo "$USERNAME"
    echo "$USERNAME ALL=(ALL) NOPASSWD: ALL" >"$root/etc/sudoers.d/$USERNAME"
    chmod 0440 "$root/etc/sudoers.d/$USERNAME"
}
