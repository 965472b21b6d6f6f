//! Splits text into words with their positions. A `;` starts a comment.

use std::fmt;

/// Where a text is not a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// From 1.
    pub line: u32,
    /// From 1, in bytes.
    pub column: u32,
    /// The expected token.
    pub expected: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} column {}: expected {}", self.line, self.column, self.expected)
    }
}

impl std::error::Error for ParseError {}

/// A word, its position, and its meaning.
#[derive(Clone, Debug, PartialEq)]
pub struct Token<'a> {
    pub text: &'a str,
    pub line: u32,
    pub column: u32,
}

/// Characters that are words of their own.
const PUNCTUATION: &str = "%[]:{}=";

/// Splits `text`; strings stay whole with their quotes.
pub fn tokens(text: &str) -> Result<Vec<Token<'_>>, ParseError> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        split_line(line, at as u32 + 1, &mut found)?;
    }
    Ok(found)
}

fn split_line<'a>(line: &'a str, number: u32, found: &mut Vec<Token<'a>>) -> Result<(), ParseError> {
    let mut rest = line;
    loop {
        rest = rest.trim_start();
        let first = match rest.chars().next() {
            None | Some(';') => return Ok(()),
            Some(first) => first,
        };
        let column = (line.len() - rest.len()) as u32 + 1;
        let end = if first == '"' {
            let closing = string_end(rest);
            closing.ok_or(ParseError { line: number, column, expected: "a closing quote".into() })?
        } else if PUNCTUATION.contains(first) {
            first.len_utf8()
        } else {
            let ends = |c: char| c.is_whitespace() || PUNCTUATION.contains(c) || c == '"';
            rest.find(ends).unwrap_or(rest.len())
        };
        let (text, after) = rest.split_at(end);
        found.push(Token { text, line: number, column });
        rest = after;
    }
}

/// Length of the string that `text` starts with, quotes included.
fn string_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}
