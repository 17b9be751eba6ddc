# The machines to which module.bash applies the Puppet module in packaging/puppet.

# The proxy. The lab has started it, so the service has no service manager.
node /^module[^.]*-proxy\./ {
  class { 'proscenium':
    manage_package    => false,
    program           => $facts['lab_program'],
    user              => 'root',
    manage_key_access => false,
    config_path       => "${facts['lab_dir']}/proxy/proscenium.toml",
  }
  $proscenium = "${facts['lab_program']} %s --socket ${facts['lab_dir']}/proxy/admin.sock"
  Service <| title == 'proscenium' |> {
    provider => 'base',
    enable   => undef,
    status   => sprintf($proscenium, 'status'),
    start    => '/bin/false',
    stop     => '/bin/false',
    restart  => sprintf($proscenium, 'reload'),
  }
}

# The compiler m2, with the CA of `proscenium init --compiler-ca`.
node /^module[^.]*-compiler\./ {
  class { 'proscenium::compiler':
    proxy_ca     => file("${facts['lab_dir']}/separate/proxy-ca.pem"),
    proxy_ca_crl => file("${facts['lab_dir']}/separate/proxy-ca-crl.pem"),
    confdir      => "${facts['lab_dir']}/m2",
    ssldir       => "${facts['lab_dir']}/m2/ssl",
    certname     => 'm2.lab.test',
    address      => "${facts['lab_net']}.13",
    # As in config/puppetserver.conf.
    webserver    => { 'ssl-protocols' => ['TLSv1.2'] },
  }
}

# The CA server.
node /^module[^.]*-ca\./ {
  class { 'proscenium::ca':
    proxies         => ['puppet.lab.test'],
    confdir         => "${facts['lab_dir']}/ca",
    infra_inventory => "${facts['lab_dir']}/ca/cadir/infra_inventory.txt",
  }
}

# A machine on which the proxy uses the certificate of the agent, in Debian's ssldir.
node /^module[^.]*-key\./ {
  class { 'proscenium':
    settings       => {
      'certname'  => 'puppet.lab.test',
      'listeners' => { 'agents' => { 'address' => '127.0.0.1:8140' } },
      'pools'     => {
        'ca'        => { 'members' => ['ca.lab.test:8140'] },
        'compilers' => { 'members' => ['m1.lab.test:8140'] },
      },
    },
    manage_package => false,
    manage_service => false,
    program        => $facts['lab_program'],
    user           => 'daemon',
    check_options  => ['--files-only'],
    config_path    => '/var/lib/puppet/proscenium.toml',
  }
}
