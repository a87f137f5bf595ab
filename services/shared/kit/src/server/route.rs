//! Which handler answers a method. Built at start from the services that were added; a lookup by path after that.

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

/// What answers the calls of a service: every service that tonic generates, or anything of the same form.
pub trait Handler: Send + Sync {
    /// Answers one call. The work belongs into the future: only that has the call's deadline and context.
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
        // Generated services are always ready and a clone is a reference: there is nothing to wait for.
        Service::call(&mut self.clone(), request)
    }
}

/// A service to be served.
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

/// All that is needed to answer one method.
pub(super) struct Route {
    /// As on the wire. It lives as long as the process, because log lines and spans refer to it.
    pub(super) path: &'static str,
    pub(super) method: Method,
    /// Not ours (health, reflection): never turned away for load, or an overloaded instance would look dead.
    pub(super) is_exempt: bool,
    pub(super) handler: Arc<dyn Handler>,
    pub(super) metrics: MethodMetrics,
}

/// Every route, by path.
pub(super) struct Routes {
    routes: HashMap<&'static str, Arc<Route>>,
}

impl Routes {
    /// The methods of `contract` whose services are in `ours` or, without limits, in `foreign`.
    pub(super) fn new(
        contract: &Contract,
        ours: &[RegisteredService],
        foreign: &[RegisteredService],
    ) -> Result<Self, StartError> {
        let mut routes = HashMap::new();
        for (registered, is_exempt) in
            ours.iter().map(|service| (service, false)).chain(foreign.iter().map(|service| (service, true)))
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

    /// The full names of the services served.
    pub(super) fn services(&self) -> BTreeSet<&str> {
        self.routes.values().map(|route| route.method.service.as_str()).collect()
    }
}
