//! How an input may be treated.
//!
//! One [`InputPolicy`] holds for all readers and caches: checked or not, in place or copied first, cached or never.
//! Input that is not checked is never cached.

/// How the bytes of an input may be treated: one for all of its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InputPolicy {
    /// A file that is not what it was when its table was opened is an error. Without the check
    /// whatever the files hold at the moment is taken, a mixture of versions too, and nothing of
    /// them is cached: nobody could tell of which version it is.
    pub check_identity: bool,
    /// Bytes are copied first and looked at then, never where they lie: for pages that somebody
    /// else may write to meanwhile. What was found valid then stays as it was found.
    pub copy_first: bool,
    /// What was read may be kept for later runs, in the host's cache or on a device.
    pub cached: bool,
    /// What is not in the page cache is read through it, so that later runs and other processes find
    /// it there: for inputs that fit it. Mappings of its files are kept for later runs, whatever else
    /// is, and their pages are not given back: they are the page cache's. Otherwise it is read past it
    /// (O_DIRECT), which leaves there what others use.
    pub fills_page_cache: bool,
}

impl InputPolicy {
    /// Whether anything of the input may outlive the run.
    pub fn keeps(&self) -> bool {
        self.cached && self.check_identity
    }
}

impl Default for InputPolicy {
    /// Files that nobody changes: checked, looked at in place, cached.
    fn default() -> Self {
        Self { check_identity: true, copy_first: false, cached: true, fills_page_cache: false }
    }
}
