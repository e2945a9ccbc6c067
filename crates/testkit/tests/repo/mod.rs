//! The tree as these tests see it: each text file that is tracked or about to be, as its path and its text.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One text file; the path is relative to the root, with slashes.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    /// Whether the name ends so, for example `.rs`.
    pub(crate) fn ends(&self, ending: &str) -> bool {
        self.path.ends_with(ending)
    }
}

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(Path::to_path_buf).unwrap_or_default()
}

/// Every text file of the tree: as git sees it, else by a walk.
pub(crate) fn files() -> Vec<File> {
    let root = root();
    let mut paths = tracked(&root).unwrap_or_else(|| walk(&root, &root));
    paths.sort();
    paths.dedup();
    let read = |path: String| fs::read_to_string(root.join(&path)).ok().map(|text| File { path, text });
    let files: Vec<File> = paths.into_iter().filter_map(read).collect();
    assert!(files.iter().any(|f| f.path == "Cargo.toml"), "the tree at {} was not found", root.display());
    files
}

fn tracked(root: &Path) -> Option<Vec<String>> {
    let listed = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .ok()?;
    let text = String::from_utf8(listed.stdout).ok()?;
    listed.status.success().then(|| text.split('\0').filter(|p| !p.is_empty()).map(str::to_owned).collect())
}

fn walk(root: &Path, folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() {
            if !["target", ".git", ".cache", ".venv", "node_modules"].iter().any(|skipped| name == *skipped) {
                found.extend(walk(root, &path));
            }
        } else if let Ok(relative) = path.strip_prefix(root) {
            found.push(relative.to_string_lossy().replace('\\', "/"));
        }
    }
    found
}
