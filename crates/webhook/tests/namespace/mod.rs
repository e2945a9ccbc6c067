//! A network of a test's own, on which every address there is leads to this machine.

use std::process::Command;

const DATABASE: &str = "POSTRIDER_TEST_NAMESPACE_DATABASE";
/// Every address is local: what is dialled anywhere arrives here.
const NETWORK: &str = "PATH=$PATH:/usr/sbin:/sbin && ip link set lo up && ip route add local 0.0.0.0/0 dev lo && ip -6 route add local ::/0 dev lo && exec \"$0\" \"$@\"";
/// As root, whose files the database's socket may be; else as nobody in particular, under a name of root's.
const WAYS: [&[&str]; 2] = [&["--net"], &["--user", "--map-root-user", "--net"]];
const PROXIES: [&str; 6] = ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];

/// The database that the test is given, if it runs on a network of its own already.
pub(crate) fn database() -> Option<String> {
    std::env::var(DATABASE).ok()
}

/// Runs a test of this program again on a network of its own, with proxies in its environment.
///
/// # Panics
/// If the test fails there, and if this machine does not let a network be made: a guard that was not tried is not one that holds.
pub(crate) fn run_again(test: &str, database: &str) {
    let way = WAYS.iter().find(|way| unshare(way).args(["true"]).output().is_ok_and(|output| output.status.success()));
    let Some(way) = way else {
        panic!(
            "no network namespace can be made here, so what the guard lets out cannot be seen: install util-linux and iproute2, and \
             allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0) or run \
             this as root"
        );
    };
    let mut command = unshare(way);
    command.args(["sh", "-c", NETWORK]).arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]);
    command.env(DATABASE, database);
    for proxy in PROXIES {
        command.env(proxy, "http://127.0.0.1:3128");
    }
    let output = command.output().unwrap();
    let said = [output.stdout.as_slice(), &output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "on its own network:\n{said}");
    assert!(said.contains("1 passed"), "it did not run:\n{said}");
}

fn unshare(way: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(way).arg("--");
    command
}
