//! Standard gRPC services of every instance: health v1, and reflection v1 and v1alpha. Many clients know only the older
//! v1alpha.

use std::sync::Arc;

use tonic_health::{ServingStatus, server::HealthReporter};

use super::{StartError, call_pipeline::CallPipeline, route::RegisteredService};
use crate::{
    contract::Contract,
    health::{Readiness, Verdict},
    tasks::Tasks,
};

/// Full name of the health service.
const HEALTH: &str = "grpc.health.v1.Health";

/// Creates the health service and the reporter that sets its statuses.
pub(super) fn health() -> (RegisteredService, HealthReporter) {
    let (reporter, service) = tonic_health::server::health_reporter();
    (RegisteredService::new(service), reporter)
}

/// Creates reflection over `descriptor_sets` and health's own. It lists only `services` and health, which are served here.
pub(super) fn reflection(
    descriptor_sets: &[&'static [u8]],
    services: &[RegisteredService],
) -> Result<[RegisteredService; 2], StartError> {
    let builder = || {
        let builder = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .with_service_name(HEALTH);
        let builder = descriptor_sets
            .iter()
            .fold(builder, |builder, set| builder.register_encoded_file_descriptor_set(set));
        services.iter().fold(builder, |builder, service| builder.with_service_name(service.name))
    };
    let v1 = builder().build_v1().map_err(StartError::Reflection)?;
    let v1alpha = builder().build_v1alpha().map_err(StartError::Reflection)?;
    Ok([RegisteredService::new(v1), RegisteredService::new(v1alpha)])
}

/// Adds the contracts of health and reflection. They have no access option: every client in the network may call them.
pub(super) fn add_contracts(contract: &mut Contract) -> Result<(), StartError> {
    let foreign = [
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
    ];
    for set in foreign {
        contract.add_foreign(set).map_err(StartError::Contract)?;
    }
    Ok(())
}

/// Sets the health of the whole instance (the empty name) and of each of its services.
pub(super) async fn set_health(reporter: &HealthReporter, pipeline: &CallPipeline, verdict: &Verdict) {
    let status = if verdict.is_ready() { ServingStatus::Serving } else { ServingStatus::NotServing };
    for service in pipeline.routes().services().into_iter().chain([""]) {
        reporter.set_service_status(service, status).await;
    }
}

/// Updates health at every change of readiness until shutdown.
pub(super) fn keep_health_current(
    reporter: HealthReporter,
    pipeline: Arc<CallPipeline>,
    readiness: &Readiness,
    tasks: &Tasks,
) {
    let mut verdicts = readiness.subscribe();
    let shutdown = tasks.token();
    tasks.spawn("grpc-health", async move {
        while let Some(Ok(())) = shutdown.run_until_cancelled(verdicts.changed()).await {
            let verdict = verdicts.borrow_and_update().clone();
            set_health(&reporter, &pipeline, &verdict).await;
        }
    });
}
