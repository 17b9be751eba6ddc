# @summary Lets a compiler trust the proxy's identity headers, and accept no client but the proxy.
#
# The class changes files only. Restart the service afterwards. A compiler that restarts fails the requests that it works
# on, so drain it first, as the plan `proscenium::upgrade_compilers` does.
#
# @example
#   class { 'proscenium::compiler':
#     proxy_ca     => file('profile/proxy-ca.pem'),
#     proxy_ca_crl => file('profile/proxy-ca-crl.pem'),
#   }
#
# @param proxy_ca
#   Certificate (PEM) of the CA that issued the proxy's certificate for compilers. This CA must serve no other purpose:
#   with the Puppet CA, every agent could claim any name in the headers.
# @param proxy_ca_crl
#   CRL (PEM) of that CA. It must stay valid: with an expired CRL the compiler refuses the proxy.
# @param confdir
#   Directory of the server's configuration, with `conf.d` and `services.d`.
# @param ssldir
#   The ssldir with the compiler's own certificate and key.
# @param certname
#   Name of that certificate.
# @param address
#   Address to listen on.
# @param port
#   Port to listen on.
# @param webserver
#   Further settings of `webserver`, such as `max-threads`. Settings that open another port are refused.
# @param disable_ca
#   Whether the class disables the CA service. A CA that trusts identity headers signs certificates for any client that
#   reaches it, so do not apply this class to the CA server.
class proscenium::compiler (
  Proscenium::Pem_certificate   $proxy_ca,
  Proscenium::Pem_crl           $proxy_ca_crl,
  Proscenium::Path              $confdir    = $facts['aio_agent_version'] ? {
    undef   => '/etc/puppet/puppetserver',
    default => '/etc/puppetlabs/puppetserver',
  },
  Proscenium::Path              $ssldir     = $facts['aio_agent_version'] ? {
    undef   => '/var/lib/puppet/ssl',
    default => '/etc/puppetlabs/puppet/ssl',
  },
  String[1]                     $certname   = $facts['clientcert'],
  String[1]                     $address    = '0.0.0.0',
  Proscenium::Port              $port       = 8140,
  Proscenium::Webserver         $webserver  = {},
  Boolean                       $disable_ca = true,
) {
  $ca_file = "${confdir}/proxy-ca.pem"
  $crl_file = "${confdir}/proxy-ca-crl.pem"
  $settings = {
    'access-log-config' => "${confdir}/request-logging.xml",
  } + $webserver + {
    'ssl-host'     => $address,
    'ssl-port'     => $port,
    'client-auth'  => 'need',
    'ssl-cert'     => "${ssldir}/certs/${certname}.pem",
    'ssl-key'      => "${ssldir}/private_keys/${certname}.pem",
    'ssl-ca-cert'  => $ca_file,
    'ssl-crl-path' => $crl_file,
  }

  file {
    default:
      ensure => file,
      owner  => 'root',
      group  => 'root',
      mode   => '0644',
      ;
    $ca_file:
      content => $proxy_ca,
      ;
    $crl_file:
      content => $proxy_ca_crl,
      ;
    # The whole file: a remaining `port` would open a port on which any client can forge headers.
    "${confdir}/conf.d/webserver.conf":
      content => epp('proscenium/webserver.conf.epp', { 'settings' => $settings }),
      require => File[$ca_file, $crl_file],
      ;
  }

  # One key: the site's own rules stay as they are. After the port is closed to other clients.
  proscenium_hocon { "${confdir}/conf.d/auth.conf authorization.allow-header-cert-info":
    path    => "${confdir}/conf.d/auth.conf",
    setting => 'authorization.allow-header-cert-info',
    value   => true,
    require => File["${confdir}/conf.d/webserver.conf"],
  }

  if $disable_ca {
    file { "${confdir}/services.d/ca.cfg":
      ensure  => file,
      owner   => 'root',
      group   => 'root',
      mode    => '0644',
      content => epp('proscenium/ca.cfg.epp'),
      before  => Proscenium_hocon["${confdir}/conf.d/auth.conf authorization.allow-header-cert-info"],
    }
  }
}
