# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_proscenium_global_optspecs
    string join \n config= json h/help V/version
end

function __fish_proscenium_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_proscenium_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_proscenium_using_subcommand
    set -l cmd (__fish_proscenium_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c proscenium -n "__fish_proscenium_needs_command" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_needs_command" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_needs_command" -s V -l version -d 'Print version'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "init" -d 'Write a configuration for this machine, and print what to do on the CA server and on the compilers'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "run" -d 'Run the proxy until SIGTERM; SIGHUP reloads the configuration, certificates and CRLs'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "check" -d 'Test the configuration, the certificates, the CRLs and this host, and print every problem'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "explain" -d 'Show how the proxy would handle a request: path rule, class, route, access, pool, members'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "doctor" -d 'Test the deployment: files, certificates, CRLs, every member, and how members treat forged identity headers'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "config" -d 'Show the configuration'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "reload" -d 'Reload the configuration, certificates and CRLs of the running proxy, and wait for the result'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "rollback" -d 'Apply a configuration again that the running proxy has used before'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "reopen-logs" -d 'Reopen the log files of the running proxy, after log rotation has renamed them'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "log-level" -d 'Show or change the log level of the running proxy'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "status" -d 'Show the state of the running proxy: generation, alarms, listeners, pools, CRLs'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "events" -d 'Show what has happened in the last day: alarms, changes of members, reloads, operators\' changes, starts and stops'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "requests" -d 'Show requests in flight and in queues, and the slowest requests of the last hours'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "certificates" -d 'List certificates of the proxy and of agents that expire within 60 days, and CAs that expire within 90 days'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "trace" -d 'Show the requests of one agent as a timeline, run by run, from the access log'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "top" -d 'Show pools, members, queues, rates and refusals of the running proxy, live; q ends it'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "ui" -d 'Serve a page about the running proxy on a loopback address, until the terminal closes or an hour without a request'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "support-bundle" -d 'Write a file for a support request: status, metrics, lists and the active configuration, without keys'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "crl" -d 'Show the active CRLs, fetch CRLs from the CA, or accept that a CRL drops revocations'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "ready" -d 'Put a member back into service'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "drain" -d 'Send no new requests to a member; its current requests finish'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "maintenance" -d 'Take a member out of service; probes of its health continue'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "block" -d 'Refuse a certificate from now on, even if its CA has not revoked it'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "unblock" -d 'Remove a block'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "fleet" -d 'Show the proxies that share drains and blocks with this one, and in what they differ; make a key; take turns'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "blocks" -d 'List the blocks, with their times and reasons'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "who" -d 'Show an agent\'s certificate, verdict and recent requests; without an argument, list agents'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "refusals" -d 'List recently refused clients, with time, address, name and reason'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "version" -d 'Show the version'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c proscenium -n "__fish_proscenium_using_subcommand init" -l output -d 'File to write, or - for standard output; default: the file in --config' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand init" -l ca -d 'Address of the CA server; default: the one that the agent of this machine uses' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand init" -l compiler -d 'Address of a compiler; can be repeated; default: the server that the agent of this machine uses' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand init" -l compiler-ca -d 'Create a CA for the compilers\' side in this directory, which must not exist: certificate and CRL for compilers, certificate and key for the proxy, and the lines for webserver.conf and auth.conf' -r -f -a "(__fish_complete_directories)"
complete -c proscenium -n "__fish_proscenium_using_subcommand init" -l root -d 'Directory below which the machine is examined, for tests' -r -f -a "(__fish_complete_directories)"
complete -c proscenium -n "__fish_proscenium_using_subcommand init" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand init" -l force -d 'Replace the file if it exists'
complete -c proscenium -n "__fish_proscenium_using_subcommand init" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand init" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand run" -l ssldir -d 'ssldir of the Puppet agent; overrides the configuration file' -r -f -a "(__fish_complete_directories)"
complete -c proscenium -n "__fish_proscenium_using_subcommand run" -l certname -d 'certname of the certificate to use from the ssldir; overrides the configuration file' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand run" -l log -d 'Log level: error, warn, info, debug, trace, or levels by component (`info,proxy=debug`)' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c proscenium -n "__fish_proscenium_using_subcommand run" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand run" -l hand-over -d 'Take over from the proxy that runs with the same state directory, which then finishes its requests and exits'
complete -c proscenium -n "__fish_proscenium_using_subcommand run" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand check" -l user -d 'Test with the rights of the service\'s account; requires root These rights do not include capabilities that the service unit grants (`AmbientCapabilities=`)' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand check" -l ssldir -d 'ssldir of the Puppet agent; overrides the configuration file' -r -f -a "(__fish_complete_directories)"
complete -c proscenium -n "__fish_proscenium_using_subcommand check" -l certname -d 'certname of the certificate to use from the ssldir; overrides the configuration file' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand check" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand check" -l files-only -d 'Skip the tests of this host: addresses, log files, admin socket, state directory'
complete -c proscenium -n "__fish_proscenium_using_subcommand check" -l strict -d 'Treat warnings as errors (exit code 78)'
complete -c proscenium -n "__fish_proscenium_using_subcommand check" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand explain" -l method -d 'Method of the request' -r -f -a "GET\t''
HEAD\t''
POST\t''
PUT\t''
DELETE\t''"
complete -c proscenium -n "__fish_proscenium_using_subcommand explain" -l cert -d 'Certificate of the client (PEM), verified as in a TLS handshake' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand explain" -l certname -d 'Verified certname of the client, unless it is blocked; without --cert and --certname, the client sends no certificate' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand explain" -l issuer -d 'Issuer of the client\'s certificate (RFC 2253), for conditions on `issuer`' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand explain" -l extension -d 'Extension of the client\'s certificate, for conditions on `extension`; can be repeated' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand explain" -l source -d 'Address of the client, for conditions on `source` and `share` and for pools with algorithm `source-hash`' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand explain" -l sni -d 'Server name in the client\'s TLS handshake, for conditions on `sni`' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand explain" -l listener -d 'Name of the listener that accepts the connection, for conditions on `listener`; without it, the only listener that terminates TLS' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand explain" -l header -d 'Header field of the request, for example `Cookie: NAME=VALUE`; can be repeated' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand explain" -l ssldir -d 'ssldir of the Puppet agent; overrides the configuration file' -r -f -a "(__fish_complete_directories)"
complete -c proscenium -n "__fish_proscenium_using_subcommand explain" -l socket -d 'Admin socket of the running proxy; overrides the configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand explain" -l watch -d 'Repeat the command at this interval (default 2 seconds) until it is interrupted' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand explain" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand explain" -l live -d 'Ask the running proxy, with the health and the queues of its members now'
complete -c proscenium -n "__fish_proscenium_using_subcommand explain" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand explain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand doctor" -l agent-cert -d 'Certificate of an ordinary agent (PEM), to test that members refuse it; without it, this test is skipped' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand doctor" -l agent-key -d 'Private key of the certificate in --agent-cert' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand doctor" -l plain-port -d 'Ports to test for plain HTTP on the members\' hosts, in addition to the members\' own; separate with commas' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand doctor" -l tls-port -d 'Ports to test for TLS on the members\' hosts, in addition to the members\' own; separate with commas' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand doctor" -l ssldir -d 'ssldir of the Puppet agent; overrides the configuration file' -r -f -a "(__fish_complete_directories)"
complete -c proscenium -n "__fish_proscenium_using_subcommand doctor" -l certname -d 'certname of the certificate to use from the ssldir; overrides the configuration file' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand doctor" -l socket -d 'Admin socket of the running proxy; overrides the configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand doctor" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand doctor" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and not __fish_seen_subcommand_from show diff help" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and not __fish_seen_subcommand_from show diff help" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and not __fish_seen_subcommand_from show diff help" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and not __fish_seen_subcommand_from show diff help" -f -a "show" -d 'Print the settings of the configuration file and of the agent as TOML, or with --json as an object'
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and not __fish_seen_subcommand_from show diff help" -f -a "diff" -d 'Show whether the files differ from what the running proxy uses; exit code 1 if they do'
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and not __fish_seen_subcommand_from show diff help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and __fish_seen_subcommand_from show" -l ssldir -d 'ssldir of the Puppet agent; overrides the configuration file' -r -f -a "(__fish_complete_directories)"
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and __fish_seen_subcommand_from show" -l certname -d 'certname of the certificate to use from the ssldir; overrides the configuration file' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and __fish_seen_subcommand_from show" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and __fish_seen_subcommand_from show" -l defaults -d 'Print every setting, not only those that differ from their defaults'
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and __fish_seen_subcommand_from show" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and __fish_seen_subcommand_from diff" -l socket -d 'Admin socket of the running proxy; overrides the configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and __fish_seen_subcommand_from diff" -l watch -d 'Repeat the command at this interval (default 2 seconds) until it is interrupted' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and __fish_seen_subcommand_from diff" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and __fish_seen_subcommand_from diff" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and __fish_seen_subcommand_from diff" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "show" -d 'Print the settings of the configuration file and of the agent as TOML, or with --json as an object'
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "diff" -d 'Show whether the files differ from what the running proxy uses; exit code 1 if they do'
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c proscenium -n "__fish_proscenium_using_subcommand reload" -l socket -d 'Admin socket of the running proxy; overrides the configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand reload" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand reload" -l dry-run -d 'Show what a reload would change, and change nothing'
complete -c proscenium -n "__fish_proscenium_using_subcommand reload" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand reload" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand rollback" -l to -d 'The configuration, by its ID or the beginning of it [default: the last one before the active one]' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand rollback" -l socket -d 'Admin socket of the running proxy; overrides the configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand rollback" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand rollback" -l list -d 'List the stored configurations, the newest first'
complete -c proscenium -n "__fish_proscenium_using_subcommand rollback" -l write -d 'Replace the configuration file too, with its mode and its owner'
complete -c proscenium -n "__fish_proscenium_using_subcommand rollback" -l yes -d 'Apply it without a question'
complete -c proscenium -n "__fish_proscenium_using_subcommand rollback" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand rollback" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand reopen-logs" -l socket -d 'Admin socket of the running proxy; overrides the configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand reopen-logs" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand reopen-logs" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand reopen-logs" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand log-level" -l socket -d 'Admin socket of the running proxy; overrides the configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand log-level" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand log-level" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand log-level" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand status" -l socket -d 'Admin socket of the running proxy; overrides the configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand status" -l watch -d 'Repeat the command at this interval (default 2 seconds) until it is interrupted' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand status" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand status" -l exit-code -d 'Set the exit code by the most severe alarm, as monitoring plug-ins do: 0 none, 1 warning, 2 critical, 3 unknown'
complete -c proscenium -n "__fish_proscenium_using_subcommand status" -l members -d 'Print one line for each member, with its requests, durations and failures of the last minute'
complete -c proscenium -n "__fish_proscenium_using_subcommand status" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand events" -l since -d 'Show events since this time: a time (2030-01-31T08:00:00Z, 2030-01-31) or a duration before now (30m, 12h)' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand events" -l socket -d 'Admin socket of the running proxy; overrides the configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand events" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand events" -l follow -d 'Show new events too, until the command is interrupted; with --json, one object a line'
complete -c proscenium -n "__fish_proscenium_using_subcommand events" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand events" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand requests" -l socket -d 'Admin socket of the running proxy; overrides the configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand requests" -l watch -d 'Repeat the command at this interval (default 2 seconds) until it is interrupted' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand requests" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand requests" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand requests" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand certificates" -l socket -d 'Admin socket of the running proxy; overrides the configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand certificates" -l watch -d 'Repeat the command at this interval (default 2 seconds) until it is interrupted' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand certificates" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand certificates" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand certificates" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand trace" -l log -d 'Access log in format json or combined; default: the first file of the configuration in format json, or else combined' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand trace" -l watch -d 'Repeat the command at this interval (default 2 seconds) until it is interrupted' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand trace" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand trace" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand trace" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand top" -l socket -d 'Admin socket of the running proxy; overrides the configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand top" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand top" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand top" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand ui" -l listen -d 'Loopback address and port of the page; port 0 uses a free one' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand ui" -l socket -d 'Admin socket of the running proxy; overrides the configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand ui" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand ui" -l actions -d 'Allow changes from the page: drain members, put them back into service, block agents'
complete -c proscenium -n "__fish_proscenium_using_subcommand ui" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand ui" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand support-bundle" -l socket -d 'Admin socket of the running proxy; overrides the configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand support-bundle" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand support-bundle" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand support-bundle" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and not __fish_seen_subcommand_from show fetch accept help" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and not __fish_seen_subcommand_from show fetch accept help" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and not __fish_seen_subcommand_from show fetch accept help" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and not __fish_seen_subcommand_from show fetch accept help" -f -a "show" -d 'Show the active CRLs, those that drop revocations, and the state of fetching'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and not __fish_seen_subcommand_from show fetch accept help" -f -a "fetch" -d 'Fetch the CRLs from the CA now, and wait for the result'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and not __fish_seen_subcommand_from show fetch accept help" -f -a "accept" -d 'Accept that the CRLs of a CA drop revocations'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and not __fish_seen_subcommand_from show fetch accept help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from show" -l socket -d 'Admin socket of the running proxy; overrides the configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from show" -l watch -d 'Repeat the command at this interval (default 2 seconds) until it is interrupted' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from show" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from show" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from fetch" -l socket -d 'Admin socket of the running proxy; overrides the configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from fetch" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from fetch" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from fetch" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from accept" -l number -d 'Accept only the CRL with this number, as the alarm names it; default: the one that `status` shows now' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from accept" -l missing -d 'Accept only if this number of revocations is missing, as the alarm names it' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from accept" -l why -d 'Reason, for the log' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from accept" -l socket -d 'Admin socket of the running proxy; overrides the configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from accept" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from accept" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from accept" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show the active CRLs, those that drop revocations, and the state of fetching'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from help" -f -a "fetch" -d 'Fetch the CRLs from the CA now, and wait for the result'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from help" -f -a "accept" -d 'Accept that the CRLs of a CA drop revocations'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c proscenium -n "__fish_proscenium_using_subcommand ready" -l host -d 'All members on this host, in every pool' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand ready" -l socket -d 'Admin socket of the running proxy; overrides the configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand ready" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand ready" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand ready" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand drain" -l host -d 'All members on this host, in every pool' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand drain" -l socket -d 'Admin socket of the running proxy; overrides the configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand drain" -l without -d 'Proxy of the fleet that is not waited for, because it is switched off, for example; can be repeated' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand drain" -l timeout -d 'Longest time to wait; the members stay out of service afterwards' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand drain" -l why -d 'Reason, for the log and for `proscenium status`' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand drain" -l until -d 'Time at which the members become ready by themselves: a time (2030-01-31T08:00:00Z, 2030-01-31) or a duration (30m, 12h)' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand drain" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand drain" -l wait -d 'Wait until no request and no tunnel is left on the members'
complete -c proscenium -n "__fish_proscenium_using_subcommand drain" -l force -d 'Do it even if no available member is left in a pool, so that its requests get 503'
complete -c proscenium -n "__fish_proscenium_using_subcommand drain" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand drain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand maintenance" -l host -d 'All members on this host, in every pool' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand maintenance" -l socket -d 'Admin socket of the running proxy; overrides the configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand maintenance" -l without -d 'Proxy of the fleet that is not waited for, because it is switched off, for example; can be repeated' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand maintenance" -l timeout -d 'Longest time to wait; the members stay out of service afterwards' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand maintenance" -l why -d 'Reason, for the log and for `proscenium status`' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand maintenance" -l until -d 'Time at which the members become ready by themselves: a time (2030-01-31T08:00:00Z, 2030-01-31) or a duration (30m, 12h)' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand maintenance" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand maintenance" -l wait -d 'Wait until no request and no tunnel is left on the members'
complete -c proscenium -n "__fish_proscenium_using_subcommand maintenance" -l force -d 'Do it even if no available member is left in a pool, so that its requests get 503'
complete -c proscenium -n "__fish_proscenium_using_subcommand maintenance" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand maintenance" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand block" -l serial -d 'Serial number in hexadecimal; that of a CA certificate matches every certificate that the CA issued' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand block" -l issuer -d 'Issuer of the certificate, as `proscenium status --json` prints it (RFC 2253)' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand block" -l fingerprint -d 'SHA-256 fingerprint of the certificate, as `puppetserver ca list` prints it' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand block" -l file -d 'File of certnames, one a line, all of which are blocked with one change; `#` starts a comment' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand block" -l why -d 'Reason, for the log and for `proscenium blocks`' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand block" -l until -d 'End of the block: a time (2030-01-31T08:00:00Z, 2030-01-31) or a duration (12h, 7d)' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand block" -l socket -d 'Admin socket of the running proxy; overrides the configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand block" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand block" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand block" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand unblock" -l serial -d 'Serial number in hexadecimal; that of a CA certificate matches every certificate that the CA issued' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand unblock" -l issuer -d 'Issuer of the certificate, as `proscenium status --json` prints it (RFC 2253)' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand unblock" -l fingerprint -d 'SHA-256 fingerprint of the certificate, as `puppetserver ca list` prints it' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand unblock" -l socket -d 'Admin socket of the running proxy; overrides the configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand unblock" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand unblock" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand unblock" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand fleet; and not __fish_seen_subcommand_from key turn help" -l socket -d 'Admin socket of the running proxy; overrides the configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand fleet; and not __fish_seen_subcommand_from key turn help" -l watch -d 'Repeat the command at this interval (default 2 seconds) until it is interrupted' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand fleet; and not __fish_seen_subcommand_from key turn help" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand fleet; and not __fish_seen_subcommand_from key turn help" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand fleet; and not __fish_seen_subcommand_from key turn help" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand fleet; and not __fish_seen_subcommand_from key turn help" -f -a "key" -d 'Print a new key for the file in [fleet] key_file, which all proxies of the fleet have'
complete -c proscenium -n "__fish_proscenium_using_subcommand fleet; and not __fish_seen_subcommand_from key turn help" -f -a "turn" -d 'Run a command that stops or restarts this proxy, when it is its turn: one proxy of the fleet at a time'
complete -c proscenium -n "__fish_proscenium_using_subcommand fleet; and not __fish_seen_subcommand_from key turn help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c proscenium -n "__fish_proscenium_using_subcommand fleet; and __fish_seen_subcommand_from key" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand fleet; and __fish_seen_subcommand_from key" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand fleet; and __fish_seen_subcommand_from key" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand fleet; and __fish_seen_subcommand_from turn" -l timeout -d 'Longest time to wait for the turn, and for this proxy to be ready after the command; the command itself has no limit' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand fleet; and __fish_seen_subcommand_from turn" -l socket -d 'Admin socket of the running proxy; overrides the configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand fleet; and __fish_seen_subcommand_from turn" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand fleet; and __fish_seen_subcommand_from turn" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand fleet; and __fish_seen_subcommand_from turn" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand fleet; and __fish_seen_subcommand_from help" -f -a "key" -d 'Print a new key for the file in [fleet] key_file, which all proxies of the fleet have'
complete -c proscenium -n "__fish_proscenium_using_subcommand fleet; and __fish_seen_subcommand_from help" -f -a "turn" -d 'Run a command that stops or restarts this proxy, when it is its turn: one proxy of the fleet at a time'
complete -c proscenium -n "__fish_proscenium_using_subcommand fleet; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c proscenium -n "__fish_proscenium_using_subcommand blocks" -l socket -d 'Admin socket of the running proxy; overrides the configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand blocks" -l watch -d 'Repeat the command at this interval (default 2 seconds) until it is interrupted' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand blocks" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand blocks" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand blocks" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand who" -l serial -d 'Serial number of the certificate, in hexadecimal' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand who" -l issuer -d 'Issuer of the certificate, as `proscenium status --json` prints it (RFC 2253); without --serial, list the agents whose certificates it issued' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand who" -l socket -d 'Admin socket of the running proxy; overrides the configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand who" -l watch -d 'Repeat the command at this interval (default 2 seconds) until it is interrupted' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand who" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand who" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand who" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand refusals" -l since -d 'Show only clients refused within this time, for example 30m, 12h or 7d' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand refusals" -l socket -d 'Admin socket of the running proxy; overrides the configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand refusals" -l watch -d 'Repeat the command at this interval (default 2 seconds) until it is interrupted' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand refusals" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand refusals" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand refusals" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand version" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand version" -l json -d 'Print the result as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand version" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "init" -d 'Write a configuration for this machine, and print what to do on the CA server and on the compilers'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "run" -d 'Run the proxy until SIGTERM; SIGHUP reloads the configuration, certificates and CRLs'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "check" -d 'Test the configuration, the certificates, the CRLs and this host, and print every problem'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "explain" -d 'Show how the proxy would handle a request: path rule, class, route, access, pool, members'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "doctor" -d 'Test the deployment: files, certificates, CRLs, every member, and how members treat forged identity headers'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "config" -d 'Show the configuration'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "reload" -d 'Reload the configuration, certificates and CRLs of the running proxy, and wait for the result'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "rollback" -d 'Apply a configuration again that the running proxy has used before'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "reopen-logs" -d 'Reopen the log files of the running proxy, after log rotation has renamed them'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "log-level" -d 'Show or change the log level of the running proxy'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "status" -d 'Show the state of the running proxy: generation, alarms, listeners, pools, CRLs'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "events" -d 'Show what has happened in the last day: alarms, changes of members, reloads, operators\' changes, starts and stops'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "requests" -d 'Show requests in flight and in queues, and the slowest requests of the last hours'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "certificates" -d 'List certificates of the proxy and of agents that expire within 60 days, and CAs that expire within 90 days'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "trace" -d 'Show the requests of one agent as a timeline, run by run, from the access log'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "top" -d 'Show pools, members, queues, rates and refusals of the running proxy, live; q ends it'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "ui" -d 'Serve a page about the running proxy on a loopback address, until the terminal closes or an hour without a request'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "support-bundle" -d 'Write a file for a support request: status, metrics, lists and the active configuration, without keys'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "crl" -d 'Show the active CRLs, fetch CRLs from the CA, or accept that a CRL drops revocations'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "ready" -d 'Put a member back into service'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "drain" -d 'Send no new requests to a member; its current requests finish'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "maintenance" -d 'Take a member out of service; probes of its health continue'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "block" -d 'Refuse a certificate from now on, even if its CA has not revoked it'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "unblock" -d 'Remove a block'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "fleet" -d 'Show the proxies that share drains and blocks with this one, and in what they differ; make a key; take turns'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "blocks" -d 'List the blocks, with their times and reasons'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "who" -d 'Show an agent\'s certificate, verdict and recent requests; without an argument, list agents'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "refusals" -d 'List recently refused clients, with time, address, name and reason'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "version" -d 'Show the version'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from init run check explain doctor config reload rollback reopen-logs log-level status events requests certificates trace top ui support-bundle crl ready drain maintenance block unblock fleet blocks who refusals version help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and __fish_seen_subcommand_from config" -f -a "show" -d 'Print the settings of the configuration file and of the agent as TOML, or with --json as an object'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and __fish_seen_subcommand_from config" -f -a "diff" -d 'Show whether the files differ from what the running proxy uses; exit code 1 if they do'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and __fish_seen_subcommand_from crl" -f -a "show" -d 'Show the active CRLs, those that drop revocations, and the state of fetching'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and __fish_seen_subcommand_from crl" -f -a "fetch" -d 'Fetch the CRLs from the CA now, and wait for the result'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and __fish_seen_subcommand_from crl" -f -a "accept" -d 'Accept that the CRLs of a CA drop revocations'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and __fish_seen_subcommand_from fleet" -f -a "key" -d 'Print a new key for the file in [fleet] key_file, which all proxies of the fleet have'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and __fish_seen_subcommand_from fleet" -f -a "turn" -d 'Run a command that stops or restarts this proxy, when it is its turn: one proxy of the fleet at a time'

function __fish_proscenium_names -a kind
    set -l words (commandline -opc)
    set -l where
    argparse -i config= socket= -- $words 2>/dev/null
    set -q _flag_config; and set -a where --config $_flag_config
    set -q _flag_socket; and set -a where --socket $_flag_socket
    proscenium __complete $kind $where 2>/dev/null
end

complete -c proscenium -n "__fish_proscenium_using_subcommand ready drain maintenance" -f -a "(__fish_proscenium_names members)"
complete -c proscenium -n "__fish_proscenium_using_subcommand ready drain maintenance" -l host -r -f -a "(__fish_proscenium_names hosts)"
complete -c proscenium -n "__fish_proscenium_using_subcommand unblock" -f -a "(__fish_proscenium_names blocked)"
