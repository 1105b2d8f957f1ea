//! The copy of the tree that the mutants are woven into. Files whose text is the same are not written again,
//! so that little is built again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What is no part of the copy.
const LEFT_OUT: [&str; 4] = ["target", ".git", "artifacts", "proptest-regressions"];

/// Where things lie.
pub struct Places {
    /// The project.
    pub root: PathBuf,
    /// Its copy.
    pub tree: PathBuf,
    /// What cargo builds of the copy.
    pub build: PathBuf,
    /// Results, and what earlier runs have found out.
    pub state: PathBuf,
}

impl Places {
    /// Of the project that this program was built from, below its target folder.
    pub fn new() -> Places {
        let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = crate_root.ancestors().nth(2).unwrap_or(crate_root).to_path_buf();
        let state = root.join("target/mutants");
        Places { tree: state.join("tree"), build: state.join("build"), state, root }
    }

    /// The core's sources.
    pub fn core(&self) -> PathBuf {
        self.root.join("core/src")
    }
}

/// Copies the project. `woven` (paths from the root, and texts) stand in place of the files.
pub fn copy(places: &Places, woven: &[(String, String)]) -> Result<(), String> {
    let mut kept = BTreeSet::new();
    copy_folder(places, Path::new(""), woven, &mut kept)?;
    remove_others(&places.tree, Path::new(""), &kept)
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> String + '_ {
    move |error| format!("{}: {error}", path.display())
}

fn copy_folder(
    places: &Places,
    folder: &Path,
    woven: &[(String, String)],
    kept: &mut BTreeSet<PathBuf>,
) -> Result<(), String> {
    let from = places.root.join(folder);
    for entry in fs::read_dir(&from).map_err(failed(&from))? {
        let name = entry.map_err(failed(&from))?.file_name();
        if LEFT_OUT.iter().any(|left_out| name == *left_out) {
            continue;
        }
        let path = folder.join(&name);
        let (source, copy) = (places.root.join(&path), places.tree.join(&path));
        if source.is_dir() {
            fs::create_dir_all(&copy).map_err(failed(&copy))?;
            copy_folder(places, &path, woven, kept)?;
            continue;
        }
        let text = match woven.iter().find(|(woven, _)| Path::new(woven) == path) {
            Some((_, text)) => text.clone().into_bytes(),
            None => fs::read(&source).map_err(failed(&source))?,
        };
        write_if_changed(&copy, &text)?;
        kept.insert(path);
    }
    Ok(())
}

/// Writes a file, unless that is what it holds.
pub fn write_if_changed(path: &Path, text: &[u8]) -> Result<(), String> {
    match fs::read(path) {
        Ok(old) if old == text => Ok(()),
        _ => fs::write(path, text).map_err(failed(path)),
    }
}

fn remove_others(tree: &Path, folder: &Path, kept: &BTreeSet<PathBuf>) -> Result<(), String> {
    let at = tree.join(folder);
    for entry in fs::read_dir(&at).map_err(failed(&at))? {
        let path = folder.join(entry.map_err(failed(&at))?.file_name());
        let copy = tree.join(&path);
        if copy.is_dir() {
            remove_others(tree, &path, kept)?;
        } else if !kept.contains(&path) && path != Path::new("Cargo.lock") {
            fs::remove_file(&copy).map_err(failed(&copy))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_follows_its_original() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        let state = root.join("target");
        let places = Places { tree: state.join("tree"), build: state.join("build"), state, root: root.clone() };
        fs::create_dir_all(root.join("core/src")).unwrap();
        fs::create_dir_all(&places.tree).unwrap();
        fs::write(root.join("core/src/a.rs"), "a").unwrap();
        fs::write(root.join("b"), "b").unwrap();
        copy(&places, &[("core/src/a.rs".into(), "woven".into())]).unwrap();
        assert_eq!(fs::read_to_string(places.tree.join("core/src/a.rs")).unwrap(), "woven");
        assert_eq!(fs::read_to_string(places.tree.join("b")).unwrap(), "b");
        assert!(!places.tree.join("target").exists());
        fs::remove_file(root.join("b")).unwrap();
        copy(&places, &[]).unwrap();
        assert_eq!(fs::read_to_string(places.tree.join("core/src/a.rs")).unwrap(), "a");
        assert!(!places.tree.join("b").exists());
    }
}
