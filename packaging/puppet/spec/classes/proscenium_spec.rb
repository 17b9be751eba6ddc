# frozen_string_literal: true

require 'spec_helper'

describe 'proscenium' do
  let(:params) { { 'settings' => SIX_LINES } }

  { 'Debian' => DEBIAN, 'RedHat' => REDHAT }.each do |family, facts|
    context "on #{family}" do
      let(:facts) { facts }

      it { is_expected.to compile.with_all_deps }
      it { is_expected.to contain_package('proscenium').with_ensure('installed').without_source }
      it { is_expected.to contain_class('proscenium::install').that_comes_before('Class[proscenium::config]') }
      it { is_expected.to contain_class('proscenium::config').that_notifies('Class[proscenium::service]') }

      it 'writes the settings after a check' do
        is_expected.to contain_file('/etc/proscenium/proscenium.toml').with(
          owner: 'root',
          mode: '0644',
          validate_cmd: '/usr/bin/proscenium check --config % --user proscenium',
          content: <<~TOML,
            # Managed by Puppet.
            [listeners.agents]
            address = "0.0.0.0:8140"

            [pools.ca]
            members = ["ca.example.com:8140"]

            [pools.compilers]
            members = ["c1.example.com:8140", "c2.example.com:8140"]
          TOML
        )
      end

      it 'reloads the service, and does not restart it' do
        is_expected.to contain_service('proscenium').with(
          ensure: 'running', enable: true, restart: 'systemctl reload proscenium',
        )
      end

      it 'opens the key before the check needs it' do
        is_expected.to contain_package('acl')
        is_expected.to contain_exec('proscenium: private key')
          .that_comes_before('File[/etc/proscenium/proscenium.toml]')
          .that_requires('Exec[proscenium: directories of the private key]')
      end
    end
  end

  {
    DEBIAN => ['/var/lib/puppet', '/var/lib/puppet/ssl'],
    REDHAT => ['/etc/puppetlabs/puppet', '/etc/puppetlabs/puppet/ssl'],
  }.each do |facts, (parent, ssldir)|
    context "with the ssldir #{ssldir}" do
      let(:facts) { facts }

      it 'opens the directories and the key of the agent, and nothing else' do
        key = "#{ssldir}/private_keys/puppet.example.com.pem"
        unless_readable = [['runuser', '-u', 'proscenium', '--', 'test', '-r', key]]
        is_expected.to contain_exec('proscenium: directories of the private key').with(
          command: ['setfacl', '-m', 'u:proscenium:x', parent, ssldir, "#{ssldir}/private_keys"], unless: unless_readable,
        )
        is_expected.to contain_exec('proscenium: private key').with(
          command: ['setfacl', '-m', 'u:proscenium:r', key], unless: unless_readable,
        )
      end
    end
  end

  context 'with an ssldir and a certname in the settings' do
    let(:params) { { 'settings' => SIX_LINES.merge('ssldir' => '/etc/proscenium/ssl', 'certname' => 'front') } }

    it 'opens that key' do
      is_expected.to contain_exec('proscenium: private key')
        .with_command(['setfacl', '-m', 'u:proscenium:r', '/etc/proscenium/ssl/private_keys/front.pem'])
    end
  end

  context 'without access to the agent key' do
    let(:params) { super().merge('manage_key_access' => false) }

    it { is_expected.not_to contain_package('acl') }
    it { is_expected.to have_exec_resource_count(0) }
  end

  context 'with a fleet' do
    fleet = {
      'etcd' => ['https://etcd1.example.com:2379'], 'site' => 'dc1', 'key_file' => '/etc/proscenium/fleet.key',
    }
    let(:params) do
      { 'settings' => SIX_LINES.merge('fleet' => fleet), 'fleet_key' => sensitive("#{'A' * 43}=\n") }
    end

    it 'writes the key file for the account of the service only, before the check needs it' do
      is_expected.to contain_file('/etc/proscenium/fleet.key').with(
        owner: 'proscenium', mode: '0600', show_diff: false, content: sensitive("#{'A' * 43}=\n"),
      ).that_comes_before('File[/etc/proscenium/proscenium.toml]')
    end

    it { is_expected.to contain_file('/etc/proscenium/proscenium.toml').with_content(/^\[fleet\]$/) }
  end

  context 'with a key of a fleet and no fleet' do
    let(:params) { super().merge('fleet_key' => sensitive('A')) }

    it { is_expected.to compile.and_raise_error(/fleet_key needs the table fleet/) }
  end

  context 'when another module manages acl' do
    let(:pre_condition) { "package { 'acl': ensure => latest }" }

    it { is_expected.to compile.with_all_deps }
  end

  { DEBIAN => 'dpkg', REDHAT => 'rpm' }.each do |facts, provider|
    context "with a package file for #{provider}" do
      let(:facts) { facts }
      let(:params) { super().merge('package_source' => '/srv/proscenium.package', 'package_ensure' => 'latest') }

      it do
        is_expected.to contain_package('proscenium')
          .with(ensure: 'latest', source: '/srv/proscenium.package', provider: provider)
      end
    end
  end

  context 'when it manages neither package nor service' do
    let(:params) { super().merge('manage_package' => false, 'manage_service' => false, 'config_path' => '/srv/p.toml') }

    it { is_expected.not_to contain_package('proscenium') }
    it { is_expected.not_to contain_service('proscenium') }
    it { is_expected.to contain_file('/srv/p.toml') }
  end

  context 'with other options of the check' do
    let(:params) { super().merge('program' => '/opt/proscenium', 'check_options' => ['--files-only']) }

    it do
      is_expected.to contain_file('/etc/proscenium/proscenium.toml')
        .with_validate_cmd('/opt/proscenium check --config % --files-only')
    end
  end

  {
    'an unknown setting' => [{ 'settings' => SIX_LINES.merge('worker' => 4) }, /unrecognized key 'worker'/],
    'no settings' => [{}, /settings/],
    'a check option for a shell' => [{ 'settings' => SIX_LINES, 'check_options' => ['; true'] }, /check_options/],
    'an account with blanks' => [{ 'settings' => SIX_LINES, 'user' => 'a b' }, /user/],
  }.each do |name, (params, message)|
    context "with #{name}" do
      let(:params) { params }

      it { is_expected.to compile.and_raise_error(message) }
    end
  end
end
