//! Nouns.
