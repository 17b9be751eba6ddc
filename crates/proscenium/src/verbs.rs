//! The commands that read the configuration themselves: `run`, `explain`, `config show`.

use server::{ExplainAs, ExplainRequest, Options, StartError};

use crate::{
    arguments::{Agent, Arguments, ConfigShow, Explain, Run},
    exit_codes::REFUSED,
    failure::Failure,
    log, output,
    version::BUILD,
};

/// Runs the proxy until a signal stops it.
pub(crate) fn run(arguments: &Arguments, run: &Run) -> Result<(), Failure> {
    let events = log::start(&run.log)?;
    match server::run(&options(arguments, &run.agent), &events) {
        Ok(()) => Ok(()),
        Err(StartError::Config(report)) => Err(report.into()),
        Err(StartError::Host { report, may_pass }) => {
            let text = report.render(output::colour());
            Err(match may_pass {
                true => Failure::Unavailable(text),
                false => Failure::Configuration(text),
            })
        }
        Err(error) => Err(Failure::Failed(error.into())),
    }
}

/// Shows how the proxy would handle a request, with the functions that handle real requests.
pub(crate) fn explain(arguments: &Arguments, explain: &Explain) -> Result<(), Failure> {
    let explainer = server::prepare_for_explain(&Options {
        config: arguments.config.clone(),
        ssldir: explain.ssldir.clone(),
        certname: None,
        build: BUILD,
    })?;
    let client = match (&explain.cert, &explain.certname) {
        (Some(file), _) => ExplainAs::Certificate(file.clone()),
        (None, Some(certname)) => ExplainAs::Certname {
            certname: certname.clone(),
            issuer: explain.issuer.clone(),
            extensions: explain.extension.clone(),
        },
        (None, None) => ExplainAs::Anonymous,
    };
    let explanation = explainer
        .explain(&ExplainRequest {
            method: explain.method.clone(),
            url: explain.url.clone(),
            headers: explain.header.clone(),
            client,
            source: explain.source,
            sni: explain.sni.clone(),
        })
        .map_err(|error| Failure::Usage(format!("error: {error}")))?;
    output::print(explanation.text.trim_end())?;
    match explanation.is_refused {
        true => Err(Failure::Found(REFUSED)),
        false => Ok(()),
    }
}

/// Prints the configuration in effect.
pub(crate) fn config_show(arguments: &Arguments, show: &ConfigShow) -> Result<(), Failure> {
    let text = server::effective(&options(arguments, &show.agent), show.defaults)?;
    output::print(text.trim_end())
}

pub(crate) fn options(arguments: &Arguments, agent: &Agent) -> Options {
    Options {
        config: arguments.config.clone(),
        ssldir: agent.ssldir.clone(),
        certname: agent.certname.clone(),
        build: BUILD,
    }
}
