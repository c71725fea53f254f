//! Roles: who is given one, where, and those that users define.

use crate::{identity::*, server::*};
use serde_json::{Value, json};

#[tokio::test]
async fn role_assignments_are_resources_of_a_scope() {
    let s = server();
    s.identity("me").await;
    let refused = s.role("nobody", "Reader", WS).await.is(400);
    assert_eq!(refused.code(), "PrincipalNotFound");
    let refused = s.role("me", "Raeder", WS).await.is(400);
    assert!(
        refused.message().contains("did you mean `Reader`?"),
        "{}",
        refused.message()
    );
    let made = s.role("me", "Reader", WS).await.is(201).json();
    assert_eq!(made["properties"]["scope"], WS);
    assert_eq!(made["properties"]["roleDefinitionName"], "Reader");
    s.role("me", "reader", WS).await.is(200);
    assert_eq!(s.role("me", "Owner", WS).await.is(409).code(), "Conflict");
    let compute = format!("{WS}/computes/c01");
    let at = |scope: &str| format!("{scope}/providers/Microsoft.Authorization/roleAssignments");
    let count = async |scope: &str| {
        s.get(&at(scope)).await.is(200).json()["value"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!(
        (
            count("").await,
            count(WS).await,
            count(&compute).await,
            count(OTHER).await
        ),
        (1, 1, 1, 0)
    );
    s.get(&format!("{}/me-role", at(WS))).await.is(200);
    s.get(&format!("{}/me-role", at(""))).await.is(404);
    s.ask("DELETE", &format!("{}/me-role", at("")), Value::Null)
        .await
        .is(204);
    s.ask("DELETE", &format!("{}/me-role", at(WS)), Value::Null)
        .await
        .is(200);
    assert_eq!(count("").await, 0);
    s.ask(
        "PUT",
        &format!("{}/deep", at(&compute)),
        json!({"properties": {"principalId": "me", "roleDefinitionId": "Contributor"}}),
    )
    .await
    .is(201);
    assert_eq!(count(&compute).await, 1);
}

#[tokio::test]
async fn who_may_give_roles_gives_them_only_where_it_may() {
    let s = server();
    s.identity("friend").await;
    let secret = s.identity("owner").await;
    s.role("owner", "Owner", WS).await.is(201);
    let token = s.token("owner", &secret).await;
    let body =
        json!({"properties": {"principalId": "friend", "roleDefinitionId": "Owner", "scope": "/"}})
            .to_string();
    let at = |scope: &str| format!("{scope}/providers/Microsoft.Authorization/roleAssignments/x");
    s.with(&token, "PUT", &at(""), &body).await.is(403);
    s.with(&token, "PUT", &at(OTHER), &body).await.is(403);
    s.with(&token, "PUT", "/identities/new", "").await.is(403);
    s.with(&token, "POST", "/identities/friend/rotate", "")
        .await
        .is(403);
    let made = s.with(&token, "PUT", &at(WS), &body).await.is(201).json();
    assert_eq!(
        made["properties"]["scope"], WS,
        "the path says where, not the body"
    );
    assert_eq!(made["systemData"]["createdBy"], "owner");
}

#[tokio::test]
async fn x1_a_role_is_defined_by_who_may_at_every_scope_of_it() {
    let s = server();
    let secret = s.identity("boss").await;
    s.role("boss", "Owner", WS).await.is(201);
    let boss = s.token("boss", &secret).await;
    let at = defined(WS, RUNNER);
    let scoped = |scopes: &[&str]| {
        let mut body = runner();
        body["properties"]["assignableScopes"] = json!(scopes);
        body.to_string()
    };
    // An owner of a workspace defines roles of it, and none that reach further.
    for wide in [
        &["/"][..],
        &[WS, "/subscriptions/00000000-0000-0000-0000-000000000000"],
    ] {
        let refused = s.with(&boss, "PUT", &at, &scoped(wide)).await.is(403);
        assert_eq!(refused.code(), "AuthorizationFailed");
    }
    s.with(&boss, "PUT", &at, &scoped(&[WS])).await.is(201);
    let again = s
        .with(&boss, "PUT", &at, &scoped(&[WS]))
        .await
        .is(200)
        .json();
    assert_eq!(again["properties"]["type"], "CustomRole");
    assert_eq!(s.get(&at).await.is(200).json(), again);
    // One that has become somebody else's, too, is no more theirs to change.
    s.with(TOKEN, "PUT", &at, &scoped(&[WS, "/"])).await.is(200);
    s.with(&boss, "PUT", &at, &scoped(&[WS])).await.is(403);
    s.with(&boss, "DELETE", &at, "").await.is(403);
    // Contributors define nothing.
    let secret = s.identity("hand").await;
    s.role("hand", "Contributor", "/").await.is(201);
    let hand = s.token("hand", &secret).await;
    s.with(&hand, "PUT", &at, &scoped(&[WS])).await.is(403);
    s.with(&hand, "GET", &at, "").await.is(200);
}

#[tokio::test]
async fn x2_a_defined_role_is_in_force_at_once_and_not_deleted_while_it_is_held() {
    let s = server();
    let secret = s.identity("me").await;
    let refused = s.role("me", "Runner", WS).await.is(400);
    assert!(refused.message().contains("role `Runner` does not exist"));
    let at = defined("", RUNNER);
    let mut body = runner();
    s.ask("PUT", &at, body.clone()).await.is(201);
    // by its name, and by what it is at its place
    s.role("me", "runner", WS).await.is(201);
    s.role("me", &at, WS).await.is(200);
    let me = s.token("me", &secret).await;
    let job = format!("{WS}/jobs/j");
    s.with(&me, "GET", WS, "").await.is(200);
    s.with(&me, "GET", &job, "").await.is(404);
    s.with(&me, "POST", &format!("{job}/cancel"), "")
        .await
        .is(403);
    s.with(&me, "GET", &format!("{WS}/computes"), "")
        .await
        .is(403);

    let permissions = &mut body["properties"]["permissions"][0];
    permissions["actions"] = json!([format!("{ML}/*/read")]);
    permissions["notActions"] = json!([format!("{ML}/jobs/read")]);
    s.ask("PUT", &at, body.clone()).await.is(200);
    s.with(&me, "GET", &format!("{WS}/computes"), "")
        .await
        .is(200);
    s.with(&me, "GET", &job, "").await.is(403);

    let refused = s.ask("DELETE", &at, Value::Null).await.is(400);
    assert_eq!(refused.code(), "RoleDefinitionHasAssignments");
    // what is held stays within where it may be held
    body["properties"]["assignableScopes"] = json!([OTHER]);
    let refused = s
        .ask("PUT", &defined(OTHER, RUNNER), body.clone())
        .await
        .is(400);
    assert!(
        refused.message().contains("is held by me"),
        "{}",
        refused.message()
    );
    s.ask("DELETE", "/identities/me", Value::Null).await.is(200);
    s.ask("DELETE", &at, Value::Null).await.is(200);
    s.ask("DELETE", &at, Value::Null).await.is(204);
    assert_eq!(
        s.get(&at).await.is(404).code(),
        "RoleDefinitionDoesNotExist"
    );

    s.ask("PUT", &defined(OTHER, RUNNER), body.clone())
        .await
        .is(201);
    s.identity("me").await;
    let refused = s.role("me", "Runner", WS).await.is(400);
    assert!(
        refused.message().contains("is assignable at"),
        "{}",
        refused.message()
    );
    // a definition is found where it may be held, and nowhere beside that
    s.get(&defined(WS, RUNNER)).await.is(404);
    let names = async |scope: &str| -> Vec<String> {
        let list = s
            .get(defined(scope, "").trim_end_matches('/'))
            .await
            .is(200)
            .json();
        let all = list["value"].as_array().unwrap().iter();
        all.map(|role| role["properties"]["roleName"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(WS).await.len(), 5, "azure's");
    assert_eq!(names(OTHER).await.last().unwrap(), "Runner");

    // neither a second one of a name, nor one of Azure's
    let second = "00000000-0000-4000-8000-00000000000b";
    let refused = s
        .ask("PUT", &defined(OTHER, second), body.clone())
        .await
        .is(409);
    assert_eq!(refused.code(), "RoleDefinitionWithSameNameExists");
    body["properties"]["roleName"] = "reader".into();
    s.ask("PUT", &defined(OTHER, second), body.clone())
        .await
        .is(409);
    let reader = defined("", "acdd72a7-3385-48ef-bd42-f606fba81ae7");
    let refused = s.ask("PUT", &reader, runner()).await.is(403);
    assert_eq!(refused.code(), "RoleDefinitionIsBuiltIn");
    s.ask("DELETE", &reader, Value::Null).await.is(403);
    s.ask("PUT", &defined("", "runner"), runner()).await.is(400);
}
