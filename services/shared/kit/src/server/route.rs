//! Routes from method paths to handlers. Built once at start from the added services.

use std::{
    collections::{BTreeSet, HashMap},
    convert::Infallible,
    sync::Arc,
};

use http::{Request, Response};
use tonic::{
    codegen::{BoxFuture, Service},
    server::NamedService,
};

use super::{RequestBody, StartError, metrics::MethodMetrics};
use crate::contract::{Contract, Method};

/// Serves the calls of one service. Implemented by every service that tonic generates.
pub trait Handler: Send + Sync {
    /// Serves one call. Do the work in the future: only the future runs under the call's deadline and context.
    fn call(&self, request: Request<RequestBody>) -> BoxFuture<Response<tonic::body::Body>, Infallible>;
}

impl<S> Handler for S
where
    S: Service<
            Request<RequestBody>,
            Response = Response<tonic::body::Body>,
            Error = Infallible,
            Future = BoxFuture<Response<tonic::body::Body>, Infallible>,
        > + Clone
        + Send
        + Sync,
{
    fn call(&self, request: Request<RequestBody>) -> BoxFuture<Response<tonic::body::Body>, Infallible> {
        // No `poll_ready`: generated services are always ready, and a clone only copies a reference.
        Service::call(&mut self.clone(), request)
    }
}

/// A service that was added to the chassis.
#[derive(Clone)]
pub(super) struct RegisteredService {
    pub(super) name: &'static str,
    pub(super) handler: Arc<dyn Handler>,
}

impl RegisteredService {
    pub(super) fn new<S: Handler + NamedService + 'static>(service: S) -> Self {
        Self { name: S::NAME, handler: Arc::new(service) }
    }
}

/// Everything that serves one method.
pub(super) struct Route {
    /// The path on the wire. Leaked, because log lines and spans refer to it for the life of the process.
    pub(super) path: &'static str,
    pub(super) method: Method,
    /// Set for health and reflection, which are never refused for load: an overloaded instance would look dead.
    pub(super) is_exempt: bool,
    pub(super) handler: Arc<dyn Handler>,
    pub(super) metrics: MethodMetrics,
}

/// All routes by path.
pub(super) struct Routes {
    routes: HashMap<&'static str, Arc<Route>>,
}

impl Routes {
    /// Builds routes for the methods of `contract` whose service is in `services` or in `exempt`. Calls of the latter may
    /// exceed the concurrency limits.
    pub(super) fn new(
        contract: &Contract,
        services: &[RegisteredService],
        exempt: &[RegisteredService],
    ) -> Result<Self, StartError> {
        let mut routes = HashMap::new();
        for (registered, is_exempt) in services
            .iter()
            .map(|service| (service, false))
            .chain(exempt.iter().map(|service| (service, true)))
        {
            let mut methods =
                contract.methods().filter(|method| method.service == registered.name).peekable();
            if methods.peek().is_none() {
                return Err(StartError::NotInContract(registered.name));
            }
            for method in methods {
                let path: &'static str = method.path.clone().leak();
                let route = Route {
                    path,
                    method: method.clone(),
                    is_exempt,
                    handler: Arc::clone(&registered.handler),
                    metrics: MethodMetrics::new(method),
                };
                if routes.insert(path, Arc::new(route)).is_some() {
                    return Err(StartError::ServedTwice(registered.name));
                }
            }
        }
        Ok(Self { routes })
    }

    pub(super) fn find(&self, path: &str) -> Option<&Arc<Route>> {
        self.routes.get(path)
    }

    /// Returns the full names of the services served.
    pub(super) fn services(&self) -> BTreeSet<&str> {
        self.routes.values().map(|route| route.method.service.as_str()).collect()
    }
}
