//! The commands that read the configuration themselves: `run`, `config show`.

use admin::AdminClient;
use lifecycle::{Options, StartError};

use crate::{
    arguments::{Agent, Arguments, ConfigShow, Run},
    ask::wait,
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
    match lifecycle::run(&options, &events, operator::control) {
        Ok(()) => Ok(()),
        Err(StartError::Config(report)) => Err(report.into()),
        Err(StartError::Host { report, may_pass }) => {
            let text = report.render(output::colour());
            Err(if may_pass {
                Failure::Unavailable(text)
            } else {
                Failure::Configuration(text)
            })
        }
        Err(error) => Err(Failure::Failed(error.into())),
    }
}

/// Prints the settings of the configuration file. If the running proxy waits for a restart to use some of them, a message on
/// standard error says so.
pub(crate) fn config_show(arguments: &Arguments, show: &ConfigShow) -> Result<(), Failure> {
    let config = lifecycle::effective(&options(arguments, &show.agent))?;
    let settings: serde_json::Value = config.structured(show.defaults);
    output::answer(arguments.json, &settings, |_| config.show(show.defaults))?;
    let status = wait(AdminClient::new(config.admin.socket).status());
    let alarms = status.map_or_else(|_| Vec::new(), |status| status.alarms);
    for alarm in alarms
        .iter()
        .filter(|alarm| alarm.key == "restart-pending:settings")
    {
        output::print_error(&format!("the running proxy: {}", alarm.message));
    }
    Ok(())
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
