# @summary Lets the service read the agent's private key, and writes the configuration file.
# @api private
class proscenium::config {
  $user = $proscenium::user
  $settings = $proscenium::settings

  if $proscenium::manage_key_access {
    $ssldir = $settings['ssldir'] ? {
      undef   => $proscenium::ssldir,
      default => $settings['ssldir'],
    }
    $certname = $settings['certname'] ? {
      undef   => $proscenium::certname,
      default => $settings['certname'],
    }
    $parent = regsubst($ssldir, '/[^/]+\z', '')
    $key = "${ssldir}/private_keys/${certname}.pem"

    # setfacl is in the package acl. Another module may manage it.
    unless defined(Package['acl']) {
      package { 'acl':
        ensure => installed,
      }
    }

    # An ACL, because the agent resets the owner, the group and the mode of its files on each run.
    exec {
      default:
        path    => ['/usr/sbin', '/usr/bin', '/sbin', '/bin'],
        unless  => [['runuser', '-u', $user, '--', 'test', '-r', $key]],
        require => Package['acl'],
        before  => File[$proscenium::config_path],
        ;
      'proscenium: directories of the private key':
        command => ['setfacl', '-m', "u:${user}:x", $parent, $ssldir, "${ssldir}/private_keys"],
        before  => Exec['proscenium: private key'],
        ;
      'proscenium: private key':
        command => ['setfacl', '-m', "u:${user}:r", $key],
        ;
    }
  }

  if $proscenium::fleet_key {
    $fleet = $settings['fleet']
    unless $fleet {
      fail('proscenium: fleet_key needs the table fleet in settings, which names its file')
    }
    file { $fleet['key_file']:
      ensure    => file,
      owner     => $user,
      group     => 'root',
      mode      => '0600',
      content   => $proscenium::fleet_key,
      show_diff => false,
      before    => File[$proscenium::config_path],
    }
  }

  $check = join([$proscenium::program, 'check', '--config', '%'] + $proscenium::check_options, ' ')
  file { $proscenium::config_path:
    ensure       => file,
    owner        => 'root',
    group        => 'root',
    mode         => '0644',
    content      => "# Managed by Puppet.\n${proscenium::to_toml($settings)}",
    validate_cmd => $check,
  }
}
