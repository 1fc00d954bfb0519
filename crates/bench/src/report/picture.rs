//! Figures as PNG, taken by a headless browser: it draws them as a reader sees them, and what draws
//! SVG as well in this program would be ten times as much as the rest of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use weft_chart::Drawing;

use crate::lab::is_installed;
use crate::process::Spec;

/// Browsers that can be had without a screen.
const BROWSERS: [&str; 4] =
    ["chromium-headless-shell", "chromium", "google-chrome", "google-chrome-stable"];
/// Nothing of a browser's that is not drawing; the light look, on a screen of two dots a point.
const OPTIONS: &str = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
                       --disable-background-networking --disable-component-update \
                       --disable-extensions --disable-sync --no-first-run --hide-scrollbars \
                       --force-device-scale-factor=2 --blink-settings=preferredColorScheme=1";
/// How long a picture may take.
const LIMIT: Duration = Duration::from_secs(60);

/// A browser, and a directory for what it leaves. The directory goes away with it.
pub struct Browser {
    browser: &'static str,
    dir: PathBuf,
}

impl Browser {
    /// A browser of this machine's.
    ///
    /// # Errors
    /// There is none, or no place for files.
    pub fn find() -> Result<Self> {
        let found = BROWSERS.into_iter().find(|browser| is_installed(browser));
        let browser = found.with_context(|| {
            format!("PNG needs a browser, and none of {} is installed", BROWSERS.join(", "))
        })?;
        let dir = std::env::temp_dir().join(format!("weft-report-png-{}", std::process::id()));
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(Self { browser, dir })
    }

    /// Takes a picture of `drawing` into the file `png`.
    ///
    /// # Errors
    /// The browser fails, or takes none.
    pub fn take(&self, drawing: &Drawing, png: &Path) -> Result<()> {
        let svg = self.dir.join("figure.svg");
        fs::write(&svg, &drawing.svg).with_context(|| format!("cannot write {}", svg.display()))?;
        let png = std::path::absolute(png).context("where the picture goes")?;
        let [width, height] = drawing.size.map(f64::ceil);
        let spec = Spec::new(self.browser).args(OPTIONS);
        let spec = spec.arg(&format!("--user-data-dir={}", self.dir.join("profile").display()));
        let spec = spec.arg(&format!("--window-size={width},{height}"));
        let spec = spec.arg(&format!("--screenshot={}", png.display()));
        let said = spec.arg(&svg.display().to_string()).start()?.wait(Instant::now() + LIMIT)?;
        ensure!(png.is_file(), "{} took no picture\n{}", self.browser, said.stderr);
        Ok(())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser's own processes may still write to its profile.
        let _ = fs::remove_dir_all(&self.dir);
    }
}
