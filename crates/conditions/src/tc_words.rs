//! The words of a command of tc, or of the options of one qdisc.

/// Words separated by white space, and how many of them were read.
#[derive(Debug)]
pub(crate) struct Words<'a> {
    all: Vec<&'a str>,
    read: usize,
}

impl<'a> Words<'a> {
    /// Splits a text.
    pub(crate) fn of(text: &'a str) -> Self {
        Self {
            all: text.split_whitespace().collect(),
            read: 0,
        }
    }

    /// Returns the next word.
    pub(crate) fn next(&mut self) -> Option<&'a str> {
        let word = self.peek()?;
        self.read += 1;
        Some(word)
    }

    /// Returns the next word without reading it.
    pub(crate) fn peek(&self) -> Option<&'a str> {
        self.all.get(self.read).copied()
    }

    /// Returns the next word, which `option` needs; `right` is an example of it.
    pub(crate) fn need(&mut self, option: &str, right: &str) -> Result<&'a str, String> {
        self.next()
            .ok_or_else(|| format!("{option}: its value is missing: {right}"))
    }

    /// Returns the next word if it is a number, which begins with a digit.
    pub(crate) fn number(&mut self) -> Option<&'a str> {
        self.next_if(|word| word.starts_with(|c: char| c.is_ascii_digit()))
    }

    /// Returns the next word if it is a number, which may begin with a minus sign.
    pub(crate) fn signed_number(&mut self) -> Option<&'a str> {
        self.next_if(|word| word.starts_with(|c: char| c.is_ascii_digit() || c == '-'))
    }

    /// Reads the next word if it is `option` or its beginning, and returns whether it was.
    pub(crate) fn option(&mut self, option: &str) -> bool {
        self.next_if(|word| option.starts_with(word)).is_some()
    }

    /// Returns the words that were not read.
    pub(crate) fn rest(&self) -> String {
        self.all.get(self.read..).unwrap_or_default().join(" ")
    }

    fn next_if(&mut self, is_right: impl Fn(&str) -> bool) -> Option<&'a str> {
        let word = self.peek()?;
        is_right(word).then(|| {
            self.read += 1;
            word
        })
    }
}
