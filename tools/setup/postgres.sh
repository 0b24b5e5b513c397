#!/bin/sh
# Makes sure that this machine has Postgres server binaries (initdb and postgres, version 15 or newer),
# which `make up`, `make test` and `make cluster` run as private, unprivileged servers of their own.
# When they are there already, or when DATABASE_URL names a server to use, it says nothing and changes
# nothing. Otherwise it asks the system's package manager (as root, or through a sudo that does not ask
# for a password), and where that is impossible it says in one sentence what to install.
#
# It never starts a server: where the package would make and start a default cluster, that is held off.
#
# usage: postgres.sh [--check]     --check only looks: prints the directory of the binaries, exit 1 if none
set -eu

minimum=15

# major_of DIR prints the major version of the postgres in DIR, nothing when there is none.
major_of() {
    [ -x "$1/postgres" ] && [ -x "$1/initdb" ] || return 0
    "$1/postgres" --version 2>/dev/null | sed -n 's/^postgres (PostgreSQL) \([0-9][0-9]*\).*/\1/p'
}

# candidates prints the directories to look in, in the order of pkg/postgres/private.
candidates() {
    on_path=$(command -v postgres 2>/dev/null || true)
    [ -z "$on_path" ] || dirname "$on_path"
    ! command -v pg_config >/dev/null 2>&1 || pg_config --bindir 2>/dev/null || true
    # Newest first; a glob that matches nothing stays as it is and is not executable.
    for dir in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /usr/libexec/postgresql* \
        /opt/homebrew/opt/postgresql@*/bin /usr/local/opt/postgresql@*/bin; do
        echo "$dir"
    done | sort -rV 2>/dev/null || true
}

# find_postgres prints the first directory with binaries that are new enough; it fails when none is.
find_postgres() {
    candidates | while IFS= read -r dir; do
        major=$(major_of "$dir")
        if [ -n "$major" ] && [ "$major" -ge "$minimum" ]; then
            echo "$dir"
            break
        fi
    done | grep .
}

# as_root runs a command as root, without ever asking for a password.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

can_be_root() {
    [ "$(id -u)" -eq 0 ] || { command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; }
}

# give_up says what a person has to do, on stderr, and ends the script.
give_up() {
    echo "postgres.sh: no Postgres $minimum or newer on this machine: $1; or set DATABASE_URL to a server that you have." >&2
    exit 1
}

# The Debian family makes and starts a cluster on port 5432 when the server package is installed. A drop-in
# that is there only while the package is configured prevents that and leaves nothing behind.
install_apt() {
    dropin=/etc/postgresql-common/createcluster.d/apiary-setup.conf
    as_root mkdir -p "${dropin%/*}"
    echo 'create_main_cluster = false' | as_root tee "$dropin" >/dev/null
    status=0
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq || status=$?
    [ "$status" -ne 0 ] ||
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql || status=$?
    as_root rm -f "$dropin"
    return "$status"
}

# install_dnf takes the newest module stream where the distribution has streams (their default is too old).
install_dnf() {
    for stream in 17 16 15; do
        if as_root dnf -q -y module enable "postgresql:$stream" >/dev/null 2>&1; then
            break
        fi
    done
    as_root dnf -q -y install postgresql-server
}

install_apk() {
    for package in postgresql17 postgresql16 postgresql15; do
        if as_root apk add --quiet "$package" 2>/dev/null; then
            return 0
        fi
    done
    return 1
}

# The messages of package managers go to stderr: stdout belongs to the caller.
main() {
    if found=$(find_postgres); then
        [ "${1-}" != --check ] || echo "$found"
        return 0
    fi
    [ "${1-}" != --check ] || exit 1
    [ -z "${DATABASE_URL-}" ] || return 0

    if command -v apt-get >/dev/null 2>&1; then
        can_be_root || give_up 'run "sudo apt-get install postgresql"'
        echo 'postgres.sh: installing Postgres with apt-get' >&2
        install_apt >&2 || give_up 'apt-get could not install the package "postgresql"'
    elif command -v dnf >/dev/null 2>&1; then
        can_be_root || give_up 'run "sudo dnf install postgresql-server"'
        echo 'postgres.sh: installing Postgres with dnf' >&2
        install_dnf >&2 || give_up 'dnf could not install the package "postgresql-server"'
    elif command -v apk >/dev/null 2>&1; then
        can_be_root || give_up 'run "apk add postgresql17" as root'
        echo 'postgres.sh: installing Postgres with apk' >&2
        install_apk >&2 || give_up 'apk could not install the package "postgresql17"'
    elif command -v brew >/dev/null 2>&1; then
        echo 'postgres.sh: installing Postgres with brew' >&2
        brew install --quiet postgresql@17 >&2 || give_up 'brew could not install "postgresql@17"'
    else
        give_up "install the Postgres server with this system's package manager"
    fi
    find_postgres >/dev/null || give_up "the system's packages are older; take them from https://www.postgresql.org/download/"
}

main "$@"
