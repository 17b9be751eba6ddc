//! A site with its own routes.

use std::ops::Deref;

use testkit::{Client, Reply, Response, StandIn, TestCredential};

use crate::support::Estate;

/// An estate with one more pool, `north`, whose server answers everything with its name.
pub(crate) struct Site {
    pub(crate) estate: Estate,
    pub(crate) north: StandIn,
    pub(crate) web01: TestCredential,
}

impl Deref for Site {
    type Target = Estate;

    fn deref(&self) -> &Estate {
        &self.estate
    }
}

/// A site with these routes, each a few lines of TOML.
pub(crate) fn site(routes: &[&str]) -> Site {
    configured(routes, "")
}

pub(crate) fn configured(routes: &[&str], top: &'static str) -> Site {
    with_pool(routes, top, "")
}

/// A site whose pool `north` has further settings.
pub(crate) fn with_pool(routes: &[&str], top: &'static str, settings: &str) -> Site {
    let north = StandIn::start("north");
    north.answer(|request| (!request.is_probe()).then(|| Reply::ok("north")));
    let pool = format!(
        "[pools.north]\nscheme = \"http\"\nmembers = [\"{}\"]\ncheck = {{ type = \"none\" }}\n{settings}\n",
        north.address()
    );
    let routes: String = routes
        .iter()
        .map(|route| format!("[[routes]]\n{route}\n"))
        .collect();
    let estate = Estate::builder()
        .compilers(1)
        .top(top)
        .with(&pool)
        .with(&routes)
        .start();
    let web01 = estate.ca.agent("web01");
    Site {
        estate,
        north,
        web01,
    }
}

impl Site {
    pub(crate) fn agent(&self) -> Client {
        self.client(&self.web01)
    }

    /// Asserts whether `north` sent this response, and that no other member received the request.
    #[track_caller]
    pub(crate) fn assert_north(&self, response: &Response, expected: bool, context: &str) {
        assert_eq!(
            response.text() == "north",
            expected,
            "{context}: {response:?}"
        );
        assert_eq!(
            self.north.requests().len(),
            usize::from(expected),
            "{context}"
        );
        self.north.forget();
        self.forget();
    }
}
