//! The commands of a shell script or of a file for `tc -batch`.
//!
//! Every command counts once, in the order of the file, whatever `if` or loop it is in. Variables have the values that
//! the script itself gives them. Values that the shell would compute are not known here.

use std::collections::HashMap;
use std::iter::Peekable;
use std::str::Chars;

/// A command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ScriptCommand {
    /// The line on which it begins, from 1.
    pub(super) line: usize,
    /// Its words.
    pub(super) words: Vec<String>,
    /// The reason why a part of its words is not known.
    pub(super) unknown: Option<String>,
}

/// Words that may come before a command.
const BEFORE_COMMANDS: [&str; 11] = [
    "{", "!", "if", "then", "elif", "else", "while", "until", "do", "time", "exec",
];
/// Words that may come before an assignment.
const BEFORE_ASSIGNMENTS: [&str; 4] = ["export", "local", "readonly", "declare"];

/// Returns the commands of a script, without its assignments.
pub(super) fn commands(script: &str) -> Vec<ScriptCommand> {
    let mut variables = HashMap::new();
    let mut commands = Vec::new();
    for (line, text) in logical_lines(script) {
        let mut splitter = Splitter {
            variables: &mut variables,
            commands: Vec::new(),
            command: ScriptCommand::default(),
            word: None,
            is_file: false,
        };
        splitter.read(&mut text.chars().peekable());
        splitter.end_command();
        let on_line = splitter.commands.into_iter();
        commands.extend(on_line.map(|command| ScriptCommand { line, ..command }));
    }
    commands
}

/// Returns the lines with their numbers. A line that ends with a backslash continues on the next one.
fn logical_lines(script: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut continues = false;
    for (number, line) in (1..).zip(script.lines()) {
        let (text, goes_on) = match line.strip_suffix('\\') {
            Some(text) => (text, true),
            None => (line, false),
        };
        match lines.last_mut().filter(|_| continues) {
            Some((_, before)) => {
                before.push(' ');
                before.push_str(text);
            }
            None => lines.push((number, text.to_owned())),
        }
        continues = goes_on;
    }
    lines
}

/// Returns the name and the value of an assignment.
fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    is_name(name).then_some((name, value))
}

fn is_name(text: &str) -> bool {
    let is_right = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !text.is_empty()
        && text.chars().all(is_right)
        && !text.starts_with(|c: char| c.is_ascii_digit())
}

/// Splits a line into commands of words, with the values of variables.
struct Splitter<'v> {
    variables: &'v mut HashMap<String, String>,
    /// The commands so far.
    commands: Vec<ScriptCommand>,
    /// The command that is being read.
    command: ScriptCommand,
    /// The word that is being read.
    word: Option<String>,
    /// Whether this word is the file of a redirection.
    is_file: bool,
}

impl Splitter<'_> {
    fn read(&mut self, letters: &mut Peekable<Chars<'_>>) {
        while let Some(letter) = letters.next() {
            match letter {
                '#' if self.word.is_none() => return,
                '\'' => self.quoted(letters),
                '"' => self.double_quoted(letters),
                '\\' => {
                    let next = letters.next();
                    self.push(next.unwrap_or('\\'));
                }
                '$' => {
                    let value = self.value(letters);
                    self.push_split(&value);
                }
                ';' | '&' | '|' | '(' | ')' => self.end_command(),
                '<' | '>' => self.redirect(letters),
                letter if letter.is_whitespace() => self.end_word(),
                '`' => self.is_unknown("a command between backquotes is not run".to_owned()),
                letter => self.push(letter),
            }
        }
    }

    fn push(&mut self, letter: char) {
        self.word.get_or_insert_default().push(letter);
    }

    /// Adds an unquoted value, which may be several words.
    fn push_split(&mut self, value: &str) {
        for letter in value.chars() {
            match letter.is_whitespace() {
                true => self.end_word(),
                false => self.push(letter),
            }
        }
    }

    fn is_unknown(&mut self, cause: String) {
        self.word.get_or_insert_default();
        self.command.unknown.get_or_insert(cause);
    }

    fn end_word(&mut self) {
        // White space between a redirection and its file ends no word.
        if let Some(word) = self.word.take()
            && !std::mem::take(&mut self.is_file)
        {
            self.command.words.push(word);
        }
    }

    /// Ends a command. If it only assigns values to variables, they are kept.
    fn end_command(&mut self) {
        self.end_word();
        self.is_file = false;
        let ScriptCommand { words, unknown, .. } = std::mem::take(&mut self.command);
        let words = words.into_iter();
        let mut words = words
            .skip_while(|word| BEFORE_COMMANDS.contains(&word.as_str()))
            .peekable();
        while let Some(word) = words.peek() {
            match assignment(word) {
                Some((name, _)) if unknown.is_some() => drop(self.variables.remove(name)),
                Some((name, value)) => {
                    self.variables.insert(name.to_owned(), value.to_owned());
                }
                None if BEFORE_ASSIGNMENTS.contains(&word.as_str()) => {}
                None => break,
            }
            words.next();
        }
        let words: Vec<String> = words.collect();
        if !words.is_empty() {
            self.commands.push(ScriptCommand {
                line: 0,
                words,
                unknown,
            });
        }
    }

    /// Leaves out the number before a redirection, and the file behind it.
    fn redirect(&mut self, letters: &mut Peekable<Chars<'_>>) {
        let is_number = |word: &String| word.chars().all(|c| c.is_ascii_digit());
        if self.word.as_ref().is_some_and(is_number) {
            self.word = None;
        }
        self.end_word();
        while letters.next_if(|letter| "<>&".contains(*letter)).is_some() {}
        self.is_file = true;
    }

    fn quoted(&mut self, letters: &mut Peekable<Chars<'_>>) {
        self.word.get_or_insert_default();
        for letter in letters.by_ref() {
            match letter {
                '\'' => return,
                letter => self.push(letter),
            }
        }
        self.is_unknown(NOT_CLOSED.to_owned());
    }

    fn double_quoted(&mut self, letters: &mut Peekable<Chars<'_>>) {
        self.word.get_or_insert_default();
        while let Some(letter) = letters.next() {
            match letter {
                '"' => return,
                '\\' => {
                    let next = letters.next_if(|next| "\"\\$`".contains(*next));
                    self.push(next.unwrap_or('\\'));
                }
                '$' => {
                    let value = self.value(letters);
                    value.chars().for_each(|letter| self.push(letter));
                }
                '`' => self.is_unknown("a command between backquotes is not run".to_owned()),
                letter => self.push(letter),
            }
        }
        self.is_unknown(NOT_CLOSED.to_owned());
    }

    /// Returns the value of the variable whose name follows; `${NAME:-VALUE}` gives the value of one that has none.
    fn value(&mut self, letters: &mut Peekable<Chars<'_>>) -> String {
        let name = name_of_variable(letters);
        let (own, instead) = match name.split_once(":-").or_else(|| name.split_once(":=")) {
            Some((own, instead)) => (own, Some(instead)),
            None => (name.as_str(), None),
        };
        let known = self.variables.get(own).map(String::as_str);
        match known.or(instead).map(str::to_owned) {
            Some(value) => value,
            None => {
                self.is_unknown(format!(
                    "the value of `${name}` is not known here: write it out"
                ));
                String::new()
            }
        }
    }
}

const NOT_CLOSED: &str = "a quotation mark is not closed on its line";

/// Reads the name behind a `$`, with or without braces.
fn name_of_variable(letters: &mut Peekable<Chars<'_>>) -> String {
    let mut name = String::new();
    if letters.next_if_eq(&'{').is_some() {
        name.extend(letters.by_ref().take_while(|letter| *letter != '}'));
        return name;
    }
    while let Some(letter) = letters.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
        name.push(letter);
        // `$10` is the first argument and a 0.
        if name.starts_with(|c: char| c.is_ascii_digit()) {
            break;
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(script: &str) -> Vec<(usize, String)> {
        let one = |command: ScriptCommand| {
            let words = command.words.join("|");
            (
                command.line,
                command.unknown.map_or(words, |cause| format!("? {cause}")),
            )
        };
        commands(script).into_iter().map(one).collect()
    }

    fn words(line: &str) -> String {
        let all = read(line).into_iter().map(|(_, words)| words);
        all.collect::<Vec<_>>().join(" ; ")
    }

    #[test]
    fn words_are_split_as_by_a_shell() {
        for (line, split) in [
            ("tc qdisc  add", "tc|qdisc|add"),
            ("tc 'a b' \"c d\" e\\ f", "tc|a b|c d|e f"),
            ("tc \"a\\\"b\" 'c\"d'", "tc|a\"b|c\"d"),
            ("tc a # b", "tc|a"),
            ("tc a#b", "tc|a#b"),
            ("a; b && c || d | e & f", "a ; b ; c ; d ; e ; f"),
            ("(a; b)", "a ; b"),
            ("if a; then b; else c; fi", "a ; b ; c ; fi"),
            ("tc a 2>/dev/null >> b 2>&1 c", "tc|a|c"),
            ("tc a12>b c", "tc|a12|c"),
            ("tc \"\" b", "tc||b"),
            ("", ""),
        ] {
            assert_eq!(words(line), split, "{line}");
        }
    }

    #[test]
    fn a_line_continues_behind_a_backslash() {
        let script = "a \\\n  b \\\n c\nd";
        assert_eq!(read(script), [(1, "a|b|c".to_owned()), (4, "d".to_owned())]);
    }

    #[test]
    fn variables_have_the_values_that_the_script_gives_them() {
        for (script, split) in [
            ("DEV=eth0\ntc dev $DEV", "tc|dev|eth0"),
            ("A=1 B='2 3'\ntc ${A}x \"$B\" $B", "tc|1x|2 3|2|3"),
            ("export TC=/sbin/tc\n$TC qdisc", "/sbin/tc|qdisc"),
            ("A=${1:-eth0}\ntc $A", "tc|eth0"),
            ("A=b tc c", "tc|c"),
            ("tc '$A' \\$A", "tc|$A|$A"),
        ] {
            assert_eq!(words(script), split, "{script}");
        }
    }

    #[test]
    fn what_only_the_shell_knows_is_an_error_of_its_line() {
        for (script, cause) in [
            (
                "tc $1",
                "? the value of `$1` is not known here: write it out",
            ),
            (
                "A=$(date)\ntc $A",
                "? the value of `$A` is not known here: write it out",
            ),
            ("tc `a`", "? a command between backquotes is not run"),
            ("tc 'a", "? a quotation mark is not closed on its line"),
            (
                "tc ${a",
                "? the value of `$a` is not known here: write it out",
            ),
            (
                "A=1\nA=$2; tc $A",
                "? the value of `$A` is not known here: write it out",
            ),
            ("A=$1; tc a", "tc|a"),
        ] {
            let (_, words) = read(script).pop().unwrap();
            assert_eq!(words, cause, "{script}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_splitter_panic(text in "[\\PC\n]*", near in "[a$'\"{}#;&|<>()\\\\=` \n0-9]{0,30}") {
            for script in [text, near] {
                for command in commands(&script) {
                    prop_assert!(command.line > 0);
                }
            }
        }
    }
}
