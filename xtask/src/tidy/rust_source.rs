//! A Rust source without its comments and literals, so that a rule about code is not broken by a text.

/// The same lines, with comments and the inside of string and character literals blanked out.
pub fn code_only(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut code = String::with_capacity(source.len());
    let mut at = 0;
    while at < chars.len() {
        let end = skipped(&chars, at);
        if end > at {
            // Lines keep their numbers.
            code.extend(chars[at..end].iter().map(|c| blank(*c)));
            at = end;
        } else {
            code.push(chars[at]);
            at += 1;
        }
    }
    code
}

fn blank(c: char) -> char {
    if c == '\n' { '\n' } else { ' ' }
}

/// The end of the comment or literal that starts at `at`; `at` itself when none does.
fn skipped(chars: &[char], at: usize) -> usize {
    let next = chars.get(at + 1).copied();
    match chars[at] {
        '/' if next == Some('/') => line_end(chars, at),
        '/' if next == Some('*') => block_end(chars, at),
        '"' => string_end(chars, at + 1),
        '\'' => character_end(chars, at),
        'r' if !in_word(chars, at) => raw_end(chars, at + 1).unwrap_or(at),
        'b' | 'c' if !in_word(chars, at) && next == Some('r') => {
            raw_end(chars, at + 2).unwrap_or(at)
        }
        _ => at,
    }
}

fn in_word(chars: &[char], at: usize) -> bool {
    at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_')
}

fn line_end(chars: &[char], at: usize) -> usize {
    let length = chars[at..].iter().position(|c| *c == '\n');
    length.map_or(chars.len(), |length| at + length)
}

/// Block comments nest.
fn block_end(chars: &[char], mut at: usize) -> usize {
    let mut depth = 0_u32;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                at += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    chars.len()
}

/// From the first character inside to behind the closing quote.
fn string_end(chars: &[char], mut at: usize) -> usize {
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// `#"…"#` with any number of signs, when one starts here.
fn raw_end(chars: &[char], at: usize) -> Option<usize> {
    let signs = chars[at..].iter().take_while(|c| **c == '#').count();
    if chars.get(at + signs) != Some(&'"') {
        return None;
    }
    let mut from = at + signs + 1;
    while from < chars.len() {
        let closes = chars[from] == '"'
            && chars[from + 1..]
                .iter()
                .take(signs)
                .filter(|c| **c == '#')
                .count()
                == signs;
        if closes {
            return Some(from + 1 + signs);
        }
        from += 1;
    }
    Some(chars.len())
}

/// A character literal; a lifetime is left as it is.
fn character_end(chars: &[char], at: usize) -> usize {
    match (chars.get(at + 1), chars.get(at + 2)) {
        (Some('\\'), _) => {
            let from = (at + 3).min(chars.len());
            let length = chars[from..].iter().position(|c| *c == '\'');
            length.map_or(chars.len(), |length| from + length + 1)
        }
        (Some(_), Some('\'')) => at + 3,
        _ => at,
    }
}

/// Whether a word stands in the code by itself.
pub fn has_word(line: &str, word: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
    line.match_indices(word).any(|(at, _)| {
        edge(line[..at].chars().next_back()) && edge(line[at + word.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blank() {
        let kept = |source: &str| {
            code_only(source)
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(kept("a // b\nc"), "a c");
        assert_eq!(kept("a /* b /* c */ d */ e"), "a e");
        assert_eq!(kept(r#"f("unsafe \" //", x)"#), "f( , x)");
        assert_eq!(kept("f(r#\"a \" b\"#, y)"), "f( , y)");
        assert_eq!(kept("f(br\"a\", b\"c\", z)"), "f( , b , z)");
        assert_eq!(kept(r"let a = '\''; b"), "let a = ; b");
        assert_eq!(
            kept("let a: &'static str = '\"' ; b"),
            "let a: &'static str = ; b"
        );
        assert_eq!(kept("for_r\"x\""), "for_r");
    }

    #[test]
    fn lines_keep_their_numbers() {
        let source = "/* 1\n 2 */\n\"3\n4\"\nfive";
        assert_eq!(code_only(source).lines().nth(4), Some("five"));
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("unsafe { }", "unsafe"));
        assert!(!has_word("unsafe_code", "unsafe"));
    }
}
