# @summary Drains, upgrades and readies one compiler after the other.
#
# The plan stops at the first error. The compiler at which it stops remains drained: it gets no requests, and the other
# compilers serve the agents. Fix it, and run `proscenium ready` on the proxies, or run the plan again.
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

  # All must be up before the first one is drained.
  $hosts = get_targets($compilers).map |$compiler| { $compiler.host }
  $hosts.each |$host| {
    run_task('proscenium::wait_up', $proxies, "Check ${host}", $proxy + { 'host' => $host, 'timeout_seconds' => 0 })
  }

  get_targets($compilers).each |$compiler| {
    $member = { 'host' => $compiler.host }
    run_task('proscenium::drain', $proxies, "Drain ${compiler.host}", $drain + $member)
    run_task('proscenium::upgrade', $compiler, "Upgrade ${compiler.host}", $upgrade)
    # Health checks continue while the compiler is drained.
    run_task('proscenium::wait_up', $proxies, "Wait for ${compiler.host}", $wait + $member)
    run_task('proscenium::ready', $proxies, "Ready ${compiler.host}", $proxy + $member)
  }

  return $hosts
}
