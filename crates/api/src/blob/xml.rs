//! XML text: what may stand between tags.

/// `text` between tags. What XML 1.0 cannot hold at all becomes U+FFFD; names of blobs use `name` instead.
pub(crate) fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\r' => out.push_str("&#13;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push_str("&#9;"),
            c if representable(c) => out.push(c),
            _ => out.push('\u{fffd}'),
        }
    }
    out
}

/// `<Name>…</Name>`, percent-encoded and marked so when XML cannot hold it, as Azure does.
pub(crate) fn name(name: &str) -> String {
    if name
        .chars()
        .all(|c| representable(c) || "\r\n\t".contains(c))
    {
        format!("<Name>{}</Name>", text(name))
    } else {
        format!(
            "<Name Encoded=\"true\">{}</Name>",
            crate::query::encode_path(name)
        )
    }
}

fn representable(c: char) -> bool {
    !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive() {
        assert_eq!(name("a<&>b"), "<Name>a&lt;&amp;&gt;b</Name>");
        assert_eq!(name("学 習\n"), "<Name>学 習&#10;</Name>");
        assert_eq!(name("a\u{1}/b"), "<Name Encoded=\"true\">a%01/b</Name>");
    }
}
