//! The route table. It checks in a fixed order: path rule (the caller answers 400), endpoint class, first configured route that
//! matches, else the built-in route, else 404, refused identity (403), access rules and classes (403), method (405).

use std::sync::Arc;

use crate::access::Ruling;
use crate::access_step::AccessStep;
use crate::decision::{ForwardPlan, RouteDecision, RouteRefusal};
use crate::endpoint::legacy;
use crate::explain::{RouteExplanation, RoutingStep};
use crate::path_index::PathIndex;
use crate::problem::RouteProblem;
use crate::request::RoutingRequest;
use crate::route::BUILTIN;
use crate::rule::check_names;
use crate::settings::{RouteSettings, RoutingSettings};
use crate::{
    AccessRule, Class, Endpoint, Layout, Layouts, RouteEntry, access, classify, pool_names,
};

/// All routes of one configuration.
#[derive(Debug)]
pub struct RouteTable {
    configured: Vec<RouteEntry>,
    index: Option<PathIndex>,
    builtin: Vec<(Class, RouteEntry)>,
    layouts: Layouts,
    edge_answers: bool,
    rules: Vec<AccessRule>,
    /// Names of extensions in addition to Puppet's, with their OIDs.
    extension_names: Vec<(String, String)>,
}

impl RouteTable {
    /// Builds the table. A [`ForwardPlan`] refers to a pool by its index in `pool_names`.
    ///
    /// # Errors
    /// All problems of the settings.
    pub fn new(
        settings: &RoutingSettings,
        pool_names: &[Arc<str>],
    ) -> Result<Self, Vec<RouteProblem>> {
        let mut problems = Vec::new();
        let mut configured = Vec::new();
        for (index, route) in settings.routes.iter().enumerate() {
            check_name(index, &settings.routes, &mut problems);
            if !settings.renewal {
                check_renewal(index, route, &mut problems);
            }
            configured.extend(RouteEntry::configured(
                index,
                route,
                &settings.extension_names,
                pool_names,
                &mut problems,
            ));
        }
        let builtin = if settings.builtin_routes {
            builtin(pool_names, settings.renewal, &mut problems)
        } else {
            Vec::new()
        };
        check_names(&settings.extension_names, &mut problems);
        // Rules are built only if there is no problem. Otherwise they would report invalid routes that they name as unknown.
        let routes = configured
            .iter()
            .chain(builtin.iter().map(|(_, route)| route));
        let rules = if problems.is_empty() {
            AccessRule::all(settings, routes, &mut problems)
        } else {
            Vec::new()
        };
        if problems.is_empty() {
            Ok(Self {
                index: PathIndex::new(&configured),
                configured,
                builtin,
                layouts: if settings.legacy_routes {
                    Layouts::ModernAndLegacy
                } else {
                    Layouts::Modern
                },
                edge_answers: settings.edge_answers,
                rules,
                extension_names: settings.extension_names.clone(),
            })
        } else {
            Err(problems)
        }
    }

    /// Every route, in the order in which they are tried.
    pub fn routes(&self) -> impl Iterator<Item = &RouteEntry> {
        self.configured
            .iter()
            .chain(self.builtin.iter().map(|(_, route)| route))
    }

    /// Every access rule, in the order in which they are tried.
    pub fn rules(&self) -> &[AccessRule] {
        &self.rules
    }

    /// Names of extensions in addition to Puppet's, with their OIDs.
    pub fn extension_names(&self) -> &[(String, String)] {
        &self.extension_names
    }

    /// Which URL layouts are served.
    pub fn layouts(&self) -> Layouts {
        self.layouts
    }

    /// Decides on one request. Allocates memory only for a refusal and for a legacy path.
    pub fn find<'a>(&'a self, question: &RoutingRequest<'a>) -> RouteDecision<'a> {
        self.find_traced(question, self.index.as_ref(), &mut |_| {})
    }

    /// Decides as `find` does, and returns the steps of the decision too.
    pub fn explain<'a>(&'a self, question: &RoutingRequest<'a>) -> RouteExplanation<'a> {
        let mut steps = Vec::new();
        // The index is not used, so that every route that did not match becomes a step.
        let decision = self.find_traced(question, None, &mut |step| steps.push(step));
        RouteExplanation { steps, decision }
    }

    fn find_traced<'a>(
        &'a self,
        question: &RoutingRequest<'a>,
        index: Option<&PathIndex>,
        trace: &mut impl FnMut(RoutingStep<'a>),
    ) -> RouteDecision<'a> {
        let mut endpoint = classify(question.method, &question.path, self.layouts);
        if self.edge_answers {
            endpoint = endpoint.with_documents(question.method);
        }
        trace(RoutingStep::Endpoint(endpoint));
        let Some(route) = self.route(question, &endpoint, index, trace) else {
            trace(RoutingStep::NoRoute);
            return RouteDecision::Refuse(RouteRefusal::no_route(endpoint.class));
        };
        if self.serves_legacy(&endpoint)
            && !route.unguarded
            && !legacy::environment_agrees(&question.path, question.query)
        {
            trace(RoutingStep::EnvironmentMismatch);
            return RouteDecision::Refuse(RouteRefusal::two_environments(route, endpoint.class));
        }
        let Ruling {
            step: access,
            rule,
            observed,
        } = access::check_access(&self.rules, route, &endpoint, question, trace);
        trace(RoutingStep::Access(access));
        if !access.is_granted() {
            let refusal = RouteRefusal::denied(access, route, rule, &endpoint, question.identity);
            let needs_legacy_routes = self.needs_legacy_routes(access, question);
            return RouteDecision::Refuse(RouteRefusal {
                needs_legacy_routes,
                ..refusal
            });
        }
        let known = route.unguarded || endpoint.methods.allows(question.method);
        trace(RoutingStep::Method { known });
        if !known {
            return RouteDecision::Refuse(RouteRefusal::wrong_method(
                route,
                &endpoint,
                question.method,
            ));
        }
        // The proxy itself answers on every route, because a member only knows its own status.
        if endpoint.class == Class::Status && !route.unguarded && !route.opens(Class::Status) {
            return RouteDecision::Status(observed);
        }
        RouteDecision::Forward(ForwardPlan::new(route, endpoint, observed))
    }

    /// Whether the endpoint has a legacy path and the table serves legacy paths.
    fn serves_legacy(&self, endpoint: &Endpoint<'_>) -> bool {
        endpoint.layout == Layout::Legacy && self.layouts == Layouts::ModernAndLegacy
    }

    /// Whether a request was refused only because legacy paths are not served. This is logged for the operator.
    fn needs_legacy_routes(&self, access: AccessStep, question: &RoutingRequest<'_>) -> bool {
        let guarded = [Class::CaAdministration, Class::Services];
        access == AccessStep::ClassClosed && self.layouts == Layouts::Modern && {
            let served = classify(question.method, &question.path, Layouts::ModernAndLegacy);
            served.layout == Layout::Legacy && !guarded.contains(&served.class)
        }
    }

    fn route<'a>(
        &'a self,
        question: &RoutingRequest<'a>,
        endpoint: &Endpoint<'a>,
        index: Option<&PathIndex>,
        trace: &mut impl FnMut(RoutingStep<'a>),
    ) -> Option<&'a RouteEntry> {
        let equivalent = if self.serves_legacy(endpoint) {
            legacy::equivalent(&question.path, question.query)
        } else {
            None
        };
        let mut holds = |route: &'a RouteEntry| {
            let failed = match &equivalent {
                Some(equivalent) => route.failed_as(question, equivalent),
                None => route.failed(question),
            };
            trace(RoutingStep::Tried { route, failed });
            failed.is_none()
        };
        // For a legacy request, the conditions of some routes apply to its modern path, which the index does not know.
        let index = index.filter(|_| equivalent.is_none());
        let found = match index {
            Some(index) => {
                let mut numbers = index.candidates(question.path.as_str());
                numbers
                    .find_map(|number| Some(&self.configured[number]).filter(|route| holds(route)))
            }
            None => self.configured.iter().find(|route| holds(route)),
        };
        if found.is_some() {
            return found;
        }
        let (_, route) = self
            .builtin
            .iter()
            .find(|(class, _)| *class == endpoint.class)?;
        trace(RoutingStep::Tried {
            route,
            failed: None,
        });
        Some(route)
    }
}

/// Checks a route's name, which records and metrics show. It must be unique, and differ from the names of built-in routes.
fn check_name(index: usize, routes: &[RouteSettings], problems: &mut Vec<RouteProblem>) {
    let name = &routes[index].name;
    let message = if name.is_empty() {
        "the route has no name".to_owned()
    } else if name.starts_with(BUILTIN) {
        format!("{name:?} begins like the names of built-in routes")
    } else if routes[..index].iter().any(|earlier| earlier.name == *name) {
        format!("two routes have the name {name:?}")
    } else {
        return;
    };
    problems.push(RouteProblem::of_route(index, "name", message));
}

/// Checks a route for renewals. A route only selects the pool for renewals. `[ca]` configures whether renewals are allowed, and
/// their requirements are checked there.
fn check_renewal(index: usize, route: &RouteSettings, problems: &mut Vec<RouteProblem>) {
    if route.classes.contains(&Class::Renewal) && !route.unguarded {
        let message = "the class \"renewal\" cannot be opened while [ca] renewal is off".to_owned();
        problems.push(RouteProblem::of_route(index, "classes", message));
    }
}

/// The built-in routes: one for each class that has a route. Renewal has one only if renewal is configured.
fn builtin(
    pools: &[Arc<str>],
    renewal: bool,
    problems: &mut Vec<RouteProblem>,
) -> Vec<(Class, RouteEntry)> {
    let mut index = |name: &str| {
        let found = pools.iter().position(|pool| **pool == *name);
        if found.is_none() {
            let message = format!("the built-in routes need a pool {name:?}");
            problems.push(RouteProblem {
                route: None,
                rule: None,
                key: "builtin_routes",
                message,
            });
        }
        found.unwrap_or(0)
    };
    let (ca, compilers) = (index(pool_names::CA), index(pool_names::COMPILERS));
    let filebucket = pools
        .iter()
        .position(|pool| &**pool == pool_names::FILEBUCKET)
        .unwrap_or(compilers);
    let entry = |class, pool| (class, RouteEntry::builtin(class, pool));
    let mut routes = vec![
        entry(Class::Enrolment, ca),
        entry(Class::CaAdministration, ca),
        entry(Class::OwnDocuments, compilers),
        entry(Class::Files, compilers),
        entry(Class::Filebucket, filebucket),
        entry(Class::Services, compilers),
        entry(Class::ServerAdministration, compilers),
        entry(Class::Status, compilers),
        entry(Class::Never, compilers),
    ];
    if renewal {
        routes.push(entry(Class::Renewal, ca));
    }
    routes
}

#[cfg(test)]
mod tests;
