# @summary Installs, configures and runs Proscenium, the TLS reverse proxy for Puppet.
#
# @example Six lines of settings, with the certificate of the machine's agent
#   class { 'proscenium':
#     settings => {
#       'listeners' => { 'agents' => { 'address' => '0.0.0.0:8140' } },
#       'pools'     => {
#         'ca'        => { 'members' => ['ca.example.com:8140'] },
#         'compilers' => { 'members' => ['c1.example.com:8140', 'c2.example.com:8140'] },
#       },
#     },
#   }
#
# @param settings
#   The configuration file as a hash. docs/configuration.md of the project describes every key.
# @param manage_package
#   Whether the class installs the package.
# @param package_name
#   Name of the package.
# @param package_ensure
#   State of the package: `installed`, `latest` or a version.
# @param package_source
#   Path of a .deb or .rpm file on the machine, if no repository has the package.
# @param program
#   Path of the program, which checks the configuration.
# @param user
#   Account of the service.
# @param config_path
#   Path of the configuration file.
# @param check_options
#   Options of `proscenium check`, which must accept the configuration before it replaces the old one.
# @param manage_key_access
#   Whether the class lets the account of the service read the private key of the machine's Puppet agent. Set it to
#   false if the proxy has certificates of its own for clients and for members.
# @param ssldir
#   The ssldir of the Puppet agent, if `settings` has none.
# @param certname
#   Name of the agent's certificate, if `settings` has none.
# @param fleet_key
#   Content of the key file of `[fleet]`, the same on all proxies: keys that `openssl rand -base64 32` prints, one a line.
#   The class writes it to the path that `settings` names, readable by the account of the service only.
# @param manage_service
#   Whether the class enables and starts the service, and reloads it after a change of its configuration.
# @param service_name
#   Name of the service.
# @param service_ensure
#   State of the service.
# @param service_enable
#   Whether the service starts when the machine does.
class proscenium (
  Proscenium::Settings         $settings,
  Boolean                      $manage_package    = true,
  String[1]                    $package_name      = 'proscenium',
  String[1]                    $package_ensure    = 'installed',
  Optional[Proscenium::Path]   $package_source    = undef,
  Proscenium::Path             $program           = '/usr/bin/proscenium',
  Proscenium::Account          $user              = 'proscenium',
  Proscenium::Path             $config_path       = '/etc/proscenium/proscenium.toml',
  Array[Proscenium::Shellword] $check_options     = ['--user', $user],
  Boolean                      $manage_key_access = true,
  Proscenium::Path             $ssldir            = $facts['aio_agent_version'] ? {
    undef   => '/var/lib/puppet/ssl',
    default => '/etc/puppetlabs/puppet/ssl',
  },
  String[1]                    $certname          = $facts['clientcert'],
  Optional[Sensitive[String[1]]] $fleet_key       = undef,
  Boolean                      $manage_service    = true,
  String[1]                    $service_name      = 'proscenium',
  Enum['running', 'stopped']   $service_ensure    = 'running',
  Boolean                      $service_enable    = true,
) {
  contain proscenium::install
  contain proscenium::config
  contain proscenium::service

  Class['proscenium::install'] -> Class['proscenium::config'] ~> Class['proscenium::service']
}
