//! The smallest or largest text of each group.

/// One text a group at most, and what all of them take.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Texts {
    kept: Vec<Option<Box<str>>>,
    text_bytes: u64,
}

impl Texts {
    /// `groups` groups without a text.
    pub fn new(groups: usize) -> Self {
        Self { kept: vec![None; groups], text_bytes: 0 }
    }

    /// Number of groups.
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// The text of a group, if it has seen one.
    pub fn get(&self, group: usize) -> Option<&str> {
        self.kept[group].as_deref()
    }

    /// Appends or removes groups at the end.
    pub(crate) fn resize(&mut self, groups: usize) {
        let removed = self.kept.get(groups..).unwrap_or_default();
        let bytes: u64 = removed.iter().flatten().map(|text| text.len() as u64).sum();
        self.text_bytes -= bytes;
        self.kept.resize(groups, None);
    }

    /// Keeps the smaller (or the larger) of a group's text and another.
    pub fn offer(&mut self, group: usize, text: &str, smaller: bool) {
        let kept = &mut self.kept[group];
        let replace = match kept.as_deref() {
            None => true,
            Some(kept) if smaller => text < kept,
            Some(kept) => text > kept,
        };
        if replace {
            self.text_bytes += text.len() as u64;
            self.text_bytes -= kept.as_ref().map_or(0, |old| old.len() as u64);
            *kept = Some(text.into());
        }
    }

    /// Host bytes; known without looking at the texts.
    pub(crate) fn bytes(&self) -> u64 {
        self.kept.len() as u64 * 16 + self.text_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_texts_that_are_kept() {
        let mut texts = Texts::new(2);
        for (group, text) in [(0, "longest"), (1, "bb"), (0, "a"), (1, "cccc"), (0, "abc")] {
            texts.offer(group, text, true);
        }
        assert_eq!((texts.get(0), texts.get(1)), (Some("a"), Some("bb")));
        assert_eq!(texts.bytes(), 2 * 16 + 3);
        texts.resize(3);
        texts.offer(2, "zz", false);
        texts.offer(2, "zzz", false);
        texts.offer(2, "", false);
        assert_eq!((texts.get(2), texts.bytes()), (Some("zzz"), 3 * 16 + 6));
        texts.resize(0);
        assert_eq!((texts.len(), texts.bytes()), (0, 0));
    }
}
