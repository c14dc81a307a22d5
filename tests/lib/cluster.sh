# Sourced: private PostgreSQL clusters in a temporary folder, reached by a socket in it and gone when the script ends.
# PG_BINDIR names the server's binaries; by default the newest under /usr/lib/postgresql.
# As root a user postgres is needed, since a server does not run as root.
# INITDB_OPTIONS are more options of initdb, such as "--locale-provider icu --icu-locale en".
#   work       the temporary folder
#   settings   options of clusters that start from now on, as of postgres -c
#   start NAME INITDB_OPTION..., stop, crash_program FILE, install BUILD, sql PSQL_OPTION...
fail() { echo "error: $*" >&2; exit 1; }
bin=${PG_BINDIR:-$(find /usr/lib/postgresql -mindepth 2 -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -n 1)}
client=$bin/psql
for program in initdb pg_ctl psql postgres; do
    [ -x "$bin/$program" ] || fail "no $program under '$bin': install a PostgreSQL server (15 to 18) or set PG_BINDIR"
done
unset "${!PG@}"
# For scripts that this one calls; Python's find tests/lib.
export PG_BINDIR=$bin
PYTHONPATH=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
export PYTHONPATH

work=$(mktemp -d)
cluster=
server() { if [ "$(id -u)" = 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi; }
stop() { if [ -n "$cluster" ]; then server "$bin/pg_ctl" -D "$cluster" -m immediate -w stop >/dev/null; rm -rf "$cluster"; cluster=; fi; }
finish() { stop || true; rm -rf "$work"; }
trap finish EXIT
chmod 755 "$work"
server true || fail "cannot become user postgres"
[ "$(id -u)" != 0 ] || chown postgres "$work"

sql() { "$client" -h "$work" -U postgres -d postgres -X -q -A -t -F $'\t' -v ON_ERROR_STOP=1 "$@"; }

settings=("listen_addresses=''" "unix_socket_directories='$work'" fsync=off autovacuum=off max_wal_size=4GB
    timezone=UTC bytea_output=hex)

# start NAME INITDB_OPTION...: a fresh cluster of its own, without TCP.
start() {
    cluster=$work/$1
    shift
    rm -f "$work/server.log"
    # shellcheck disable=SC2086
    server "$bin/initdb" -D "$cluster" -U postgres -A trust -E UTF8 --locale C --no-sync ${INITDB_OPTIONS:-} "$@" >"$work/initdb.log" 2>&1 ||
        { cat "$work/initdb.log" >&2; fail "initdb"; }
    printf '%s\n' "${settings[@]}" >>"$cluster/postgresql.conf"
    server "$bin/pg_ctl" -D "$cluster" -w -l "$work/server.log" start >/dev/null ||
        { cat "$work/server.log" >&2; fail "pg_ctl start"; }
}

# crash_program FILE: makes a program that crashes the running cluster and starts it again.
crash_program() {
    cat >"$1" <<END
#!/usr/bin/env bash
set -e
$(declare -f server)
server '$bin/pg_ctl' -D '$cluster' -m immediate -w stop
server '$bin/pg_ctl' -D '$cluster' -l '$work/server.log' -w start
END
    chmod +x "$1"
}

# installation: from now on clusters are of an installation of our own, without the extension. PostgreSQL looks for its
# folders relative to its own program, so a copy of some programs and links to everything else are one: nothing is
# written to the machine's, no rights on it are needed, and two tests may run with two builds.
installation() {
    local library share
    bin=$(realpath "$bin")
    library=$("$bin/pg_config" --pkglibdir)
    share=$("$bin/pg_config" --sharedir)
    mkdir -p "$work/installed$bin" "$work/installed$library" "$work/installed$share/extension"
    cp "$bin/initdb" "$bin/pg_ctl" "$bin/postgres" "$bin/pg_config" "$work/installed$bin"
    ln -s "$library"/* "$work/installed$library"
    find "$share" -mindepth 1 -maxdepth 1 ! -name extension -exec ln -s -t "$work/installed$share" {} +
    ln -s "$share/extension"/* "$work/installed$share/extension"
    bin=$work/installed$bin
}

# install BUILD: from now on clusters find the extension whose built files (headrace.so, headrace.control,
# headrace--*.sql, and headrace-gpu-service where it is needed) lie in that folder.
install() {
    local build library share
    build=$(realpath -e "$1") || fail "no folder $1"
    [ -f "$build/headrace.so" ] || fail "no headrace.so in $build: build the extension"
    [ -f "$build/headrace.control" ] || fail "no headrace.control in $build"
    installation
    library=$("$bin/pg_config" --pkglibdir)
    share=$("$bin/pg_config" --sharedir)
    cp --remove-destination "$build/headrace.so" "$library"
    [ ! -f "$build/headrace-gpu-service" ] || cp --remove-destination "$build/headrace-gpu-service" "$library"
    cp --remove-destination "$build/headrace.control" "$build"/headrace--*.sql "$share/extension"
}
