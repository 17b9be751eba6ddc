# @summary Prepares the CA server for the proxy.
#
# The CA does not trust identity headers. It renews agents' certificates for the proxies in its inventory of infrastructure
# nodes, which the proxy needs for `[ca] renewal`. The class changes files only: restart the CA's service after a change of
# auth.conf.
#
# @example
#   class { 'proscenium::ca':
#     proxies => ['puppet.example.com'],
#   }
#
# @param proxies
#   Certnames of the certificates that the proxies use towards the CA.
# @param confdir
#   Directory of the server's configuration, with `conf.d`.
# @param infra_inventory
#   The file `infra-nodes-path` of ca.conf. The class adds lines and removes none.
class proscenium::ca (
  Array[Proscenium::Certname, 1] $proxies,
  Proscenium::Path               $confdir         = $facts['aio_agent_version'] ? {
    undef   => '/etc/puppet/puppetserver',
    default => '/etc/puppetlabs/puppetserver',
  },
  Proscenium::Path               $infra_inventory = "${confdir}/ca/infra_inventory.txt",
) {
  proscenium_hocon { "${confdir}/conf.d/auth.conf authorization.allow-header-cert-info":
    path    => "${confdir}/conf.d/auth.conf",
    setting => 'authorization.allow-header-cert-info',
    value   => false,
  }

  $proxies.unique.each |$proxy| {
    # The last line of the file may have no end.
    $add_line = 'touch "$2" && sed -i -e \'$a\\\' "$2" && echo "$1" >>"$2"'
    exec { "proscenium: ${proxy} in the infra inventory":
      path    => ['/usr/bin', '/bin'],
      command => ['sh', '-c', $add_line, 'sh', $proxy, $infra_inventory],
      unless  => [['grep', '-qxF', '-e', $proxy, $infra_inventory]],
    }
  }
}
