# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_proscenium_global_optspecs
    string join \n config= h/help V/version
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
complete -c proscenium -n "__fish_proscenium_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_needs_command" -s V -l version -d 'Print version'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "run" -d 'Serve until SIGTERM; SIGHUP reads configuration, certificates and CRLs again'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "check" -d 'Test configuration, certificates, CRLs and host as a start would, and print every problem'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "explain" -d 'Show where a request would go, and why: path rule, class, route, access, pool, members'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "doctor" -d 'Prove the deployment: files, certificates, lists, every member, and what members do with forged identities'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "config" -d 'Look at the configuration'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "reload" -d 'Have the running proxy read configuration, certificates and CRLs again, and wait for the outcome'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "reopen-logs" -d 'Have the running proxy open its log files again, after a rotation has renamed them'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "log-level" -d 'Show which events the running proxy logs, or change it until the proxy ends'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "status" -d 'Tell how the running proxy does: generation, listeners, pools, CRLs'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "crl" -d 'Look at the CRLs in force, fetch them from the CA, or accept one that was refused'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "ready" -d 'Let a member have requests again'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "drain" -d 'Let a member finish what it has and give it no more'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "maintenance" -d 'Take a member out: no requests, no probes'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "block" -d 'Keep a certificate out from now on, whatever its CA\'s list says'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "unblock" -d 'Lift a block'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "blocks" -d 'Tell who is blocked, since when and why'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "who" -d 'Tell what is known of an agent or a certificate and what would be decided now; of nobody in particular: who was seen'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "refusals" -d 'List the clients that the proxy refused recently: when, from where, under which name, and why'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "version" -d 'Tell the version'
complete -c proscenium -n "__fish_proscenium_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c proscenium -n "__fish_proscenium_using_subcommand run" -l ssldir -d 'The Puppet agent\'s ssldir, in place of the file\'s' -r -f -a "(__fish_complete_directories)"
complete -c proscenium -n "__fish_proscenium_using_subcommand run" -l certname -d 'The certname whose certificate in the ssldir is used, in place of the file\'s' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand run" -l log -d 'Which events are told: error, warn, info, debug, trace, or by part (`info,proxy=debug`)' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c proscenium -n "__fish_proscenium_using_subcommand run" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand check" -l user -d 'Test with the rights of this account, that of the service; needs root' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand check" -l ssldir -d 'The Puppet agent\'s ssldir, in place of the file\'s' -r -f -a "(__fish_complete_directories)"
complete -c proscenium -n "__fish_proscenium_using_subcommand check" -l certname -d 'The certname whose certificate in the ssldir is used, in place of the file\'s' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand check" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand check" -l files-only -d 'Leave out the tests of the host: addresses, log files, admin socket, state directory'
complete -c proscenium -n "__fish_proscenium_using_subcommand check" -l strict -d 'Fail on warnings too, with exit code 78'
complete -c proscenium -n "__fish_proscenium_using_subcommand check" -l json -d 'Print the result, problems and facts as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand explain" -l method -d 'Method of the request' -r -f -a "GET\t''
HEAD\t''
POST\t''
PUT\t''
DELETE\t''"
complete -c proscenium -n "__fish_proscenium_using_subcommand explain" -l cert -d 'The client shows this certificate (PEM), judged as at a handshake' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand explain" -l certname -d 'The client is verified under this certname, unless that is blocked; without --cert and --certname it shows no certificate' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand explain" -l issuer -d 'Who signed that certname\'s certificate (RFC 2253), for access rules on `issuer`' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand explain" -l extension -d 'An extension of that certname\'s certificate, for access rules on `extension`; may be given several times' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand explain" -l source -d 'The client\'s address, for conditions on `source` and for pools that pick members by it' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand explain" -l sni -d 'The server name that the client asked for in the TLS handshake, for conditions on `sni`' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand explain" -l header -d 'A header field of the request, `Cookie: NAME=VALUE` among them; may be given several times' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand explain" -l ssldir -d 'The Puppet agent\'s ssldir, in place of the file\'s' -r -f -a "(__fish_complete_directories)"
complete -c proscenium -n "__fish_proscenium_using_subcommand explain" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand explain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand doctor" -l agent-cert -d 'Certificate of an ordinary agent (PEM): members must refuse it; without one that is not proved' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand doctor" -l agent-key -d 'The key of that certificate' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand doctor" -l plain-port -d 'A port where members\' hosts may have left plain HTTP open, beside that of the member; several with commas' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand doctor" -l tls-port -d 'A port where members\' hosts may be open over TLS, beside that of the member; several with commas' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand doctor" -l ssldir -d 'The Puppet agent\'s ssldir, in place of the file\'s' -r -f -a "(__fish_complete_directories)"
complete -c proscenium -n "__fish_proscenium_using_subcommand doctor" -l certname -d 'The certname whose certificate in the ssldir is used, in place of the file\'s' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand doctor" -l socket -d 'Admin socket of the running proxy, in place of the one that the configuration file names' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand doctor" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand doctor" -l json -d 'Findings and what passed as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and not __fish_seen_subcommand_from show help" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and not __fish_seen_subcommand_from show help" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and not __fish_seen_subcommand_from show help" -f -a "show" -d 'Print the configuration in effect as TOML'
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and not __fish_seen_subcommand_from show help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and __fish_seen_subcommand_from show" -l ssldir -d 'The Puppet agent\'s ssldir, in place of the file\'s' -r -f -a "(__fish_complete_directories)"
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and __fish_seen_subcommand_from show" -l certname -d 'The certname whose certificate in the ssldir is used, in place of the file\'s' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and __fish_seen_subcommand_from show" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and __fish_seen_subcommand_from show" -l defaults -d 'Every setting, not only those that differ from their defaults'
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "show" -d 'Print the configuration in effect as TOML'
complete -c proscenium -n "__fish_proscenium_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c proscenium -n "__fish_proscenium_using_subcommand reload" -l socket -d 'Admin socket of the running proxy, in place of the one that the configuration file names' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand reload" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand reload" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand reopen-logs" -l socket -d 'Admin socket of the running proxy, in place of the one that the configuration file names' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand reopen-logs" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand reopen-logs" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand log-level" -l socket -d 'Admin socket of the running proxy, in place of the one that the configuration file names' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand log-level" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand log-level" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand status" -l socket -d 'Admin socket of the running proxy, in place of the one that the configuration file names' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand status" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand status" -l json -d 'The whole answer as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand status" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and not __fish_seen_subcommand_from show fetch accept help" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and not __fish_seen_subcommand_from show fetch accept help" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and not __fish_seen_subcommand_from show fetch accept help" -f -a "show" -d 'Tell the CRLs in force, how they are fetched, and which ones are refused'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and not __fish_seen_subcommand_from show fetch accept help" -f -a "fetch" -d 'Have the running proxy ask the CA now, and wait for the outcome'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and not __fish_seen_subcommand_from show fetch accept help" -f -a "accept" -d 'Put a refused CRL in force, though it takes something back'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and not __fish_seen_subcommand_from show fetch accept help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from show" -l socket -d 'Admin socket of the running proxy, in place of the one that the configuration file names' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from show" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from show" -l json -d 'The whole answer as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from fetch" -l socket -d 'Admin socket of the running proxy, in place of the one that the configuration file names' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from fetch" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from fetch" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from accept" -l why -d 'Why, for the log' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from accept" -l socket -d 'Admin socket of the running proxy, in place of the one that the configuration file names' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from accept" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from accept" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from help" -f -a "show" -d 'Tell the CRLs in force, how they are fetched, and which ones are refused'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from help" -f -a "fetch" -d 'Have the running proxy ask the CA now, and wait for the outcome'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from help" -f -a "accept" -d 'Put a refused CRL in force, though it takes something back'
complete -c proscenium -n "__fish_proscenium_using_subcommand crl; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c proscenium -n "__fish_proscenium_using_subcommand ready" -l socket -d 'Admin socket of the running proxy, in place of the one that the configuration file names' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand ready" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand ready" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand drain" -l socket -d 'Admin socket of the running proxy, in place of the one that the configuration file names' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand drain" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand drain" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand maintenance" -l socket -d 'Admin socket of the running proxy, in place of the one that the configuration file names' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand maintenance" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand maintenance" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand block" -l serial -d 'The certificate with this serial, in hexadecimal; of a CA: all that it issued' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand block" -l issuer -d 'Who issued that certificate, as `proscenium status --json` spells CAs (RFC 2253)' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand block" -l fingerprint -d 'The certificate with this SHA-256, as `puppetserver ca list` tells it' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand block" -l why -d 'Why: for the log, and for who looks at the list later' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand block" -l until -d 'When it ends by itself: 2030-01-31T08:00:00Z, 2030-01-31, or how long, as 12h or 7d' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand block" -l socket -d 'Admin socket of the running proxy, in place of the one that the configuration file names' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand block" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand block" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand unblock" -l serial -d 'The certificate with this serial, in hexadecimal; of a CA: all that it issued' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand unblock" -l issuer -d 'Who issued that certificate, as `proscenium status --json` spells CAs (RFC 2253)' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand unblock" -l fingerprint -d 'The certificate with this SHA-256, as `puppetserver ca list` tells it' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand unblock" -l socket -d 'Admin socket of the running proxy, in place of the one that the configuration file names' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand unblock" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand unblock" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand blocks" -l socket -d 'Admin socket of the running proxy, in place of the one that the configuration file names' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand blocks" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand blocks" -l json -d 'The list as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand blocks" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand who" -l serial -d 'The certificate with this serial, in hexadecimal' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand who" -l issuer -d 'Who issued that certificate, as `proscenium status --json` spells CAs (RFC 2253)' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand who" -l socket -d 'Admin socket of the running proxy, in place of the one that the configuration file names' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand who" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand who" -l json -d 'The answer as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand who" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand refusals" -l since -d 'Only clients that were refused within this time: 30m, 12h or 7d' -r -f
complete -c proscenium -n "__fish_proscenium_using_subcommand refusals" -l socket -d 'Admin socket of the running proxy, in place of the one that the configuration file names' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand refusals" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand refusals" -l json -d 'The answer as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand refusals" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c proscenium -n "__fish_proscenium_using_subcommand version" -l config -d 'Configuration file' -r -F
complete -c proscenium -n "__fish_proscenium_using_subcommand version" -l json -d 'Print the version as JSON'
complete -c proscenium -n "__fish_proscenium_using_subcommand version" -s h -l help -d 'Print help'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from run check explain doctor config reload reopen-logs log-level status crl ready drain maintenance block unblock blocks who refusals version help" -f -a "run" -d 'Serve until SIGTERM; SIGHUP reads configuration, certificates and CRLs again'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from run check explain doctor config reload reopen-logs log-level status crl ready drain maintenance block unblock blocks who refusals version help" -f -a "check" -d 'Test configuration, certificates, CRLs and host as a start would, and print every problem'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from run check explain doctor config reload reopen-logs log-level status crl ready drain maintenance block unblock blocks who refusals version help" -f -a "explain" -d 'Show where a request would go, and why: path rule, class, route, access, pool, members'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from run check explain doctor config reload reopen-logs log-level status crl ready drain maintenance block unblock blocks who refusals version help" -f -a "doctor" -d 'Prove the deployment: files, certificates, lists, every member, and what members do with forged identities'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from run check explain doctor config reload reopen-logs log-level status crl ready drain maintenance block unblock blocks who refusals version help" -f -a "config" -d 'Look at the configuration'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from run check explain doctor config reload reopen-logs log-level status crl ready drain maintenance block unblock blocks who refusals version help" -f -a "reload" -d 'Have the running proxy read configuration, certificates and CRLs again, and wait for the outcome'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from run check explain doctor config reload reopen-logs log-level status crl ready drain maintenance block unblock blocks who refusals version help" -f -a "reopen-logs" -d 'Have the running proxy open its log files again, after a rotation has renamed them'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from run check explain doctor config reload reopen-logs log-level status crl ready drain maintenance block unblock blocks who refusals version help" -f -a "log-level" -d 'Show which events the running proxy logs, or change it until the proxy ends'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from run check explain doctor config reload reopen-logs log-level status crl ready drain maintenance block unblock blocks who refusals version help" -f -a "status" -d 'Tell how the running proxy does: generation, listeners, pools, CRLs'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from run check explain doctor config reload reopen-logs log-level status crl ready drain maintenance block unblock blocks who refusals version help" -f -a "crl" -d 'Look at the CRLs in force, fetch them from the CA, or accept one that was refused'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from run check explain doctor config reload reopen-logs log-level status crl ready drain maintenance block unblock blocks who refusals version help" -f -a "ready" -d 'Let a member have requests again'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from run check explain doctor config reload reopen-logs log-level status crl ready drain maintenance block unblock blocks who refusals version help" -f -a "drain" -d 'Let a member finish what it has and give it no more'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from run check explain doctor config reload reopen-logs log-level status crl ready drain maintenance block unblock blocks who refusals version help" -f -a "maintenance" -d 'Take a member out: no requests, no probes'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from run check explain doctor config reload reopen-logs log-level status crl ready drain maintenance block unblock blocks who refusals version help" -f -a "block" -d 'Keep a certificate out from now on, whatever its CA\'s list says'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from run check explain doctor config reload reopen-logs log-level status crl ready drain maintenance block unblock blocks who refusals version help" -f -a "unblock" -d 'Lift a block'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from run check explain doctor config reload reopen-logs log-level status crl ready drain maintenance block unblock blocks who refusals version help" -f -a "blocks" -d 'Tell who is blocked, since when and why'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from run check explain doctor config reload reopen-logs log-level status crl ready drain maintenance block unblock blocks who refusals version help" -f -a "who" -d 'Tell what is known of an agent or a certificate and what would be decided now; of nobody in particular: who was seen'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from run check explain doctor config reload reopen-logs log-level status crl ready drain maintenance block unblock blocks who refusals version help" -f -a "refusals" -d 'List the clients that the proxy refused recently: when, from where, under which name, and why'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from run check explain doctor config reload reopen-logs log-level status crl ready drain maintenance block unblock blocks who refusals version help" -f -a "version" -d 'Tell the version'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and not __fish_seen_subcommand_from run check explain doctor config reload reopen-logs log-level status crl ready drain maintenance block unblock blocks who refusals version help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and __fish_seen_subcommand_from config" -f -a "show" -d 'Print the configuration in effect as TOML'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and __fish_seen_subcommand_from crl" -f -a "show" -d 'Tell the CRLs in force, how they are fetched, and which ones are refused'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and __fish_seen_subcommand_from crl" -f -a "fetch" -d 'Have the running proxy ask the CA now, and wait for the outcome'
complete -c proscenium -n "__fish_proscenium_using_subcommand help; and __fish_seen_subcommand_from crl" -f -a "accept" -d 'Put a refused CRL in force, though it takes something back'
