# @summary Drains, upgrades and readies one compiler after the other.
#
# The plan stops at the first error. It prints the proxies on which the compiler is still drained, and the command that
# makes it ready there. If a drain fails, the plan makes the compiler ready again on all proxies before it stops.
#
# The proxy refuses to drain the last available member of a pool, and the plan then stops too.
#
# @param compilers
#   The compilers, by the host names that the configuration of the proxies has.
# @param proxies
#   All proxies in front of these compilers.
# @param why
#   Reason, for the log and the status of the proxies.
# @param package
#   Package to upgrade.
# @param version
#   Version to install; the newest by default.
# @param service
#   Service to restart, if it does not have the name of the package.
# @param drain_timeout
#   How long the requests of a compiler may take to finish.
# @param up_timeout_seconds
#   How long a compiler may take until its health checks succeed.
# @param include_drained
#   Whether compilers that are drained or in maintenance before the plan starts are upgraded too. They are ready
#   afterwards.
# @param socket
#   Admin socket of the proxies, if it is not at its usual path.
plan proscenium::upgrade_compilers (
  TargetSpec                         $compilers,
  TargetSpec                         $proxies,
  String[1, 200]                     $why                = 'upgrade by proscenium::upgrade_compilers',
  String[1]                          $package            = 'puppetserver',
  Optional[String[1]]                $version            = undef,
  Optional[String[1]]                $service            = undef,
  Pattern[/\A[0-9]+(s|m|h)\z/]       $drain_timeout      = '10m',
  Integer[1, 99999]                  $up_timeout_seconds = 600,
  Boolean                            $include_drained    = false,
  Optional[Proscenium::Path]         $socket             = undef,
) {
  $upgrade = { 'package' => $package, 'version' => $version, 'service' => $service }.filter |$_, $value| {
    $value =~ NotUndef
  }
  $proxy = $socket ? {
    undef   => {},
    default => { 'socket' => $socket },
  }
  $drain = $proxy + { 'timeout' => $drain_timeout, 'why' => $why }
  $wait = $proxy + { 'timeout_seconds' => $up_timeout_seconds }

  # All must be up, and in service, before the first one is drained.
  $check = $proxy + { 'timeout_seconds' => 0, 'ready' => !$include_drained }
  $hosts = get_targets($compilers).map |$compiler| { $compiler.host }
  $hosts.each |$host| {
    run_task('proscenium::wait_up', $proxies, "Check ${host}", $check + { 'host' => $host })
  }

  get_targets($compilers).each |$compiler| {
    $host = $compiler.host
    $catch = { '_catch_errors' => true }
    $ready = $proxy + $catch + { 'host' => $host }
    [
      ['drain', $proxies, $drain + { 'host' => $host }],
      ['upgrade', $compiler, $upgrade],
      # Health checks continue while the compiler is drained.
      ['wait_up', $proxies, $wait + { 'host' => $host }],
      ['ready', $proxies, $ready],
    ].each |$step| {
      [$task, $targets, $parameters] = $step
      $results = run_task("proscenium::${task}", $targets, "${task} ${host}", $parameters + $catch)
      unless $results.ok {
        $drained = $task ? {
          # Also where the drain failed: a drain that times out leaves the compiler drained.
          'drain' => run_task('proscenium::ready', $proxies, "undo drain ${host}", $ready).error_set.names,
          'ready' => $results.error_set.names,
          default => get_targets($proxies).map |$target| { $target.name },
        }
        $errors = $results.error_set.results.map |$result| { "${result.target.name}: ${result.error.msg}" }
        $option = $socket ? { undef => '', default => " --socket ${socket}" }
        $command = "proscenium ready${option} --host ${host}"
        $left = $drained ? {
          []      => "${host} is in service on all proxies.",
          default => "${host} is still drained on ${drained.join(', ')}. When it works, run there: ${command}",
        }
        fail_plan(
          "${task} failed at ${host}. ${errors.join('; ')}. ${left}",
          'proscenium/upgrade-stopped',
          { 'compiler' => $host, 'step' => $task, 'drained_on' => $drained },
        )
      }
    }
  }

  return $hosts
}
