# shellcheck shell=bash
# Sourced by benchmarks on a GPU machine, from the bundle.
#   options "NAME..." ARGUMENT...   reads --NAME VALUE into variables, which have their defaults
#   begin SUFFIX    makes the folder `out`, unpacks the bundle into `folder`, whose program is `headrace`, and tells the machine
out=
say() { printf '\n== %s\n' "$*"; }

options() {
    local names=" $1 out "
    shift
    while [ $# -gt 0 ]; do
        [[ $1 == --* && $names == *" ${1#--} "* ]] || { echo "error: unknown option $1" >&2; exit 2; }
        printf -v "${1#--}" %s "$2"
        shift 2
    done
}

begin() {
    out=${out:-bench/runs/$(date +%F)-$(nvidia-smi -i 0 --query-gpu=name --format=csv,noheader | tr ' A-Z' '-a-z')$1}
    mkdir -p "$out"
    folder=${HEADRACE_BUNDLE:-$(scripts/unpack-bundle)} || exit 1
    headrace=$folder/headrace
    {
        nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
        grep -m1 'model name' /proc/cpuinfo; nproc; grep MemTotal /proc/meminfo; uname -r
        "$headrace" --version
    } | tee "$out/machine.txt"
}
