//! `--query`: JMESPath as `az` has it.
//!
//! The interpreter keeps objects in sorted maps, so `{Name:name,Size:size}` would lose its order; it is put back here from
//! the orders seen in the expression and in the data.

use crate::failure::Failure;
use jmespath::{Variable, ast::Ast};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The orders of keys that are known, by the sorted keys.
type Orders = BTreeMap<Vec<String>, Vec<String>>;

/// Evaluates `query` on `value`.
pub fn search(query: &str, value: &Value) -> Result<Value, Failure> {
    let expression = jmespath::compile(query)
        .map_err(|error| Failure::wrong(format!("--query {query:?}: {}", first_line(&error))))?;
    let data = Variable::from_serializable(value).map_err(|error| {
        Failure::failed(format!(
            "--query: the result cannot be queried: {}",
            first_line(&error)
        ))
    })?;
    let found = expression
        .search(data)
        .map_err(|error| Failure::wrong(format!("--query {query:?}: {}", first_line(&error))))?;
    let mut orders = Orders::new();
    orders_of_value(value, &mut orders);
    orders_of_ast(expression.as_ast(), &mut orders);
    let mut result = serde_json::to_value(&*found).map_err(|error| {
        Failure::wrong(format!(
            "--query {query:?}: the result is not JSON: {error}"
        ))
    })?;
    reorder(&mut result, &orders);
    Ok(result)
}

fn first_line(error: &jmespath::JmespathError) -> String {
    error
        .to_string()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

fn learn(keys: Vec<String>, orders: &mut Orders) {
    let mut sorted = keys.clone();
    sorted.sort();
    orders.insert(sorted, keys);
}

fn orders_of_value(value: &Value, orders: &mut Orders) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| orders_of_value(item, orders)),
        Value::Object(fields) => {
            learn(fields.keys().cloned().collect(), orders);
            fields
                .values()
                .for_each(|field| orders_of_value(field, orders));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn orders_of_ast(ast: &Ast, orders: &mut Orders) {
    match ast {
        Ast::MultiHash { elements, .. } => {
            learn(
                elements.iter().map(|pair| pair.key.clone()).collect(),
                orders,
            );
            elements
                .iter()
                .for_each(|pair| orders_of_ast(&pair.value, orders));
        }
        Ast::Comparison { lhs, rhs, .. }
        | Ast::And { lhs, rhs, .. }
        | Ast::Or { lhs, rhs, .. }
        | Ast::Projection { lhs, rhs, .. }
        | Ast::Subexpr { lhs, rhs, .. } => {
            orders_of_ast(lhs, orders);
            orders_of_ast(rhs, orders);
        }
        Ast::Condition {
            predicate, then, ..
        } => {
            orders_of_ast(predicate, orders);
            orders_of_ast(then, orders);
        }
        Ast::Expref { ast: node, .. }
        | Ast::Flatten { node, .. }
        | Ast::Not { node, .. }
        | Ast::ObjectValues { node, .. } => {
            orders_of_ast(node, orders);
        }
        Ast::Function { args: nodes, .. }
        | Ast::MultiList {
            elements: nodes, ..
        } => {
            nodes.iter().for_each(|node| orders_of_ast(node, orders));
        }
        Ast::Field { .. }
        | Ast::Identity { .. }
        | Ast::Index { .. }
        | Ast::Literal { .. }
        | Ast::Slice { .. } => {}
    }
}

fn reorder(value: &mut Value, orders: &Orders) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| reorder(item, orders)),
        Value::Object(fields) => {
            let sorted: Vec<String> = fields.keys().cloned().collect();
            let mut old = std::mem::take(fields);
            let order = orders.get(&sorted).unwrap_or(&sorted);
            let mut new = Map::new();
            for key in order {
                if let Some(mut field) = old.remove(key) {
                    reorder(&mut field, orders);
                    new.insert(key.clone(), field);
                }
            }
            *fields = new;
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(query: &str, value: &Value) -> String {
        search(query, value).unwrap().to_string()
    }

    #[test]
    fn the_order_of_a_chosen_object_is_kept() {
        let list = json!([{"size": "DS3", "name": "b"}, {"size": "DS2", "name": "a"}]);
        assert_eq!(
            text("[].{Name:name,Size:size}", &list),
            r#"[{"Name":"b","Size":"DS3"},{"Name":"a","Size":"DS2"}]"#
        );
        assert_eq!(
            text("sort_by(@, &name)[0]", &list),
            r#"{"size":"DS2","name":"a"}"#
        );
    }

    #[test]
    fn filters_lengths_and_integers_are_exact() {
        let list = json!([{"n": 9_007_199_254_740_993_u64}, {"n": 2}]);
        assert_eq!(text("[?n > `5`].n | [0]", &list), "9007199254740993");
        assert_eq!(text("length(@)", &list), "2");
        assert_eq!(text("[].missing", &list), "[]");
    }

    #[test]
    fn a_wrong_expression_is_a_wrong_command() {
        let failure = search("[?", &json!([])).unwrap_err();
        assert_eq!(failure.status, crate::failure::Status::Wrong);
        assert!(
            failure.message.starts_with("--query \"[?\": "),
            "{}",
            failure.message
        );
    }
}
