# @summary Upgrades, restarts or reloads one proxy of a fleet after the other.
#
# Each proxy does this when it is its turn (`proscenium fleet turn`): all other proxies of the fleet are ready, and no
# other operator, plan or agent run restarts one of them. So several of these plans may run at the same time.
#
# The plan stops at the first error, and prints the proxies that it has not reached.
#
# @param proxies
#   The proxies, in this order. All of them have `[fleet]` with the same site.
# @param action
#   What to do on each proxy.
# @param version
#   Version to install; the newest by default.
# @param turn_timeout
#   How long a proxy may wait for its turn, and until it is ready afterwards.
# @param socket
#   Admin socket of the proxies, if it is not at its usual path.
plan proscenium::upgrade_proxies (
  TargetSpec                            $proxies,
  Enum['upgrade', 'restart', 'reload']  $action       = 'upgrade',
  Optional[String[1]]                   $version      = undef,
  Pattern[/\A[0-9]+(s|m|h)\z/]          $turn_timeout = '30m',
  Optional[Proscenium::Path]            $socket       = undef,
) {
  $given = { 'version' => $version, 'socket' => $socket }.filter |$_, $value| { $value =~ NotUndef }
  $parameters = { 'action' => $action, 'timeout' => $turn_timeout, '_catch_errors' => true } + $given

  $names = get_targets($proxies).map |$proxy| { $proxy.name }
  $names.each |$index, $name| {
    $results = run_task('proscenium::turn', $name, "${action} ${name}", $parameters)
    unless $results.ok {
      $errors = $results.error_set.results.map |$result| { $result.error.msg }
      $left = $names[$index + 1, -1]
      $not_reached = $left ? {
        []      => 'It was the last one.',
        default => "Not reached: ${left.join(', ')}.",
      }
      fail_plan(
        "${action} failed at ${name}. ${errors.join('; ')}. ${not_reached} Look at ${name} with: proscenium fleet",
        'proscenium/upgrade-stopped',
        { 'proxy' => $name, 'not_reached' => $left },
      )
    }
  }

  return $names
}
