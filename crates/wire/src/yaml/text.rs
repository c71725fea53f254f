//! Bytes of a file → text, or the name of the encoding that they seem to be in.
//!
//! T1 only UTF-8 is read, with or without a byte order mark; what is not UTF-8 is named, never guessed and read;
//! T2 a control character that YAML does not allow is refused with its place.

/// Why bytes are not the text of a YAML file. Line and column count from 1.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotText {
    pub line: u32,
    pub column: u32,
    pub message: String,
    pub hint: Option<String>,
}

/// A larger file is refused: the largest honest one has a few kilobytes.
pub(crate) const MAX_FILE_BYTES: usize = 1 << 20;

/// The text of a file, without its byte order mark (T1, T2).
pub(crate) fn decode(bytes: &[u8]) -> Result<&str, NotText> {
    let refuse = |message: String, hint: Option<String>| NotText {
        line: 1,
        column: 1,
        message,
        hint,
    };
    if bytes.len() > MAX_FILE_BYTES {
        return Err(refuse(
            format!(
                "the file has {} bytes, allowed are {MAX_FILE_BYTES}",
                bytes.len()
            ),
            None,
        ));
    }
    if let Some(encoding) = wide_encoding(bytes) {
        return Err(refuse(
            format!("the file is not UTF-8: it looks like {encoding}"),
            Some(convert(encoding)),
        ));
    }
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let (line, column) = position(&bytes[..error.valid_up_to()]);
        let encoding = narrow_encoding(bytes);
        let byte = bytes[error.valid_up_to()];
        let message =
            format!("the file is not UTF-8 (byte 0x{byte:02X} here): it looks like {encoding}");
        NotText {
            line,
            column,
            message,
            hint: Some(convert(encoding)),
        }
    })?;
    match text.char_indices().find(|(_, c)| forbidden(*c)) {
        None => Ok(text),
        Some((at, c)) => {
            let (line, column) = position(&bytes[..at]);
            let message = format!(
                "the control character U+{:04X} is not allowed in YAML",
                u32::from(c)
            );
            Err(NotText {
                line,
                column,
                message,
                hint: None,
            })
        }
    }
}

/// C0 and C1 controls that YAML 1.2 does not list as printable, except tab and line breaks.
fn forbidden(c: char) -> bool {
    matches!(c, '\0'..='\u{8}' | '\u{B}' | '\u{C}' | '\u{E}'..='\u{1F}' | '\u{7F}'..='\u{84}' | '\u{86}'..='\u{9F}' | '\u{FFFE}' | '\u{FFFF}')
}

fn convert(encoding: &str) -> String {
    let name = encoding.split(' ').next().unwrap_or(encoding);
    format!("save it as UTF-8, for example: iconv -f {name} -t UTF-8")
}

fn position(before: &[u8]) -> (u32, u32) {
    let before = String::from_utf8_lossy(before);
    let line = before.matches('\n').count() + 1;
    let column = before
        .rsplit('\n')
        .next()
        .unwrap_or_default()
        .chars()
        .count()
        + 1;
    let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    (small(line), small(column))
}

/// Encodings that are known by their byte order mark, or by zero bytes where ASCII would have none.
fn wide_encoding(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0xFF, 0xFE, 0, 0, ..] => return Some("UTF-32LE"),
        [0, 0, 0xFE, 0xFF, ..] => return Some("UTF-32BE"),
        [0xFF, 0xFE, ..] => return Some("UTF-16LE"),
        [0xFE, 0xFF, ..] => return Some("UTF-16BE"),
        _ => {}
    }
    let head = &bytes[..bytes.len().min(64)];
    let zeros = |start: usize| {
        head.iter()
            .skip(start)
            .step_by(2)
            .filter(|b| **b == 0)
            .count()
    };
    let (even, odd) = (zeros(0), zeros(1));
    let many = head.len() / 4;
    match () {
        () if head.len() < 4 => None,
        () if odd > many && even == 0 => Some("UTF-16LE"),
        () if even > many && odd == 0 => Some("UTF-16BE"),
        () => None,
    }
}

/// The likeliest one- or two-byte encoding of bytes that are not UTF-8.
fn narrow_encoding(bytes: &[u8]) -> &'static str {
    if euc_jp(bytes) {
        "EUC-JP"
    } else if shift_jis(bytes) {
        "CP932 (Shift_JIS)"
    } else {
        "CP1252 (Windows Latin)"
    }
}

/// Every high byte is half of a pair, and some pair is kana: such text would be half-width katakana in Shift_JIS.
fn euc_jp(bytes: &[u8]) -> bool {
    let mut kana = false;
    let mut i = 0;
    while i < bytes.len() {
        match (bytes[i], bytes.get(i + 1)) {
            (0..=0x7F, _) => i += 1,
            (lead @ (0x8E | 0xA1..=0xFE), Some(0xA1..=0xFE)) => {
                kana |= lead == 0xA4 || lead == 0xA5;
                i += 2;
            }
            _ => return false,
        }
    }
    kana
}

fn shift_jis(bytes: &[u8]) -> bool {
    let mut pairs = 0;
    let mut i = 0;
    while i < bytes.len() {
        match (bytes[i], bytes.get(i + 1)) {
            (0..=0x7F | 0xA1..=0xDF, _) => i += 1,
            (0x81..=0x9F | 0xE0..=0xFC, Some(0x40..=0x7E | 0x80..=0xFC)) => {
                pairs += 1;
                i += 2;
            }
            _ => return false,
        }
    }
    pairs > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(bytes: &[u8]) -> (u32, u32, String) {
        let refusal = decode(bytes).unwrap_err();
        (refusal.line, refusal.column, refusal.message)
    }

    #[test]
    fn utf8_is_read_with_and_without_a_mark() {
        assert_eq!(decode("name: 学習\r\n".as_bytes()), Ok("name: 学習\r\n"));
        assert_eq!(decode(b"\xEF\xBB\xBFname: a"), Ok("name: a"));
    }

    #[test]
    fn other_encodings_are_named() {
        let utf16 = |text: &str, bytes: fn(u16) -> [u8; 2]| {
            text.encode_utf16().flat_map(bytes).collect::<Vec<u8>>()
        };
        for (bytes, message) in [
            (
                utf16("\u{FEFF}name: a", u16::to_le_bytes),
                "the file is not UTF-8: it looks like UTF-16LE",
            ),
            (
                utf16("\u{FEFF}name: a", u16::to_be_bytes),
                "the file is not UTF-8: it looks like UTF-16BE",
            ),
            (
                utf16("name: abc", u16::to_le_bytes),
                "the file is not UTF-8: it looks like UTF-16LE",
            ),
            (
                utf16("name: abc", u16::to_be_bytes),
                "the file is not UTF-8: it looks like UTF-16BE",
            ),
        ] {
            assert_eq!(refusal(&bytes), (1, 1, message.into()));
        }
        // name: a \n description: 学習 (CP932), テスト (EUC-JP), café (CP1252)
        assert_eq!(
            refusal(b"name: a\ndescription: \x8aw\x8fK\n"),
            (
                2,
                14,
                "the file is not UTF-8 (byte 0x8A here): it looks like CP932 (Shift_JIS)".into()
            )
        );
        assert_eq!(
            refusal(b"name: \xa5\xc6\xa5\xb9\xa5\xc8\n"),
            (
                1,
                7,
                "the file is not UTF-8 (byte 0xA5 here): it looks like EUC-JP".into()
            )
        );
        assert_eq!(
            refusal(b"description: caf\xe9 noir\n"),
            (
                1,
                17,
                "the file is not UTF-8 (byte 0xE9 here): it looks like CP1252 (Windows Latin)"
                    .into()
            )
        );
        assert_eq!(
            decode(b"\x8aw\x8fK").unwrap_err().hint.unwrap(),
            "save it as UTF-8, for example: iconv -f CP932 -t UTF-8"
        );
    }

    #[test]
    fn control_characters_have_a_place() {
        assert_eq!(
            refusal(b"name: a\nx: \x07"),
            (
                2,
                4,
                "the control character U+0007 is not allowed in YAML".into()
            )
        );
    }
}
