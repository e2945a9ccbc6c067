//! The SQL of the guides runs, from top to bottom, on a database that has just been migrated.

mod repo;

use postrider_testkit::TestDb;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

/// A role of the guides. Roles belong to the whole server, so each run takes one of its own.
const ROLE: &str = "shop_app";

#[tokio::test]
async fn every_sql_block_of_the_guides_runs() {
    let mut ran = 0;
    for guide in repo::files().iter().filter(|f| f.ends(".md") && f.path.starts_with("docs/guides/")) {
        let blocks = sql_blocks(&guide.text);
        if blocks.is_empty() {
            continue;
        }
        let db = TestDb::fresh().await;
        let mut connection = PgConnection::connect(db.url()).await.unwrap();
        for block in blocks {
            let sql = block.replace(ROLE, &format!("{ROLE}_{}", db.name()));
            let result = connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await;
            assert!(result.is_ok(), "{}: {result:?} in\n{block}", guide.path);
            ran += 1;
        }
    }
    assert!(ran > 0, "no guide has SQL");
}

#[tokio::test]
async fn a_block_that_does_not_run_is_found() {
    let db = TestDb::fresh().await;
    let mut connection = PgConnection::connect(db.url()).await.unwrap();
    let text = "```sql\nselect postrider.record('never.declared', 'order/1');\n```\n```sh\nno sql\n```\n";
    let guide = repo::File::new("docs/guides/a.md", text);
    let blocks = sql_blocks(&guide.text);
    assert_eq!(blocks.len(), 1);
    for block in blocks {
        let result = connection.execute(sqlx::raw_sql(AssertSqlSafe(block.to_owned()))).await;
        assert!(result.is_err_and(|e| e.to_string().contains("never declared")));
    }
}

fn sql_blocks(page: &str) -> Vec<&str> {
    page.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next()).collect()
}
