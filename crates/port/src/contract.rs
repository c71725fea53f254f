//! Tests that every adapter must pass: call them from the adapter's own tests.
