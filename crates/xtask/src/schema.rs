use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use postrider_testkit::TestServer;
use tokio::fs;
use tokio::process::Command;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/", "../../postrider/sql/schema.sql");

/// Partitions come and go with the days; a schema is the same without them.
const PARTITIONS: &str = "select format('%I.%I', n.nspname, c.relname)
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'postrider' and c.relkind in ('r', 'p') and c.relispartition order by 1";

/// Writes the schema that the migrations make, or compares it.
pub(crate) async fn regenerate(check: bool) -> anyhow::Result<ExitCode> {
    let server = TestServer::start().await;
    let found = postrider_embedded::find(None, None)?;
    let dump = dump(&server, found.bin.join("pg_dump")).await?;
    let text = format!("{}{}\n", head(found.major), cut(&dump)?);
    if !check {
        let path = PathBuf::from(PATH);
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).await?;
        }
        fs::write(&path, text).await.with_context(|| format!("cannot write {PATH}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let there = fs::read_to_string(PATH).await.with_context(|| format!("cannot read {PATH}"))?;
    // pg_dump says some things differently from one major to the next: only like is compared with like.
    if there.starts_with(&head(found.major)) {
        ensure!(there == text, "{}\nrun: cargo run -p xtask -- regenerate", difference(&there, &text));
    }
    Ok(ExitCode::SUCCESS)
}

fn head(major: u32) -> String {
    format!(
        "-- The schema that all migrations make, without partitions, as pg_dump of PostgreSQL {major} says it.\n\
         -- Written by: cargo run -p xtask -- regenerate\n\n"
    )
}

async fn dump(server: &TestServer, pg_dump: PathBuf) -> anyhow::Result<String> {
    let partitions: Vec<String> = sqlx::query_scalar(PARTITIONS).fetch_all(server.pool()).await?;
    let mut command = Command::new(&pg_dump);
    command.args(["--schema-only", "--no-owner", "--schema=postrider"]);
    command.args(partitions.iter().map(|partition| format!("--exclude-table={partition}")));
    let output =
        command.arg(server.url()).output().await.with_context(|| format!("cannot run {}", pg_dump.display()))?;
    if !output.status.success() {
        bail!("pg_dump: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The objects alone: what `pg_dump` writes before and after them names its minor version and session settings.
fn cut(dump: &str) -> anyhow::Result<&str> {
    let begin = dump.find("--\n-- Name: ").context("pg_dump wrote no object")?;
    let end = dump.rfind("--\n-- PostgreSQL database dump complete").context("pg_dump was cut short")?;
    dump.get(begin..end).map(str::trim_end).context("pg_dump wrote its end before its beginning")
}

fn difference(there: &str, made: &str) -> String {
    let lines = there.lines().zip(made.lines()).enumerate();
    let first = lines.into_iter().find(|(_, (there, made))| there != made);
    match first {
        Some((n, (there, made))) => {
            format!("{PATH}:{}: the migrations do not make this\n  file:       {there}\n  migrations: {made}", n + 1)
        }
        None => format!(
            "{PATH}: the migrations make {} lines, the file has {}",
            made.lines().count(),
            there.lines().count()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_schema_file_is_what_the_migrations_make() {
        let answer = regenerate(true).await.map_err(|error| format!("{error:#}"));
        assert_eq!(answer.map(|_| ()), Ok(()));
    }

    #[test]
    fn versions_and_session_settings_of_a_dump_are_cut_off() {
        let dump = "--\n-- PostgreSQL database dump\n--\n\n\\restrict abc\n\n-- Dumped from database version 15.8\n\n\
                    SET lock_timeout = 0;\n\n--\n-- Name: a; Type: TABLE\n--\n\nCREATE TABLE a ();\n\n\n\
                    --\n-- PostgreSQL database dump complete\n--\n\n\\unrestrict abc\n";
        assert_eq!(cut(dump).unwrap(), "--\n-- Name: a; Type: TABLE\n--\n\nCREATE TABLE a ();");
        assert!(cut("").is_err());
    }
}
