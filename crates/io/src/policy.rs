//! How an input may be treated.
//!
//! One [`InputPolicy`] holds for all readers and caches: checked or not, in place or copied first, cached or never.
//! Input that is not checked is never cached.

/// How the bytes of an input may be treated; one policy for all of its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InputPolicy {
    /// Whether a file that changed since its table was opened is an error. Without this check the
    /// current contents are read, possibly a mixture of versions, and nothing of them is cached,
    /// because the version is unknown.
    pub check_identity: bool,
    /// Whether bytes are copied before they are examined, never used in place: for pages that may
    /// be written concurrently. What was validated then stays valid.
    pub copy_first: bool,
    /// Whether data may be cached for later runs, on the host or on a device.
    pub cached: bool,
    /// Whether data that is not in the page cache is read through it, so that later runs and other
    /// processes find it there: for inputs that fit in it. Mappings of these files are kept for later
    /// runs in any case, and their pages are not released, because they belong to the page cache.
    /// Otherwise data is read past it (O_DIRECT), which leaves the page cache to others.
    pub fills_page_cache: bool,
}

impl InputPolicy {
    /// Whether anything of the input may outlive the run.
    pub fn keeps(&self) -> bool {
        self.cached && self.check_identity
    }
}

impl Default for InputPolicy {
    /// Files that do not change: checked, used in place, cached.
    fn default() -> Self {
        Self { check_identity: true, copy_first: false, cached: true, fills_page_cache: false }
    }
}
