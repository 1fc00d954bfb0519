#!/usr/bin/env bash
# Puts nginx, sshd, redis-server and tgt of Debian into target/servers, where the tests look
# for what is not installed. They are unpacked only: an installed package would start a server on
# this machine. Without a network there are none, and those tests say so by name.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(nginx openssh-server redis-server redis-tools tgt)
home=target/servers
[ ! -x $home/usr/sbin/tgtd ] || exit 0

rm -rf $home
mkdir -p $home
cd $home
if ! apt-get -qq -o APT::Sandbox::User=root download "${packages[@]}"; then
    echo "servers: not fetched; their tests will be skipped" >&2
    exit 0
fi
mkdir new
for package in *.deb; do
    dpkg-deb --extract "$package" new
    rm "$package"
done
mv new/* .
rmdir new
