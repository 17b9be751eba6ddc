//! The commands that read the configuration themselves: `run`, `explain`, `config show`.

use admin::{LiveExplainRequest, NamedValue};
use server::{ExplainAs, ExplainRequest, Options, StartError};

use crate::{
    arguments::{Agent, Arguments, ConfigShow, Explain, Run},
    ask::{client, wait},
    exit_codes::REFUSED,
    failure::Failure,
    log, output,
    version::BUILD,
};

/// Runs the proxy until a signal stops it.
pub(crate) fn run(arguments: &Arguments, run: &Run) -> Result<(), Failure> {
    let events = log::start(&run.log)?;
    let options = Options {
        hand_over: run.hand_over,
        ..options(arguments, &run.agent)
    };
    match server::run(&options, &events) {
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
    if explain.live {
        return explain_live(arguments, explain);
    }
    let explainer = server::prepare_for_explain(&Options {
        config: arguments.config.clone(),
        ssldir: explain.ssldir.clone(),
        certname: None,
        build: BUILD,
        hand_over: false,
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
            listener: explain.listener.clone(),
        })
        .map_err(|error| Failure::Usage(format!("error: {error}")))?;
    print_explanation(arguments, &explanation.text, explanation.is_refused)
}

/// Shows how the running proxy would handle a request now.
fn explain_live(arguments: &Arguments, explain: &Explain) -> Result<(), Failure> {
    let pairs = |values: &[(String, String)]| {
        let values = values.iter().cloned();
        values
            .map(|(name, value)| NamedValue { name, value })
            .collect()
    };
    let client = client(arguments, &explain.socket)?;
    let explanation = wait(client.explain(&LiveExplainRequest {
        method: explain.method.clone(),
        url: explain.url.clone(),
        headers: pairs(&explain.header),
        certname: explain.certname.clone(),
        issuer: explain.issuer.clone(),
        extensions: pairs(&explain.extension),
        source: explain.source.map(|source| source.to_string()),
        sni: explain.sni.clone(),
        listener: explain.listener.clone(),
    }))?;
    print_explanation(arguments, &explanation.text, explanation.is_refused)
}

fn print_explanation(arguments: &Arguments, text: &str, is_refused: bool) -> Result<(), Failure> {
    let steps: Vec<_> = text.trim_end().lines().collect();
    let answer = serde_json::json!({ "steps": steps, "is_refused": is_refused });
    output::answer(arguments.json, &answer, |_| text.to_owned())?;
    match is_refused {
        true => Err(Failure::Found(REFUSED)),
        false => Ok(()),
    }
}

/// Prints the configuration in effect.
pub(crate) fn config_show(arguments: &Arguments, show: &ConfigShow) -> Result<(), Failure> {
    let config = server::effective(&options(arguments, &show.agent))?;
    let settings: serde_json::Value = config.structured(show.defaults);
    output::answer(arguments.json, &settings, |_| config.show(show.defaults))
}

pub(crate) fn options(arguments: &Arguments, agent: &Agent) -> Options {
    Options {
        config: arguments.config.clone(),
        ssldir: agent.ssldir.clone(),
        certname: agent.certname.clone(),
        build: BUILD,
        hand_over: false,
    }
}
