//! A command beside a temporary Postgres.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::process::{Command, Output};

fn with_postgres(command: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask")).args(["with-postgres", "--"]).args(command).output().unwrap()
}

#[test]
fn the_command_finds_the_server_and_its_exit_code_is_passed_on() {
    let output = with_postgres(&["sh", "-c", "echo \"$POSTRIDER_TEST_SERVER\"; exit 7"]);
    let url = String::from_utf8(output.stdout).unwrap();
    assert!(url.starts_with("postgres://postgres@%2F"), "{url}");
    assert_eq!(output.status.code(), Some(7));
    let socket = url.split(['@', ':']).nth(2).unwrap().replace("%2F", "/");
    assert!(!std::path::Path::new(&socket).exists(), "{socket} went with the server");
}

#[test]
fn a_command_that_a_signal_ended_answers_as_in_a_shell() {
    assert_eq!(with_postgres(&["sh", "-c", "kill -KILL $$"]).status.code(), Some(128 + 9));
}

#[test]
fn a_command_that_is_not_there_is_named() {
    let output = with_postgres(&["no-such-command"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot run no-such-command"));
    assert!(!output.status.success());
}
