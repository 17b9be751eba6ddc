# @summary Installs the package, which has the service account and the unit. Its upgrade restarts the service.
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
