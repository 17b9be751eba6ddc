# @summary Installs the package, which brings the service account and the unit. An upgrade restarts the service by itself.
# @api private
class proscenium::install {
  if $proscenium::manage_package {
    if $proscenium::package_source {
      $provider = $facts['os']['family'] ? {
        'Debian' => 'dpkg',
        default  => 'rpm',
      }
      $from = { 'source' => $proscenium::package_source, 'provider' => $provider }
    } else {
      $from = {}
    }
    package { $proscenium::package_name:
      ensure => $proscenium::package_ensure,
      *      => $from,
    }
  }
}
