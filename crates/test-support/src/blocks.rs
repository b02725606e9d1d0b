//! The code blocks of a Markdown page, and the comments before them that say how they are tested.

use anyhow::{Context, Result, bail, ensure};

/// A fenced code block.
#[derive(Debug, Default)]
pub struct Block {
    /// File and line.
    pub place: String,
    /// Reason why the block is not run, with its place.
    pub not_run: Option<String>,
    /// Programs that it needs besides farwire.
    pub needs: Vec<String>,
    /// File into which its text is written.
    pub file: Option<String>,
    /// The link of `farwire exec` behind which its commands are run.
    pub behind: Option<Vec<String>>,
    /// Commands that prepare the state that the page assumes.
    pub before: Vec<Typed>,
    pub text: String,
    pub commands: Vec<Typed>,
}

/// A command line of the page, shortened as the comment says.
#[derive(Debug)]
pub struct Typed {
    pub line: String,
    pub user: User,
    /// Input of the command.
    pub input: String,
    /// Expected exit code.
    pub code: i32,
    /// Expected parts of the output.
    pub shown: Vec<String>,
}

/// The user by the prompt: `$` or `#`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum User {
    Plain,
    Root,
}

/// Returns the code blocks of a page.
///
/// # Errors
/// A block that is neither run nor has a reason for that, or a comment with unknown content.
pub fn of(page: &str, text: &str) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    let mut comment = String::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if line.starts_with("<!-- test") {
            comment = line.trim_start_matches("<!-- test").to_owned();
            while !comment.ends_with("-->") {
                let (_, more) = lines.next().context("a comment that does not end")?;
                comment = format!("{comment}\n{more}");
            }
            comment.truncate(comment.len() - "-->".len());
        } else if let Some(language) = line.trim_start().strip_prefix("```") {
            let mut text = String::new();
            for (_, line) in lines.by_ref() {
                if line.trim_start().starts_with("```") {
                    break;
                }
                text += &format!("{line}\n");
            }
            let place = format!("{page}:{}", number + 1);
            let block = block(&place, language, text, &std::mem::take(&mut comment));
            blocks.push(block.context(place)?);
        }
    }
    Ok(blocks)
}

fn block(place: &str, language: &str, mut text: String, comment: &str) -> Result<Block> {
    let mut block = Block {
        place: place.to_owned(),
        ..Block::default()
    };
    let mut is_fed = false;
    for line in comment.lines().map(str::trim).filter(|l| !l.is_empty()) {
        if let Some((shown, run)) = line.split_once(" => ") {
            ensure!(text.contains(shown), "`{shown}` is not in the block");
            text = text.replace(shown, run);
            continue;
        }
        let (key, value) = line.split_once(": ").unwrap_or((line, ""));
        let words = || value.split_whitespace().map(str::to_owned).collect();
        match key {
            "not run" => block.not_run = Some(format!("{place}: {value}")),
            "needs" => block.needs = words(),
            "file" => block.file = Some(value.to_owned()),
            "behind" => block.behind = Some(words()),
            "before" => block.before.push(typed(value.to_owned(), User::Plain)),
            "before as root" => block.before.push(typed(value.to_owned(), User::Root)),
            "typed into the first" => is_fed = true,
            _ => bail!("a block's comment says `{line}`"),
        }
    }
    if language == "console" {
        block.commands = commands(&text, is_fed)?;
    } else {
        ensure!(
            block.not_run.is_some() || block.file.is_some(),
            "a block of `{language}` is neither run nor does its comment say why not"
        );
    }
    block.text = text;
    Ok(block)
}

/// Returns the commands of a terminal session, each with the output shown after it.
fn commands(text: &str, is_fed: bool) -> Result<Vec<Typed>> {
    let mut commands: Vec<Typed> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let command = line
            .strip_prefix("$ ")
            .map(|command| (command, User::Plain))
            .or(line.strip_prefix("# ").map(|command| (command, User::Root)));
        let Some((command, user)) = command else {
            // Numbers differ from run to run; the words between them do not.
            let words = line.trim_matches(|c: char| !c.is_alphabetic());
            let is_fixed = !line.contains(|c: char| c.is_ascii_digit() || c == '…');
            if let (true, false, Some(last)) = (is_fixed, words.is_empty(), commands.last_mut()) {
                last.shown.push(words.to_owned());
            }
            continue;
        };
        let mut command = command.to_owned();
        while command.ends_with('\\') {
            command.pop();
            command += lines.next().context("a command that does not end")?;
        }
        match commands.first_mut().filter(|_| is_fed) {
            Some(first) => first.input += &format!("{command}\n"),
            None => commands.push(typed(command, user)),
        }
    }
    ensure!(!commands.is_empty(), "no command in a block of `console`");
    Ok(commands)
}

fn typed(line: String, user: User) -> Typed {
    let code = line.split_once("# ends with ").and_then(|(_, code)| {
        let digits: String = code.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    Typed {
        line,
        user,
        input: String::new(),
        code: code.unwrap_or(0),
        shown: Vec::new(),
    }
}
