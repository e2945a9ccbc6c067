# Sourced by ./dev and ./test: finds out what they need and this machine lacks, and installs it where it may.
# shellcheck shell=sh

say() {
    printf '%s\n' "== $*" >&2
}

die() {
    printf '%s\n' "$@" >&2
    exit 1
}

has() {
    command -v "$1" >/dev/null 2>&1
}

# The places of the Rust finder that a package of a Linux distribution or Homebrew fills; it looks at the rest itself.
has_postgres() {
    [ -z "${POSTRIDER_PG_BIN:-}" ] || return 0
    ! has postgres || return 0
    for initdb in /usr/lib/postgresql/*/bin/initdb /usr/pgsql-*/bin/initdb /usr/libexec/postgresql*/initdb \
        /usr/lib/postgresql*/bin/initdb /opt/homebrew/opt/postgresql@*/bin/initdb \
        /usr/local/opt/postgresql@*/bin/initdb /Applications/Postgres.app/Contents/Versions/*/bin/initdb; do
        [ ! -x "$initdb" ] || return 0
    done
    return 1
}

# The given packages, by Debian's names; as root, or with a sudo that asks for no password.
install_packages() {
    if [ "$(id -u)" -eq 0 ]; then
        sudo=
    elif has sudo && sudo -n true 2>/dev/null; then
        sudo='sudo -n'
    else
        die "This needs packages that are not installed, and you are not root:" "  sudo apt-get install $*"
    fi
    if ! has apt-get; then
        die "This needs packages that are not installed. By Debian's names:" "  $*" \
            "Install what your system calls them (dnf: gcc postgresql-server; apk: build-base postgresql17;" \
            "brew: postgresql@18), then run this again."
    fi
    say "installing: $*"
    $sudo apt-get update -q >&2 || say "apt-get update failed; trying with the lists that are here"
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" >&2 ||
        die "apt-get could not install: $*"
}

install_rust() {
    say "installing Rust with rustup"
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs -o /tmp/rustup-init.$$ ||
        die "Rust is not installed and rustup cannot be downloaded: is there a network?" \
            "Install Rust by hand (https://rustup.rs), then run this again."
    sh /tmp/rustup-init.$$ -y --profile minimal --default-toolchain none --no-modify-path >&2 ||
        die "rustup failed; install Rust by hand (https://rustup.rs), then run this again."
    rm -f /tmp/rustup-init.$$
}

# A C compiler (for two of the dependencies), a Postgres, Rust. $1 is the repository, which names its Rust; the rest are
# further packages to install if they lack, by Debian's names.
install_what_lacks() {
    repository=$1
    shift
    has cargo || PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    lacking=$*
    has cc || lacking="$lacking gcc libc6-dev"
    has_postgres || lacking="$lacking postgresql"
    has cargo || has curl || lacking="$lacking curl ca-certificates"
    # shellcheck disable=SC2086 # a list of words
    [ -z "$lacking" ] || install_packages $lacking
    has cargo || install_rust
    said=$(cd "$repository" && cargo --version 2>&1) || die "cargo is here but does not run; it says:" "$said"
}
