//! The route table (R1). Everything else about a route follows from its row.

use axum::http::Method;

use crate::{
    agents,
    arm::{
        assets, batch, computes, datastores, invoke, job_list, jobs, location, metrics, online,
        operations, templates, workspaces,
    },
    blob, identity, kube,
    plane::{
        data, history,
        mlflow::{artifacts, experiments, logged, models, plugin, runs, search, versions},
        open,
    },
    route::{
        Guard::{self, Agent, Blob, Kube, Open, Own, Run, Signed, Token},
        Handler::{self, Ask, Block, Kept, Now, Stream, Switch},
        Route,
    },
};

/// A workspace and what follows it.
macro_rules! ws {
    ($rest:literal) => {
        concat!(
            "/subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.MachineLearningServices/workspaces/{w}",
            $rest
        )
    };
}
/// A workspace of a data plane.
macro_rules! plane {
    ($base:literal, $rest:literal) => {
        concat!(
            $base,
            "/subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.MachineLearningServices/workspaces/{w}",
            $rest
        )
    };
}
/// A location and what follows it.
macro_rules! place {
    ($rest:literal) => {
        concat!(
            "/subscriptions/{s}/providers/Microsoft.MachineLearningServices/locations/{l}",
            $rest
        )
    };
}
/// Azure's name of an action on a part of a workspace.
macro_rules! act {
    ($rest:literal) => {
        concat!("Microsoft.MachineLearningServices/workspaces", $rest)
    };
}

/// The role assignments at a scope, or one of them.
macro_rules! roles {
    ($scope:literal $(, $one:literal)?) => {
        concat!($scope, "/providers/Microsoft.Authorization/roleAssignments" $(, $one)?)
    };
}
/// The definitions of roles at a scope, or one of them.
macro_rules! defined {
    ($scope:literal $(, $one:literal)?) => {
        concat!($scope, "/providers/Microsoft.Authorization/roleDefinitions" $(, $one)?)
    };
}
/// A path of MLflow's contract.
macro_rules! flow {
    ($rest:literal) => {
        concat!(
            "/mlflow/{v}/subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.MachineLearningServices/workspaces/{w}/api/2.0",
            $rest
        )
    };
}

/// A path of the Kubernetes part.
macro_rules! kube {
    ($rest:literal) => {
        concat!("/kube", $rest)
    };
}
/// Azure's name of an action on instance types.
macro_rules! types {
    ($rest:literal) => {
        concat!("amlarc.azureml.com/instancetypes", $rest)
    };
}

const fn row(
    method: Method,
    template: &'static str,
    action: &'static str,
    guard: Guard,
    handler: Handler,
) -> Route {
    Route {
        method,
        template,
        action,
        guard,
        handler,
    }
}

const GET: Method = Method::GET;
const PUT: Method = Method::PUT;
const POST: Method = Method::POST;
const PATCH: Method = Method::PATCH;
const DELETE: Method = Method::DELETE;
const HEAD: Method = Method::HEAD;

/// Every route of the server.
#[rustfmt::skip] // one row, one line: the table is read by its columns
pub const ROUTES: &[Route] = &[
    // open: where things are, nothing of what there is
    row(GET, "/health", "zaffre/health/read", Open, Now(open::health)),
    row(GET, "/metadata/endpoints", "zaffre/metadata/read", Open, Now(open::metadata)),
    row(GET, "/discovery", "zaffre/discovery/read", Open, Now(open::discovery)),

    // signing in; a tenant is a word of the client's
    row(GET, "/{tenant}/.well-known/openid-configuration", "zaffre/identity/read", Open, Now(identity::configuration)),
    row(GET, "/{tenant}/v2.0/.well-known/openid-configuration", "zaffre/identity/read", Open, Now(identity::configuration)),
    row(GET, "/{tenant}/discovery/v2.0/keys", "zaffre/identity/read", Open, Now(identity::jwks)),
    row(POST, "/{tenant}/oauth2/token", "zaffre/identity/token/action", Own, Ask(|a, c| Box::pin(identity::token(a, c)))),
    row(POST, "/{tenant}/oauth2/v2.0/token", "zaffre/identity/token/action", Own, Ask(|a, c| Box::pin(identity::token(a, c)))),
    row(POST, "/{tenant}/oauth2/v2.0/devicecode", "zaffre/identity/device/action", Own, Now(identity::device_begin)),
    row(GET, "/devicelogin", "zaffre/identity/read", Open, Now(identity::device_page)),
    row(POST, "/devicelogin", "zaffre/identity/device/action", Own, Ask(|a, c| Box::pin(identity::device_submit(a, c)))),
    row(POST, "/devicelogin/approve", "zaffre/identity/device/action", Signed, Now(identity::approve)),
    row(GET, "/msi/token", "zaffre/identity/token/read", Own, Now(identity::managed)),

    // identities and roles
    row(GET, "/identities", "Microsoft.Authorization/identities/read", Token, Now(identity::identities)),
    row(GET, "/identities/{n}", "Microsoft.Authorization/identities/read", Token, Now(identity::identity)),
    row(PUT, "/identities/{n}", "Microsoft.Authorization/identities/write", Token, Ask(|a, c| Box::pin(identity::create(a, c)))),
    row(DELETE, "/identities/{n}", "Microsoft.Authorization/identities/delete", Token, Ask(|a, c| Box::pin(identity::remove(a, c)))),
    row(POST, "/identities/{n}/rotate", "Microsoft.Authorization/identities/write", Token, Ask(|a, c| Box::pin(identity::rotate(a, c)))),
    row(GET, roles!(""), "Microsoft.Authorization/roleAssignments/read", Token, Now(identity::assignments)),
    row(GET, roles!("", "/{a}"), "Microsoft.Authorization/roleAssignments/read", Token, Now(identity::assignment)),
    row(PUT, roles!("", "/{a}"), "Microsoft.Authorization/roleAssignments/write", Token, Ask(|a, c| Box::pin(identity::assign(a, c)))),
    row(DELETE, roles!("", "/{a}"), "Microsoft.Authorization/roleAssignments/delete", Token, Ask(|a, c| Box::pin(identity::unassign(a, c)))),
    row(GET, roles!("/subscriptions/{s}"), "Microsoft.Authorization/roleAssignments/read", Token, Now(identity::assignments)),
    row(GET, roles!("/subscriptions/{s}", "/{a}"), "Microsoft.Authorization/roleAssignments/read", Token, Now(identity::assignment)),
    row(PUT, roles!("/subscriptions/{s}", "/{a}"), "Microsoft.Authorization/roleAssignments/write", Token, Ask(|a, c| Box::pin(identity::assign(a, c)))),
    row(DELETE, roles!("/subscriptions/{s}", "/{a}"), "Microsoft.Authorization/roleAssignments/delete", Token, Ask(|a, c| Box::pin(identity::unassign(a, c)))),
    row(GET, roles!("/subscriptions/{s}/resourceGroups/{g}"), "Microsoft.Authorization/roleAssignments/read", Token, Now(identity::assignments)),
    row(GET, roles!("/subscriptions/{s}/resourceGroups/{g}", "/{a}"), "Microsoft.Authorization/roleAssignments/read", Token, Now(identity::assignment)),
    row(PUT, roles!("/subscriptions/{s}/resourceGroups/{g}", "/{a}"), "Microsoft.Authorization/roleAssignments/write", Token, Ask(|a, c| Box::pin(identity::assign(a, c)))),
    row(DELETE, roles!("/subscriptions/{s}/resourceGroups/{g}", "/{a}"), "Microsoft.Authorization/roleAssignments/delete", Token, Ask(|a, c| Box::pin(identity::unassign(a, c)))),
    row(GET, roles!("/subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.MachineLearningServices/workspaces/{w}"), "Microsoft.Authorization/roleAssignments/read", Token, Now(identity::assignments)),
    row(GET, roles!("/subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.MachineLearningServices/workspaces/{w}", "/{a}"), "Microsoft.Authorization/roleAssignments/read", Token, Now(identity::assignment)),
    row(PUT, roles!("/subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.MachineLearningServices/workspaces/{w}", "/{a}"), "Microsoft.Authorization/roleAssignments/write", Token, Ask(|a, c| Box::pin(identity::assign(a, c)))),
    row(DELETE, roles!("/subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.MachineLearningServices/workspaces/{w}", "/{a}"), "Microsoft.Authorization/roleAssignments/delete", Token, Ask(|a, c| Box::pin(identity::unassign(a, c)))),
    row(GET, roles!("/subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.MachineLearningServices/workspaces/{w}/{assets}/{n}"), "Microsoft.Authorization/roleAssignments/read", Token, Now(identity::assignments)),
    row(GET, roles!("/subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.MachineLearningServices/workspaces/{w}/{assets}/{n}", "/{a}"), "Microsoft.Authorization/roleAssignments/read", Token, Now(identity::assignment)),
    row(PUT, roles!("/subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.MachineLearningServices/workspaces/{w}/{assets}/{n}", "/{a}"), "Microsoft.Authorization/roleAssignments/write", Token, Ask(|a, c| Box::pin(identity::assign(a, c)))),
    row(DELETE, roles!("/subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.MachineLearningServices/workspaces/{w}/{assets}/{n}", "/{a}"), "Microsoft.Authorization/roleAssignments/delete", Token, Ask(|a, c| Box::pin(identity::unassign(a, c)))),
    // roles that users define, beside Azure's
    row(GET, defined!(""), "Microsoft.Authorization/roleDefinitions/read", Token, Now(identity::definitions)),
    row(GET, defined!("", "/{r}"), "Microsoft.Authorization/roleDefinitions/read", Token, Now(identity::definition)),
    row(PUT, defined!("", "/{r}"), "Microsoft.Authorization/roleDefinitions/write", Token, Ask(|a, c| Box::pin(identity::define(a, c)))),
    row(DELETE, defined!("", "/{r}"), "Microsoft.Authorization/roleDefinitions/delete", Token, Ask(|a, c| Box::pin(identity::undefine(a, c)))),
    row(GET, defined!("/subscriptions/{s}"), "Microsoft.Authorization/roleDefinitions/read", Token, Now(identity::definitions)),
    row(GET, defined!("/subscriptions/{s}", "/{r}"), "Microsoft.Authorization/roleDefinitions/read", Token, Now(identity::definition)),
    row(PUT, defined!("/subscriptions/{s}", "/{r}"), "Microsoft.Authorization/roleDefinitions/write", Token, Ask(|a, c| Box::pin(identity::define(a, c)))),
    row(DELETE, defined!("/subscriptions/{s}", "/{r}"), "Microsoft.Authorization/roleDefinitions/delete", Token, Ask(|a, c| Box::pin(identity::undefine(a, c)))),
    row(GET, defined!("/subscriptions/{s}/resourceGroups/{g}"), "Microsoft.Authorization/roleDefinitions/read", Token, Now(identity::definitions)),
    row(GET, defined!("/subscriptions/{s}/resourceGroups/{g}", "/{r}"), "Microsoft.Authorization/roleDefinitions/read", Token, Now(identity::definition)),
    row(PUT, defined!("/subscriptions/{s}/resourceGroups/{g}", "/{r}"), "Microsoft.Authorization/roleDefinitions/write", Token, Ask(|a, c| Box::pin(identity::define(a, c)))),
    row(DELETE, defined!("/subscriptions/{s}/resourceGroups/{g}", "/{r}"), "Microsoft.Authorization/roleDefinitions/delete", Token, Ask(|a, c| Box::pin(identity::undefine(a, c)))),
    row(GET, defined!("/subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.MachineLearningServices/workspaces/{w}"), "Microsoft.Authorization/roleDefinitions/read", Token, Now(identity::definitions)),
    row(GET, defined!("/subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.MachineLearningServices/workspaces/{w}", "/{r}"), "Microsoft.Authorization/roleDefinitions/read", Token, Now(identity::definition)),
    row(PUT, defined!("/subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.MachineLearningServices/workspaces/{w}", "/{r}"), "Microsoft.Authorization/roleDefinitions/write", Token, Ask(|a, c| Box::pin(identity::define(a, c)))),
    row(DELETE, defined!("/subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.MachineLearningServices/workspaces/{w}", "/{r}"), "Microsoft.Authorization/roleDefinitions/delete", Token, Ask(|a, c| Box::pin(identity::undefine(a, c)))),

    // workspaces
    row(GET, "/subscriptions/{s}/resourceGroups/{g}", "Microsoft.Resources/subscriptions/resourceGroups/read", Token, Now(workspaces::group)),
    row(GET, "/subscriptions/{s}/providers/Microsoft.MachineLearningServices/workspaces", act!("/read"), Token, Block(workspaces::list_in_subscription)),
    row(GET, "/subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.MachineLearningServices/workspaces", act!("/read"), Token, Block(workspaces::list_in_group)),
    row(GET, ws!(""), act!("/read"), Token, Kept(workspaces::get)),
    row(PUT, ws!(""), act!("/write"), Token, Ask(|a, c| Box::pin(workspaces::create(a, c)))),
    row(PATCH, ws!(""), act!("/write"), Token, Ask(|a, c| Box::pin(workspaces::update(a, c)))),
    row(DELETE, ws!(""), act!("/delete"), Token, Ask(|a, c| Box::pin(workspaces::delete(a, c)))),
    row(PUT, "/subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.Resources/deployments/{n}", "Microsoft.Resources/deployments/write", Token, Ask(|a, c| Box::pin(templates::put(a, c)))),
    row(GET, "/subscriptions/{s}/resourceGroups/{g}/deployments/{n}/operations", "Microsoft.Resources/deployments/operations/read", Token, Now(templates::operations)),
    row(GET, "/subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.Resources/deployments/{n}/operations", "Microsoft.Resources/deployments/operations/read", Token, Now(templates::operations)),

    // what a workspace names beside itself
    row(GET, "/subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.Storage/storageAccounts/{n}", "Microsoft.Storage/storageAccounts/read", Token, Now(workspaces::neighbour)),
    row(DELETE, "/subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.Storage/storageAccounts/{n}", "Microsoft.Storage/storageAccounts/delete", Token, Now(workspaces::delete_neighbour)),
    row(GET, "/subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.KeyVault/vaults/{n}", "Microsoft.KeyVault/vaults/read", Token, Now(workspaces::neighbour)),
    row(DELETE, "/subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.KeyVault/vaults/{n}", "Microsoft.KeyVault/vaults/delete", Token, Now(workspaces::delete_neighbour)),
    row(GET, "/subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.Insights/components/{n}", "Microsoft.Insights/components/read", Token, Now(workspaces::neighbour)),
    row(DELETE, "/subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.Insights/components/{n}", "Microsoft.Insights/components/delete", Token, Now(workspaces::delete_neighbour)),
    row(GET, "/subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.ContainerRegistry/registries/{n}", "Microsoft.ContainerRegistry/registries/read", Token, Now(workspaces::neighbour)),
    row(DELETE, "/subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.ContainerRegistry/registries/{n}", "Microsoft.ContainerRegistry/registries/delete", Token, Now(workspaces::delete_neighbour)),

    // datastores
    row(GET, ws!("/datastores"), act!("/datastores/read"), Token, Block(datastores::list)),
    row(GET, ws!("/datastores/{n}"), act!("/datastores/read"), Token, Now(datastores::get)),
    row(PUT, ws!("/datastores/{n}"), act!("/datastores/write"), Token, Ask(|a, c| Box::pin(datastores::put(a, c)))),
    row(DELETE, ws!("/datastores/{n}"), act!("/datastores/delete"), Token, Ask(|a, c| Box::pin(datastores::delete(a, c)))),
    row(POST, ws!("/datastores/{n}/listSecrets"), act!("/datastores/listsecrets/action"), Token, Now(datastores::secrets)),

    // computes
    row(GET, ws!("/computes"), act!("/computes/read"), Token, Block(computes::list)),
    row(GET, ws!("/computes/{n}"), act!("/computes/read"), Token, Kept(computes::get)),
    row(PUT, ws!("/computes/{n}"), act!("/computes/write"), Token, Ask(|a, c| Box::pin(computes::create(a, c)))),
    row(PATCH, ws!("/computes/{n}"), act!("/computes/write"), Token, Ask(|a, c| Box::pin(computes::update(a, c)))),
    row(DELETE, ws!("/computes/{n}"), act!("/computes/delete"), Token, Ask(|a, c| Box::pin(computes::delete(a, c)))),
    row(POST, ws!("/computes/{n}/listNodes"), act!("/computes/listNodes/action"), Token, Now(computes::nodes)),
    row(POST, ws!("/computes/{n}/start"), act!("/computes/start/action"), Token, Ask(|a, c| Box::pin(computes::start(a, c)))),
    row(POST, ws!("/computes/{n}/stop"), act!("/computes/stop/action"), Token, Ask(|a, c| Box::pin(computes::stop(a, c)))),
    row(POST, ws!("/computes/{n}/restart"), act!("/computes/restart/action"), Token, Ask(|a, c| Box::pin(computes::restart(a, c)))),
    row(POST, ws!("/computes/{n}/listKeys"), act!("/computes/listKeys/action"), Token, Now(computes::secrets)),
    row(POST, ws!("/computes/{n}/enableSso"), act!("/computes/enableSso/action"), Token, Ask(|a, c| Box::pin(computes::set_instance(a, c)))),
    row(POST, ws!("/computes/{n}/updateIdleShutdownSetting"), act!("/computes/updateIdleShutdownSetting/action"), Token, Ask(|a, c| Box::pin(computes::set_instance(a, c)))),
    row(POST, ws!("/computes/{n}/preempt"), act!("/computes/preempt/action"), Token, Ask(|a, c| Box::pin(computes::preempt(a, c)))),

    // locations
    row(GET, place!("/usages"), "Microsoft.MachineLearningServices/locations/usages/read", Token, Block(location::usages)),
    row(GET, place!("/vmSizes"), "Microsoft.MachineLearningServices/locations/vmsizes/read", Token, Now(location::sizes)),
    row(GET, place!("/quotas"), "Microsoft.MachineLearningServices/locations/quotas/read", Token, Block(location::quotas)),
    row(POST, place!("/updateQuotas"), "Microsoft.MachineLearningServices/locations/updateQuotas/action", Token, Ask(|a, c| Box::pin(location::update_quotas(a, c)))),
    row(GET, place!("/computeOperationsStatus/{id}"), "Microsoft.MachineLearningServices/locations/computeoperationsstatus/read", Token, Now(operations::status)),
    row(GET, place!("/computeOperationsResults/{id}"), "Microsoft.MachineLearningServices/locations/computeoperationsstatus/read", Token, Now(operations::result)),
    row(GET, place!("/mfeOperationsStatus/{id}"), "Microsoft.MachineLearningServices/locations/mfeOperationStatus/read", Token, Now(operations::status)),
    row(GET, place!("/mfeOperationsResults/{id}"), "Microsoft.MachineLearningServices/locations/mfeOperationResults/read", Token, Now(operations::result)),

    // assets: models, environments, data, codes, components
    row(GET, ws!("/{assets}"), act!("/{assets}/read"), Token, Block(assets::containers)),
    row(GET, ws!("/{assets}/{n}"), act!("/{assets}/read"), Token, Block(assets::get_container)),
    row(PUT, ws!("/{assets}/{n}"), act!("/{assets}/write"), Token, Ask(|a, c| Box::pin(assets::put_container(a, c)))),
    row(GET, ws!("/{assets}/{n}/versions"), act!("/{assets}/versions/read"), Token, Block(assets::versions)),
    row(GET, ws!("/{assets}/{n}/versions/{v}"), act!("/{assets}/versions/read"), Token, Kept(assets::get_version)),
    row(PUT, ws!("/{assets}/{n}/versions/{v}"), act!("/{assets}/versions/write"), Token, Ask(|a, c| Box::pin(assets::put_version(a, c)))),
    row(DELETE, ws!("/{assets}/{n}/versions/{v}"), act!("/{assets}/versions/delete"), Token, Ask(|a, c| Box::pin(assets::delete_version(a, c)))),
    row(POST, ws!("/{assets}/{n}/versions/{v}/startPendingUpload"), act!("/{assets}/versions/write"), Token, Now(assets::pending_upload)),

    // batch endpoints and deployments
    row(GET, ws!("/batchEndpoints"), act!("/batchEndpoints/read"), Token, Block(batch::list_endpoints)),
    row(GET, ws!("/batchEndpoints/{e}"), act!("/batchEndpoints/read"), Token, Kept(batch::get_endpoint)),
    row(PUT, ws!("/batchEndpoints/{e}"), act!("/batchEndpoints/write"), Token, Ask(|a, c| Box::pin(batch::put_endpoint(a, c)))),
    row(PATCH, ws!("/batchEndpoints/{e}"), act!("/batchEndpoints/write"), Token, Ask(|a, c| Box::pin(batch::patch_endpoint(a, c)))),
    row(DELETE, ws!("/batchEndpoints/{e}"), act!("/batchEndpoints/delete"), Token, Ask(|a, c| Box::pin(batch::delete_endpoint(a, c)))),
    row(GET, ws!("/batchEndpoints/{e}/deployments"), act!("/batchEndpoints/deployments/read"), Token, Block(batch::list_deployments)),
    row(GET, ws!("/batchEndpoints/{e}/deployments/{d}"), act!("/batchEndpoints/deployments/read"), Token, Kept(batch::get_deployment)),
    row(PUT, ws!("/batchEndpoints/{e}/deployments/{d}"), act!("/batchEndpoints/deployments/write"), Token, Ask(|a, c| Box::pin(batch::put_deployment(a, c)))),
    row(PATCH, ws!("/batchEndpoints/{e}/deployments/{d}"), act!("/batchEndpoints/deployments/write"), Token, Ask(|a, c| Box::pin(batch::patch_deployment(a, c)))),
    row(DELETE, ws!("/batchEndpoints/{e}/deployments/{d}"), act!("/batchEndpoints/deployments/delete"), Token, Ask(|a, c| Box::pin(batch::delete_deployment(a, c)))),
    row(POST, "/batch/{s}/{g}/{w}/{e}/jobs", act!("/batchEndpoints/score/action"), Token, Ask(|a, c| Box::pin(invoke::invoke(a, c)))),
    row(GET, plane!("/mferp/managementfrontend", "/batchEndpoints/{e}/jobs"), act!("/batchEndpoints/jobs/read"), Token, Block(job_list::of_endpoint)),
    row(GET, plane!("/mferp/managementfrontend", "/batchEndpoints/{e}/deployments/{d}/jobs"), act!("/batchEndpoints/deployments/jobs/read"), Token, Block(job_list::of_deployment)),

    // online endpoints: documents with keys; a deployment is checked and refused
    row(GET, ws!("/onlineEndpoints"), act!("/onlineEndpoints/read"), Token, Block(online::list)),
    row(GET, ws!("/onlineEndpoints/{e}"), act!("/onlineEndpoints/read"), Token, Kept(online::get)),
    row(PUT, ws!("/onlineEndpoints/{e}"), act!("/onlineEndpoints/write"), Token, Ask(|a, c| Box::pin(online::put(a, c)))),
    row(PATCH, ws!("/onlineEndpoints/{e}"), act!("/onlineEndpoints/write"), Token, Ask(|a, c| Box::pin(online::patch(a, c)))),
    row(DELETE, ws!("/onlineEndpoints/{e}"), act!("/onlineEndpoints/delete"), Token, Ask(|a, c| Box::pin(online::delete(a, c)))),
    row(POST, ws!("/onlineEndpoints/{e}/listKeys"), act!("/onlineEndpoints/listKeys/action"), Token, Now(online::keys)),
    row(POST, ws!("/onlineEndpoints/{e}/regenerateKeys"), act!("/onlineEndpoints/regenerateKeys/action"), Token, Ask(|a, c| Box::pin(online::regenerate(a, c)))),
    row(POST, ws!("/onlineEndpoints/{e}/token"), act!("/onlineEndpoints/token/action"), Token, Now(online::token)),
    row(GET, ws!("/onlineEndpoints/{e}/deployments"), act!("/onlineEndpoints/deployments/read"), Token, Now(online::list_deployments)),
    row(GET, ws!("/onlineEndpoints/{e}/deployments/{d}"), act!("/onlineEndpoints/deployments/read"), Token, Now(online::get_deployment)),
    row(PUT, ws!("/onlineEndpoints/{e}/deployments/{d}"), act!("/onlineEndpoints/deployments/write"), Token, Block(online::put_deployment)),
    row(DELETE, ws!("/onlineEndpoints/{e}/deployments/{d}"), act!("/onlineEndpoints/deployments/delete"), Token, Now(online::delete_deployment)),
    row(POST, ws!("/onlineEndpoints/{e}/deployments/{d}/getLogs"), act!("/onlineEndpoints/deployments/getLogs/action"), Token, Now(online::get_deployment)),

    // jobs
    row(GET, ws!("/jobs"), act!("/jobs/read"), Token, Block(job_list::list)),
    row(GET, ws!("/jobs/{n}"), act!("/jobs/read"), Token, Kept(jobs::get)),
    row(PUT, ws!("/jobs/{n}"), act!("/jobs/write"), Token, Ask(|a, c| Box::pin(jobs::create(a, c)))),
    row(DELETE, ws!("/jobs/{n}"), act!("/jobs/delete"), Token, Ask(|a, c| Box::pin(jobs::delete(a, c)))),
    row(POST, ws!("/jobs/{n}/cancel"), act!("/jobs/cancel/action"), Token, Ask(|a, c| Box::pin(jobs::cancel(a, c)))),
    row(GET, ws!("/jobs/{n}/explain"), act!("/jobs/read"), Token, Ask(|a, c| Box::pin(jobs::explain(a, c)))),

    // metrics
    row(GET, ws!("/providers/Microsoft.Insights/metrics"), "Microsoft.Insights/metrics/read", Token, Block(metrics::values)),
    row(GET, ws!("/providers/Microsoft.Insights/metricDefinitions"), "Microsoft.Insights/metricDefinitions/read", Token, Now(metrics::definitions)),

    // run history and outputs
    row(GET, plane!("/history/v1.0", "/runs/{r}"), act!("/experiments/runs/read"), Token, Now(history::run)),
    row(GET, plane!("/history/v1.0", "/runs/{r}/details"), act!("/experiments/runs/read"), Token, Block(history::details)),
    row(GET, plane!("/history/v1.0", "/runs/{r}/children"), act!("/experiments/runs/read"), Token, Block(history::children)),
    row(GET, plane!("/history/v1.0", "/runs/{r}/artifacts"), act!("/experiments/runs/read"), Token, Block(history::artifacts)),
    row(PATCH, plane!("/history/v1.0", "/runs/{r}"), act!("/experiments/runs/write"), Token, Ask(|a, c| Box::pin(history::patch(a, c)))),
    row(POST, plane!("/history/v1.0", "/rundata"), act!("/experiments/runs/read"), Token, Now(history::rundata)),
    row(GET, plane!("/history/v1.0", "/experiments/{x}/runs/{r}"), act!("/experiments/runs/read"), Token, Now(history::run)),
    row(GET, plane!("/history/v1.0", "/experiments/{x}/runs/{r}/details"), act!("/experiments/runs/read"), Token, Block(history::details)),
    row(GET, plane!("/history/v1.0", "/experiments/{x}/runs/{r}/children"), act!("/experiments/runs/read"), Token, Block(history::children)),
    row(GET, plane!("/history/v1.0", "/experiments/{x}/runs/{r}/artifacts"), act!("/experiments/runs/read"), Run, Block(plugin::list)),
    row(GET, plane!("/history/v1.0", "/experiments/{x}/runs/{r}/artifacts/contentinfo"), act!("/experiments/runs/read"), Run, Block(plugin::info)),
    row(POST, plane!("/history/v1.0", "/experiments/{x}/runs/{r}/artifacts/batch/metadata"), act!("/experiments/runs/write"), Run, Block(plugin::batch)),
    row(PATCH, plane!("/history/v1.0", "/experiments/{x}/runs/{r}"), act!("/experiments/runs/write"), Token, Ask(|a, c| Box::pin(history::patch(a, c)))),
    row(POST, plane!("/data/v1.0", "/dataversion/batchGetResolvedUris"), act!("/data/versions/read"), Token, Block(data::resolve)),
    row(POST, plane!("/modelregistry/v1.0", "/models/batchGetResolvedUris"), act!("/models/versions/read"), Token, Block(data::resolve_models)),

    // MLflow: experiments
    row(POST, flow!("/mlflow/experiments/create"), act!("/experiments/write"), Run, Ask(|a, c| Box::pin(experiments::create(a, c)))),
    row(GET, flow!("/mlflow/experiments/get"), act!("/experiments/read"), Run, Block(experiments::get)),
    row(GET, flow!("/mlflow/experiments/get-by-name"), act!("/experiments/read"), Run, Block(experiments::get_by_name)),
    row(POST, flow!("/mlflow/experiments/search"), act!("/experiments/read"), Run, Block(experiments::search)),
    row(POST, flow!("/mlflow/experiments/update"), act!("/experiments/write"), Run, Ask(|a, c| Box::pin(experiments::update(a, c)))),
    row(POST, flow!("/mlflow/experiments/delete"), act!("/experiments/write"), Run, Ask(|a, c| Box::pin(experiments::delete(a, c)))),
    row(POST, flow!("/mlflow/experiments/restore"), act!("/experiments/write"), Run, Ask(|a, c| Box::pin(experiments::restore(a, c)))),
    row(POST, flow!("/mlflow/experiments/set-experiment-tag"), act!("/experiments/write"), Run, Ask(|a, c| Box::pin(experiments::set_tag(a, c)))),
    row(POST, flow!("/mlflow/experiments/delete-experiment-tag"), act!("/experiments/write"), Run, Ask(|a, c| Box::pin(experiments::delete_tag(a, c)))),
    // MLflow: runs
    row(POST, flow!("/mlflow/runs/create"), act!("/experiments/runs/write"), Run, Ask(|a, c| Box::pin(runs::create(a, c)))),
    row(GET, flow!("/mlflow/runs/get"), act!("/experiments/runs/read"), Run, Block(runs::get)),
    row(POST, flow!("/mlflow/runs/search"), act!("/experiments/runs/read"), Run, Block(search::runs)),
    row(POST, flow!("/mlflow/runs/update"), act!("/experiments/runs/write"), Run, Ask(|a, c| Box::pin(runs::update(a, c)))),
    row(POST, flow!("/mlflow/runs/delete"), act!("/experiments/runs/write"), Run, Ask(|a, c| Box::pin(runs::delete(a, c)))),
    row(POST, flow!("/mlflow/runs/restore"), act!("/experiments/runs/write"), Run, Ask(|a, c| Box::pin(runs::restore(a, c)))),
    row(POST, flow!("/mlflow/runs/log-metric"), act!("/experiments/runs/write"), Run, Ask(|a, c| Box::pin(runs::log_metric(a, c)))),
    row(POST, flow!("/mlflow/runs/log-parameter"), act!("/experiments/runs/write"), Run, Ask(|a, c| Box::pin(runs::log_param(a, c)))),
    row(POST, flow!("/mlflow/runs/log-batch"), act!("/experiments/runs/write"), Run, Ask(|a, c| Box::pin(runs::log_batch(a, c)))),
    row(POST, flow!("/mlflow/runs/log-batch-async"), act!("/experiments/runs/write"), Run, Ask(|a, c| Box::pin(runs::log_batch(a, c)))),
    row(POST, flow!("/mlflow/runs/log-model"), act!("/experiments/runs/write"), Run, Ask(|a, c| Box::pin(runs::log_model(a, c)))),
    row(POST, flow!("/mlflow/runs/log-inputs"), act!("/experiments/runs/write"), Run, Ask(|a, c| Box::pin(runs::log_inputs(a, c)))),
    row(POST, flow!("/mlflow/runs/outputs"), act!("/experiments/runs/write"), Run, Ask(|a, c| Box::pin(runs::log_outputs(a, c)))),
    row(POST, flow!("/mlflow/runs/set-tag"), act!("/experiments/runs/write"), Run, Ask(|a, c| Box::pin(runs::set_tag(a, c)))),
    row(POST, flow!("/mlflow/runs/delete-tag"), act!("/experiments/runs/write"), Run, Ask(|a, c| Box::pin(runs::delete_tag(a, c)))),
    row(GET, flow!("/mlflow/metrics/get-history"), act!("/experiments/runs/read"), Run, Block(runs::history)),
    // MLflow: artifacts
    row(GET, flow!("/mlflow/artifacts/list"), act!("/experiments/runs/read"), Run, Block(artifacts::list_of_run)),
    row(GET, flow!("/mlflow-artifacts/artifacts"), act!("/experiments/runs/read"), Run, Block(artifacts::list)),
    row(GET, flow!("/mlflow-artifacts/artifacts/{*path}"), act!("/experiments/runs/read"), Run, Stream(artifacts::download)),
    row(PUT, flow!("/mlflow-artifacts/artifacts/{*path}"), act!("/experiments/runs/write"), Run, Stream(artifacts::upload)),
    row(DELETE, flow!("/mlflow-artifacts/artifacts/{*path}"), act!("/experiments/runs/delete"), Run, Block(artifacts::delete)),
    // MLflow: logged models
    row(POST, flow!("/mlflow/logged-models"), act!("/models/write"), Run, Ask(|a, c| Box::pin(logged::create(a, c)))),
    row(POST, flow!("/mlflow/logged-models/search"), act!("/models/read"), Run, Block(logged::search)),
    row(GET, flow!("/mlflow/logged-models/{m}"), act!("/models/read"), Run, Block(logged::get)),
    row(PATCH, flow!("/mlflow/logged-models/{m}"), act!("/models/write"), Run, Ask(|a, c| Box::pin(logged::finalize(a, c)))),
    row(DELETE, flow!("/mlflow/logged-models/{m}"), act!("/models/delete"), Run, Ask(|a, c| Box::pin(logged::delete(a, c)))),
    row(PATCH, flow!("/mlflow/logged-models/{m}/tags"), act!("/models/write"), Run, Ask(|a, c| Box::pin(logged::set_tags(a, c)))),
    row(DELETE, flow!("/mlflow/logged-models/{m}/tags/{k}"), act!("/models/delete"), Run, Ask(|a, c| Box::pin(logged::delete_tag(a, c)))),
    row(POST, flow!("/mlflow/logged-models/{m}/params"), act!("/models/write"), Run, Ask(|a, c| Box::pin(logged::log_params(a, c)))),
    // MLflow: the model registry
    row(POST, flow!("/mlflow/registered-models/create"), act!("/models/write"), Run, Ask(|a, c| Box::pin(models::create(a, c)))),
    row(GET, flow!("/mlflow/registered-models/get"), act!("/models/read"), Run, Block(models::get)),
    row(GET, flow!("/mlflow/registered-models/search"), act!("/models/read"), Run, Block(models::search)),
    row(PATCH, flow!("/mlflow/registered-models/update"), act!("/models/write"), Run, Ask(|a, c| Box::pin(models::update(a, c)))),
    row(POST, flow!("/mlflow/registered-models/rename"), act!("/models/write"), Run, Ask(|a, c| Box::pin(models::rename(a, c)))),
    row(DELETE, flow!("/mlflow/registered-models/delete"), act!("/models/delete"), Run, Ask(|a, c| Box::pin(models::delete(a, c)))),
    row(GET, flow!("/mlflow/registered-models/get-latest-versions"), act!("/models/read"), Run, Ask(|a, c| Box::pin(models::latest(a, c)))),
    row(POST, flow!("/mlflow/registered-models/get-latest-versions"), act!("/models/read"), Run, Ask(|a, c| Box::pin(models::latest(a, c)))),
    row(POST, flow!("/mlflow/registered-models/set-tag"), act!("/models/write"), Run, Ask(|a, c| Box::pin(models::set_tag(a, c)))),
    row(DELETE, flow!("/mlflow/registered-models/delete-tag"), act!("/models/delete"), Run, Ask(|a, c| Box::pin(models::delete_tag(a, c)))),
    row(GET, flow!("/mlflow/registered-models/alias"), act!("/models/read"), Run, Block(models::by_alias)),
    row(POST, flow!("/mlflow/registered-models/alias"), act!("/models/write"), Run, Ask(|a, c| Box::pin(models::set_alias(a, c)))),
    row(DELETE, flow!("/mlflow/registered-models/alias"), act!("/models/delete"), Run, Ask(|a, c| Box::pin(models::delete_alias(a, c)))),
    row(POST, flow!("/mlflow/model-versions/create"), act!("/models/versions/write"), Run, Ask(|a, c| Box::pin(versions::create_version(a, c)))),
    row(GET, flow!("/mlflow/model-versions/get"), act!("/models/versions/read"), Run, Block(versions::get_version)),
    row(GET, flow!("/mlflow/model-versions/get-download-uri"), act!("/models/versions/read"), Run, Block(versions::download_uri)),
    row(GET, flow!("/mlflow/model-versions/search"), act!("/models/versions/read"), Run, Block(versions::search_versions)),
    row(PATCH, flow!("/mlflow/model-versions/update"), act!("/models/versions/write"), Run, Ask(|a, c| Box::pin(versions::update_version(a, c)))),
    row(DELETE, flow!("/mlflow/model-versions/delete"), act!("/models/versions/delete"), Run, Ask(|a, c| Box::pin(versions::delete_version(a, c)))),
    row(POST, flow!("/mlflow/model-versions/transition-stage"), act!("/models/versions/write"), Run, Ask(|a, c| Box::pin(versions::transition(a, c)))),
    row(POST, flow!("/mlflow/model-versions/set-tag"), act!("/models/versions/write"), Run, Ask(|a, c| Box::pin(versions::set_version_tag(a, c)))),
    row(DELETE, flow!("/mlflow/model-versions/delete-tag"), act!("/models/versions/delete"), Run, Ask(|a, c| Box::pin(versions::delete_version_tag(a, c)))),

    // agents
    row(GET, "/agents/connect", "Zaffre/agents/connect/read", Agent, Switch(agents::connect)),

    // instance types, as Kubernetes has them
    row(GET, kube!("/version"), "zaffre/kube/version/read", Kube, Now(kube::version)),
    row(GET, kube!("/api"), "zaffre/kube/discovery/read", Kube, Now(kube::core)),
    row(GET, kube!("/apis"), "zaffre/kube/discovery/read", Kube, Now(kube::groups)),
    row(GET, kube!("/openapi/v2"), "zaffre/kube/discovery/read", Kube, Now(kube::openapi_v2)),
    row(GET, kube!("/openapi/v3"), "zaffre/kube/discovery/read", Kube, Now(kube::openapi_index)),
    row(GET, kube!("/openapi/v3/apis/amlarc.azureml.com/v1alpha1"), "zaffre/kube/discovery/read", Kube, Now(kube::openapi)),
    row(GET, kube!("/apis/amlarc.azureml.com"), "zaffre/kube/discovery/read", Kube, Now(kube::group)),
    row(GET, kube!("/apis/amlarc.azureml.com/v1alpha1"), "zaffre/kube/discovery/read", Kube, Now(kube::resources)),
    row(GET, kube!("/apis/amlarc.azureml.com/v1alpha1/instancetypes"), types!("/read"), Kube, Ask(|a, c| Box::pin(kube::list(a, c)))),
    row(POST, kube!("/apis/amlarc.azureml.com/v1alpha1/instancetypes"), types!("/write"), Kube, Ask(|a, c| Box::pin(kube::create(a, c)))),
    row(GET, kube!("/apis/amlarc.azureml.com/v1alpha1/instancetypes/{n}"), types!("/read"), Kube, Ask(|a, c| Box::pin(kube::get(a, c)))),
    row(PUT, kube!("/apis/amlarc.azureml.com/v1alpha1/instancetypes/{n}"), types!("/write"), Kube, Ask(|a, c| Box::pin(kube::replace(a, c)))),
    row(PATCH, kube!("/apis/amlarc.azureml.com/v1alpha1/instancetypes/{n}"), types!("/write"), Kube, Ask(|a, c| Box::pin(kube::patch(a, c)))),
    row(DELETE, kube!("/apis/amlarc.azureml.com/v1alpha1/instancetypes/{n}"), types!("/delete"), Kube, Ask(|a, c| Box::pin(kube::delete(a, c)))),
    row(GET, kube!("/apis/apiextensions.k8s.io/v1"), "zaffre/kube/discovery/read", Kube, Now(kube::resources_of_definitions)),
    row(GET, kube!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"), "apiextensions.k8s.io/customresourcedefinitions/read", Kube, Ask(|a, c| Box::pin(kube::definitions(a, c)))),
    row(GET, kube!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{n}"), "apiextensions.k8s.io/customresourcedefinitions/read", Kube, Ask(|a, c| Box::pin(kube::definition(a, c)))),
    row(GET, kube!("/apis/authorization.k8s.io/v1"), "zaffre/kube/discovery/read", Kube, Now(kube::resources_of_reviews)),
    row(POST, kube!("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"), "authorization.k8s.io/selfsubjectaccessreviews/action", Kube, Ask(|a, c| Box::pin(kube::review(a, c)))),

    // blobs
    row(GET, "/storage/{account}/{*rest}", "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read", Blob, Stream(blob::get)),
    row(HEAD, "/storage/{account}/{*rest}", "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read", Blob, Stream(blob::head)),
    row(PUT, "/storage/{account}/{*rest}", "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/write", Blob, Stream(blob::put)),
    row(DELETE, "/storage/{account}/{*rest}", "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/delete", Blob, Stream(blob::delete)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_route_has_an_action_and_stands_once() {
        let mut seen = BTreeSet::new();
        for route in ROUTES {
            let parts: Vec<&str> = route.action.split('/').collect();
            assert!(
                parts.len() >= 3 && parts.iter().all(|p| !p.is_empty()),
                "{} {} has the action {:?}",
                route.method,
                route.template,
                route.action
            );
            let verb = *parts.last().unwrap();
            let fits = match route.method.as_str() {
                "GET" | "HEAD" => verb == "read",
                "PUT" | "PATCH" => verb == "write",
                "DELETE" => verb == "delete",
                _ => ["action", "read", "write"].contains(&verb),
            };
            assert!(
                fits,
                "{} {} has the action {}",
                route.method, route.template, route.action
            );
            assert!(
                seen.insert((route.method.as_str(), route.template.to_ascii_lowercase())),
                "{} {} stands twice",
                route.method,
                route.template
            );
        }
    }

    #[test]
    fn only_what_says_nothing_is_open() {
        let open: Vec<&str> = ROUTES
            .iter()
            .filter(|r| r.guard == Open)
            .map(|r| r.template)
            .collect();
        assert_eq!(
            open,
            [
                "/health",
                "/metadata/endpoints",
                "/discovery",
                "/{tenant}/.well-known/openid-configuration",
                "/{tenant}/v2.0/.well-known/openid-configuration",
                "/{tenant}/discovery/v2.0/keys",
                "/devicelogin",
            ]
        );
    }
}
