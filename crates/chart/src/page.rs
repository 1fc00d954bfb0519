//! Places for tables in a page of Markdown: what stands between the lines `<!-- NAME -->` and
//! `<!-- end of NAME -->`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A page, as it was read.
#[derive(Clone, Debug)]
pub struct MarkedPage {
    path: PathBuf,
    text: String,
}

/// Why a table does not go into a page.
#[derive(Debug, thiserror::Error)]
pub enum MarkedPageError {
    /// The page cannot be read.
    #[error("cannot read {}", .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// The page cannot be written.
    #[error("cannot write {}", .0.display())]
    Write(PathBuf, #[source] io::Error),
    /// It has no place of this name.
    #[error("{}: the page has no lines {:?} and {:?}", .0.display(), begin(.1), end(.1))]
    NoPlace(PathBuf, String),
    /// It has more than one.
    #[error("{}: the page has {:?} twice", .0.display(), begin(.1))]
    Twice(PathBuf, String),
}

impl MarkedPage {
    /// Reads a page.
    ///
    /// # Errors
    /// It cannot be read, or is no text.
    pub fn read(path: &Path) -> Result<Self, MarkedPageError> {
        let text = fs::read_to_string(path);
        let text = text.map_err(|error| MarkedPageError::Read(path.to_owned(), error))?;
        Ok(Self { path: path.to_owned(), text })
    }

    /// The names of its places, in their order.
    pub fn names(&self) -> Vec<&str> {
        self.text.lines().filter_map(|line| line.strip_prefix(END)?.strip_suffix(" -->")).collect()
    }

    /// What stands in the place of this name.
    ///
    /// # Errors
    /// There is no such place, or more than one.
    pub fn content(&self, name: &str) -> Result<&str, MarkedPageError> {
        self.parts(name).map(|[_, content, _]| content.trim())
    }

    /// Fails where [`MarkedPage::put`] would, before hours are spent on what is to be put there.
    ///
    /// # Errors
    /// As `put`.
    pub fn check(&self, name: &str) -> Result<(), MarkedPageError> {
        self.parts(name)?;
        let tried = PageDraft::of(&self.path).and_then(|draft| fs::remove_file(draft.path));
        tried.map_err(|error| MarkedPageError::Write(self.path.clone(), error))
    }

    /// Puts `text` there, and writes the page: whoever reads meanwhile, or interrupts, finds the
    /// whole page as it was or as it is to be.
    ///
    /// # Errors
    /// There is no such place, more than one, or the page cannot be written.
    pub fn put(&self, name: &str, text: &str) -> Result<(), MarkedPageError> {
        let page = self.with(name, text)?;
        replace(&self.path, &page).map_err(|error| MarkedPageError::Write(self.path.clone(), error))
    }

    /// The page with `text` in the place of this name.
    fn with(&self, name: &str, text: &str) -> Result<String, MarkedPageError> {
        let [before, _, after] = self.parts(name)?;
        Ok(format!("{before}\n{}\n\n{after}", text.trim()))
    }

    /// What stands before, in and after the place; the marks belong to the first and the last.
    fn parts(&self, name: &str) -> Result<[&str; 3], MarkedPageError> {
        let missing = || MarkedPageError::NoPlace(self.path.clone(), name.to_owned());
        let [begin, end] = [begin(name), end(name)].map(|mark| mark + "\n");
        let content = self.text.find(&begin).ok_or_else(missing)? + begin.len();
        let after = content + self.text[content..].find(&end).ok_or_else(missing)?;
        if self.text[content..].contains(&begin) {
            return Err(MarkedPageError::Twice(self.path.clone(), name.to_owned()));
        }
        Ok([&self.text[..content], &self.text[content..after], &self.text[after..]])
    }
}

const END: &str = "<!-- end of ";

fn begin(name: &str) -> String {
    format!("<!-- {name} -->")
}

fn end(name: &str) -> String {
    format!("{END}{name} -->")
}

/// A new file beside another one.
struct PageDraft {
    path: PathBuf,
    file: File,
    /// The other one, which no link stands for.
    old: PathBuf,
}

impl PageDraft {
    fn of(path: &Path) -> io::Result<Self> {
        let old = path.canonicalize()?;
        let path = old.with_extension(format!("new.{}", std::process::id()));
        Ok(Self { file: File::create_new(&path)?, path, old })
    }
}

/// Writes beside the file, with its rights, and renames.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let PageDraft { path, mut file, old } = PageDraft::of(path)?;
    let written = fs::metadata(&old)
        .and_then(|metadata| file.set_permissions(metadata.permissions()))
        .and_then(|()| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&path, &old));
    if written.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&path);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn page(text: &str) -> MarkedPage {
        MarkedPage { path: "page.md".into(), text: text.into() }
    }

    #[test]
    fn a_table_replaces_what_is_in_its_place() {
        let before = page("# A\n<!-- lan -->\n\nold\n<!-- end of lan -->\nB\n");
        let after = page(&before.with("lan", "\nnew\n").unwrap());
        assert_eq!(after.text, "# A\n<!-- lan -->\n\nnew\n\n<!-- end of lan -->\nB\n");
        assert_eq!(after.with("lan", "new").unwrap(), after.text, "twice is as once");
        assert_eq!(after.content("lan").unwrap(), "new");
        let error = before.with("wan", "new").unwrap_err().to_string();
        let lines = "has no lines \"<!-- wan -->\" and \"<!-- end of wan -->\"";
        assert!(error.starts_with("page.md: the page ") && error.ends_with(lines), "{error}");
        let twice = page(&before.text.repeat(2));
        assert!(twice.with("lan", "").unwrap_err().to_string().ends_with("twice"));
        let unended = page(&format!("<!-- lan -->\nkept\n{}", before.text));
        assert!(unended.with("lan", "").unwrap_err().to_string().ends_with("twice"));
        assert_eq!(page(&format!("{}<!-- wan -->\n<!-- x -->\n", before.text)).names(), ["lan"]);
    }

    #[test]
    fn a_page_that_is_written_stays_the_file_that_it_was() {
        let dir = std::env::temp_dir().join(format!("weft-marked-page-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let [file, link] = ["page.md", "link.md"].map(|name| dir.join(name));
        fs::write(&file, "<!-- a -->\n<!-- end of a -->\n").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o604)).unwrap();
        std::os::unix::fs::symlink("page.md", &link).unwrap();
        let page = MarkedPage::read(&link).unwrap();
        page.check("a").unwrap();
        let nowhere = MarkedPage { path: dir.join("absent/page.md"), ..page.clone() };
        assert!(matches!(nowhere.check("a"), Err(MarkedPageError::Write(..))));
        assert!(page.check("b").is_err());
        page.put("a", "new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "<!-- a -->\n\nnew\n\n<!-- end of a -->\n");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o604);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 2, "nothing else is left");
        fs::remove_dir_all(&dir).unwrap();
    }
}
