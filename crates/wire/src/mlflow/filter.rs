//! `filter` and `order_by` of MLflow's searches.
//!
//! F1 what cannot be read is refused with the place where reading stopped; nothing is ever ignored;
//! F2 a comparison with something that an item does not have is false; only `IS NULL` asks for that.

use crate::arm::Invalid;
use std::cmp::Ordering;

/// Longest filter, and longest sort key; clients write a line.
const MAX_CHARS: usize = 10_000;
/// Comparisons of one filter, and sort keys of one search.
const MAX_CLAUSES: usize = 100;

/// What is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// `attributes.KEY`, or `KEY` alone.
    Attribute(String),
    /// `metrics.KEY`.
    Metric(String),
    /// `params.KEY`.
    Param(String),
    /// `tags.KEY`.
    Tag(String),
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// Compared letter by letter.
    Text(String),
    /// Compared by size.
    Number(f64),
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    Compare(Operator, Item),
    Like { pattern: String, fold: bool },
    In { list: Vec<String>, not: bool },
    Null { not: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    AtMost,
    More,
    AtLeast,
}

/// A filter: all of its clauses must hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter(Vec<(Field, Test)>);

/// One sort key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// By what.
    pub field: Field,
    /// Largest first.
    pub descending: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    /// A bare word; dots are part of it.
    Word(String),
    /// In `"`, `'` or a backquote, which is the first part.
    Quoted(char, String),
    Sign(&'static str),
}

fn refuse(text: &str, rule: impl std::fmt::Display) -> Invalid {
    Invalid::validation("/filter", format!("`{}` {rule}", crate::names::shown(text)))
}

fn tokens(text: &str) -> Result<Vec<Token>, Invalid> {
    if text.chars().count() > MAX_CHARS {
        return Err(refuse(
            text,
            format!("is longer than {MAX_CHARS} characters"),
        ));
    }
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if c.is_whitespace() {
            rest = &rest[c.len_utf8()..];
        } else if matches!(c, '"' | '\'' | '`') {
            let inner = &rest[1..];
            let Some(end) = inner.find(c) else {
                return Err(refuse(text, format!("has a {c} that is never closed")));
            };
            out.push(Token::Quoted(c, inner[..end].to_owned()));
            rest = &inner[end + 1..];
        } else if let Some(sign) = ["!=", ">=", "<=", "=", ">", "<", "(", ")", ","]
            .into_iter()
            .find(|sign| rest.starts_with(sign))
        {
            out.push(Token::Sign(sign));
            rest = &rest[sign.len()..];
        } else {
            let ends = |c: char| c.is_whitespace() || "\"'`!=<>(),".contains(c);
            let end = rest.find(ends).unwrap_or(rest.len());
            if end == 0 {
                return Err(refuse(text, format!("cannot be read from `{rest}` on")));
            }
            out.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
    }
    Ok(out)
}

/// Reads tokens one after the other.
struct Reader<'a> {
    text: &'a str,
    tokens: std::vec::IntoIter<Token>,
}

impl Reader<'_> {
    fn word(&mut self, expected: &str) -> Result<(), Invalid> {
        match self.tokens.next() {
            Some(Token::Word(word)) if word.eq_ignore_ascii_case(expected) => Ok(()),
            other => Err(self.unexpected(other.as_ref(), expected)),
        }
    }

    fn unexpected(&self, token: Option<&Token>, expected: &str) -> Invalid {
        let found = match token {
            None => "its end".to_owned(),
            Some(Token::Word(t) | Token::Quoted(_, t)) => format!("`{}`", crate::names::shown(t)),
            Some(Token::Sign(sign)) => format!("`{sign}`"),
        };
        refuse(
            self.text,
            format!("has {found} where {expected} must stand"),
        )
    }

    fn field(&mut self) -> Result<Field, Invalid> {
        let (entity, key) = match self.tokens.next() {
            Some(Token::Word(word)) => match word.split_once('.') {
                // `metrics."a b"`
                Some((entity, "")) => match self.tokens.next() {
                    Some(Token::Quoted('"' | '`', key)) => (entity.to_owned(), key),
                    other => return Err(self.unexpected(other.as_ref(), "a name")),
                },
                Some((entity, key)) => (entity.to_owned(), key.to_owned()),
                None => ("attributes".to_owned(), word),
            },
            Some(Token::Quoted('`' | '"', key)) => ("attributes".to_owned(), key),
            other => return Err(self.unexpected(other.as_ref(), "a name")),
        };
        match entity.to_ascii_lowercase().as_str() {
            "attribute" | "attributes" | "attr" | "run" => Ok(Field::Attribute(key)),
            "metric" | "metrics" => Ok(Field::Metric(key)),
            "param" | "params" | "parameter" | "parameters" => Ok(Field::Param(key)),
            "tag" | "tags" => Ok(Field::Tag(key)),
            other => Err(refuse(
                self.text,
                format!(
                    "compares `{}`, there are attributes, metrics, params and tags",
                    crate::names::shown(other)
                ),
            )),
        }
    }

    fn text_value(&mut self) -> Result<String, Invalid> {
        match self.tokens.next() {
            Some(Token::Quoted('"' | '\'', text)) => Ok(text),
            other => Err(self.unexpected(other.as_ref(), "a text in quotes")),
        }
    }

    fn value(&mut self) -> Result<Item, Invalid> {
        match self.tokens.next() {
            Some(Token::Quoted('"' | '\'', text)) => Ok(Item::Text(text)),
            Some(Token::Word(word)) => match word.parse() {
                Ok(number) => Ok(Item::Number(number)),
                Err(_) => {
                    Err(self.unexpected(Some(&Token::Word(word)), "a number or a text in quotes"))
                }
            },
            other => Err(self.unexpected(other.as_ref(), "a number or a text in quotes")),
        }
    }

    fn list(&mut self) -> Result<Vec<String>, Invalid> {
        match self.tokens.next() {
            Some(Token::Sign("(")) => {}
            other => return Err(self.unexpected(other.as_ref(), "(")),
        }
        let mut list = Vec::new();
        loop {
            list.push(self.text_value()?);
            match self.tokens.next() {
                Some(Token::Sign(",")) => {}
                Some(Token::Sign(")")) => return Ok(list),
                other => return Err(self.unexpected(other.as_ref(), ", or )")),
            }
        }
    }

    fn test(&mut self) -> Result<Test, Invalid> {
        let operator = match self.tokens.next() {
            Some(Token::Sign("=")) => Operator::Equal,
            Some(Token::Sign("!=")) => Operator::NotEqual,
            Some(Token::Sign("<")) => Operator::Less,
            Some(Token::Sign("<=")) => Operator::AtMost,
            Some(Token::Sign(">")) => Operator::More,
            Some(Token::Sign(">=")) => Operator::AtLeast,
            Some(Token::Word(word)) => return self.worded(word),
            other => return Err(self.unexpected(other.as_ref(), "a comparison")),
        };
        Ok(Test::Compare(operator, self.value()?))
    }

    fn worded(&mut self, word: String) -> Result<Test, Invalid> {
        match word.to_ascii_uppercase().as_str() {
            "LIKE" => Ok(Test::Like {
                pattern: self.text_value()?,
                fold: false,
            }),
            "ILIKE" => Ok(Test::Like {
                pattern: self.text_value()?,
                fold: true,
            }),
            "IN" => Ok(Test::In {
                list: self.list()?,
                not: false,
            }),
            "NOT" => {
                self.word("IN")?;
                Ok(Test::In {
                    list: self.list()?,
                    not: true,
                })
            }
            "IS" => match self.tokens.next() {
                Some(Token::Word(w)) if w.eq_ignore_ascii_case("NULL") => {
                    Ok(Test::Null { not: false })
                }
                Some(Token::Word(w)) if w.eq_ignore_ascii_case("NOT") => {
                    self.word("NULL")?;
                    Ok(Test::Null { not: true })
                }
                other => Err(self.unexpected(other.as_ref(), "NULL")),
            },
            _ => Err(self.unexpected(Some(&Token::Word(word)), "a comparison")),
        }
    }
}

impl Filter {
    /// Reads a filter; an empty one holds for everything (F1).
    pub fn parse(text: &str) -> Result<Filter, Invalid> {
        let mut reader = Reader {
            text,
            tokens: tokens(text)?.into_iter(),
        };
        let mut clauses = Vec::new();
        if reader.tokens.as_slice().is_empty() {
            return Ok(Filter(clauses));
        }
        loop {
            if clauses.len() == MAX_CLAUSES {
                return Err(refuse(
                    text,
                    format!("has more than {MAX_CLAUSES} comparisons"),
                ));
            }
            let field = reader.field()?;
            clauses.push((field, reader.test()?));
            if reader.tokens.as_slice().is_empty() {
                return Ok(Filter(clauses));
            }
            reader.word("AND")?;
        }
    }

    /// Whether all clauses hold (F2).
    pub fn holds(&self, item: &dyn Fn(&Field) -> Option<Item>) -> bool {
        self.0
            .iter()
            .all(|(field, test)| test.holds(item(field).as_ref()))
    }

    /// Whether a metric decides.
    pub fn asks_metrics(&self) -> bool {
        self.0
            .iter()
            .any(|(field, _)| matches!(field, Field::Metric(_)))
    }

    /// The attributes that are compared, for a check of their names.
    pub fn attributes(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|(field, _)| match field {
            Field::Attribute(name) => Some(name.as_str()),
            Field::Metric(_) | Field::Param(_) | Field::Tag(_) => None,
        })
    }
}

impl Test {
    fn holds(&self, item: Option<&Item>) -> bool {
        match (self, item) {
            (Test::Null { not }, item) => item.is_some() == *not,
            (_, None) => false,
            (Test::Compare(operator, than), Some(item)) => {
                compare(item, than).map_or(*operator == Operator::NotEqual, |o| operator.holds(o))
            }
            (Test::Like { pattern, fold }, Some(item)) => {
                let (mut text, mut pattern) = (shown(item), pattern.clone());
                if *fold {
                    (text, pattern) = (text.to_lowercase(), pattern.to_lowercase());
                }
                let chars = |s: &str| s.chars().collect::<Vec<_>>();
                like(&chars(&text), &chars(&pattern))
            }
            (Test::In { list, not }, Some(item)) => list.contains(&shown(item)) != *not,
        }
    }
}

impl Operator {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Operator::Equal => order.is_eq(),
            Operator::NotEqual => order.is_ne(),
            Operator::Less => order.is_lt(),
            Operator::AtMost => order.is_le(),
            Operator::More => order.is_gt(),
            Operator::AtLeast => order.is_ge(),
        }
    }
}

fn shown(item: &Item) -> String {
    match item {
        Item::Text(text) => text.clone(),
        Item::Number(number) => number.to_string(),
    }
}

/// A number in quotes is a number where the other side is one.
fn compare(a: &Item, b: &Item) -> Option<Ordering> {
    match (a, b) {
        (Item::Text(a), Item::Text(b)) => Some(a.cmp(b)),
        (Item::Number(a), Item::Number(b)) => a.partial_cmp(b),
        (Item::Number(a), Item::Text(b)) => a.partial_cmp(&b.parse().ok()?),
        (Item::Text(a), Item::Number(b)) => a.parse::<f64>().ok()?.partial_cmp(b),
    }
}

/// `%` stands for any letters, `_` for one. Goes back to the last `%` only, so that it ends in the product of the lengths.
fn like(text: &[char], pattern: &[char]) -> bool {
    let (mut t, mut p, mut back) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some('%') => {
                back = Some((p, t));
                p += 1;
            }
            Some(&c) if c == '_' || c == text[t] => {
                t += 1;
                p += 1;
            }
            _ => match back {
                Some((star, at)) => {
                    back = Some((star, at + 1));
                    (p, t) = (star + 1, at + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == '%')
}

impl Order {
    /// Reads `FIELD [ASC|DESC]`.
    pub fn parse(text: &str) -> Result<Order, Invalid> {
        let mut reader = Reader {
            text,
            tokens: tokens(text)?.into_iter(),
        };
        let field = reader.field()?;
        let descending = match reader.tokens.next() {
            None => false,
            Some(Token::Word(word)) if word.eq_ignore_ascii_case("ASC") => false,
            Some(Token::Word(word)) if word.eq_ignore_ascii_case("DESC") => true,
            other => return Err(reader.unexpected(other.as_ref(), "ASC or DESC")),
        };
        match reader.tokens.next() {
            None => Ok(Order { field, descending }),
            other => Err(reader.unexpected(other.as_ref(), "the end")),
        }
    }

    /// Reads the keys of a search, the first one first.
    pub fn all<'t>(texts: impl Iterator<Item = &'t str>) -> Result<Vec<Order>, Invalid> {
        let all: Vec<Order> = texts.map(Order::parse).collect::<Result<_, _>>()?;
        if all.len() > MAX_CLAUSES {
            return Err(Invalid::validation(
                "/order_by",
                format!("has more than {MAX_CLAUSES} entries"),
            ));
        }
        Ok(all)
    }

    /// Compares two items; what has no value comes last, whichever way the order goes.
    pub fn compare(&self, a: Option<&Item>, b: Option<&Item>) -> Ordering {
        let nan = |i: &&Item| !matches!(i, Item::Number(n) if n.is_nan());
        match (a.filter(nan), b.filter(nan)) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(a), Some(b)) => {
                let order = compare(a, b).unwrap_or(Ordering::Equal);
                if self.descending {
                    order.reverse()
                } else {
                    order
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn holds(text: &str) -> bool {
        let item = |field: &Field| match field {
            Field::Metric(key) if key == "acc" => Some(Item::Number(0.9)),
            Field::Metric(key) if key == "val loss" => Some(Item::Number(2.0)),
            Field::Param(key) if key == "lr" => Some(Item::Text("0.1".into())),
            Field::Tag(key) if key == "team" => Some(Item::Text("Red_one".into())),
            Field::Attribute(key) if key == "status" => Some(Item::Text("FINISHED".into())),
            Field::Attribute(key) if key == "start_time" => Some(Item::Number(1000.0)),
            _ => None,
        };
        Filter::parse(text).unwrap().holds(&item)
    }

    #[test]
    fn filters_say_what_they_say() {
        for yes in [
            "",
            "metrics.acc > 0.8",
            "metrics.acc >= 0.9 and params.lr = '0.1'",
            "metric.`val loss` = 2",
            "metrics.\"val loss\" != 3",
            "params.lr != \"0.2\"",
            "status = 'FINISHED' AND attributes.start_time < 2000",
            "tags.team LIKE 'Red%'",
            "tags.team ILIKE '%ONE'",
            "tags.team LIKE 'R_d%one'",
            "tags.team IN ('x', 'Red_one')",
            "tags.team NOT IN ('x')",
            "tags.other IS NULL and tags.team is not null",
        ] {
            assert!(holds(yes), "{yes}");
        }
        for no in [
            "metrics.acc > 0.9",
            "metrics.none > 0",
            "metrics.none != 0",
            "tags.team LIKE 'red%'",
            "tags.team LIKE 'Red'",
            "tags.other LIKE '%'",
            "params.lr IN ('0.2')",
        ] {
            assert!(!holds(no), "{no}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for (text, says) in [
            (
                "metrics.acc >",
                "its end where a number or a text in quotes must stand",
            ),
            ("metrics.acc ~ 3", "`~` where a comparison must stand"),
            ("acc = 'x", "never closed"),
            ("things.a = 1", "compares `things`"),
            ("a = 1 or b = 2", "`or` where AND must stand"),
            ("tags.a IN ()", "`)` where a text in quotes must stand"),
            (
                "tags.a = b",
                "`b` where a number or a text in quotes must stand",
            ),
        ] {
            let refused = Filter::parse(text).unwrap_err().to_string();
            assert!(refused.contains(says), "{text}: {refused}");
        }
        assert!(Order::parse("metrics.acc upwards").is_err());
    }

    #[test]
    fn an_order_puts_what_is_missing_last() {
        let order = Order::parse("metrics.acc DESC").unwrap();
        let (one, two) = (Item::Number(1.0), Item::Number(2.0));
        assert!(order.compare(Some(&two), Some(&one)).is_lt());
        assert!(order.compare(None, Some(&one)).is_gt());
        let up = Order {
            descending: false,
            ..order
        };
        assert!(up.compare(Some(&one), Some(&two)).is_lt());
        assert!(
            up.compare(Some(&Item::Number(f64::NAN)), Some(&two))
                .is_gt()
        );
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in "\\PC{0,60}") {
            let _either = Filter::parse(&text);
            let _either = Order::parse(&text);
        }
        #[test]
        fn a_text_is_like_itself(text in "[a-c%_]{0,12}") {
            let chars: Vec<char> = text.chars().collect();
            prop_assert!(like(&chars, &chars));
            let any: Vec<char> = std::iter::once('%').chain(chars.clone()).chain(std::iter::once('%')).collect();
            prop_assert!(like(&chars, &any));
        }
    }
}
