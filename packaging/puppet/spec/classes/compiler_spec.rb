# frozen_string_literal: true

require 'spec_helper'

describe 'proscenium::compiler' do
  let(:facts) { DEBIAN.merge(clientcert: 'c1.example.com') }
  let(:confdir) { '/etc/puppet/puppetserver' }
  let(:webserver) { contain_file("#{confdir}/conf.d/webserver.conf") }
  let(:params) do
    {
      'proxy_ca' => "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
      'proxy_ca_crl' => "-----BEGIN X509 CRL-----\nMIIB\n-----END X509 CRL-----\n",
    }
  end

  it { is_expected.to compile.with_all_deps }

  it 'opens one port, for clients with a certificate of the separate CA' do
    is_expected.to webserver.with_content(<<~HOCON)
      # Managed by Puppet. The server accepts only the proxy, whose certificate is of the CA in ssl-ca-cert. Do not add
      # `host` or `port`: a client of another port could claim any name in the identity headers.
      webserver: {
          access-log-config: "/etc/puppet/puppetserver/request-logging.xml"
          ssl-host: "0.0.0.0"
          ssl-port: 8140
          client-auth: "need"
          ssl-cert: "/var/lib/puppet/ssl/certs/c1.example.com.pem"
          ssl-key: "/var/lib/puppet/ssl/private_keys/c1.example.com.pem"
          ssl-ca-cert: "/etc/puppet/puppetserver/proxy-ca.pem"
          ssl-crl-path: "/etc/puppet/puppetserver/proxy-ca-crl.pem"
      }
    HOCON
    is_expected.to contain_file('/etc/puppet/puppetserver/proxy-ca.pem').with_content(params['proxy_ca'])
    is_expected.to contain_file('/etc/puppet/puppetserver/proxy-ca-crl.pem').with_content(params['proxy_ca_crl'])
  end

  it 'trusts the headers only after the port is closed to others, and without a CA service' do
    is_expected.to contain_proscenium_hocon("#{confdir}/conf.d/auth.conf authorization.allow-header-cert-info")
      .with(path: "#{confdir}/conf.d/auth.conf", setting: 'authorization.allow-header-cert-info', value: true)
      .that_requires(["File[#{confdir}/conf.d/webserver.conf]", "File[#{confdir}/services.d/ca.cfg]"])
    is_expected.to contain_file("#{confdir}/services.d/ca.cfg")
      .with_content(/^puppetlabs\.services\.ca\.certificate-authority-disabled-service/)
  end

  it 'restarts nothing' do
    is_expected.to have_service_resource_count(0)
    is_expected.to have_exec_resource_count(0)
  end

  context "with the paths of Puppet's own packages" do
    let(:facts) { REDHAT.merge(clientcert: 'c1.example.com') }

    let(:confdir) { '/etc/puppetlabs/puppetserver' }

    it { is_expected.to webserver.with_content(%r{ssl-cert: "/etc/puppetlabs/puppet/ssl/certs/c1.example.com.pem"}) }
  end

  context 'with further settings' do
    let(:params) do
      super().merge('webserver' => { 'max-threads' => 50, 'ssl-protocols' => ['TLSv1.2', 'TLSv1.3'] }, 'disable_ca' => false)
    end

    it { is_expected.to webserver.with_content(/^    max-threads: 50\n    ssl-protocols: \["TLSv1.2", "TLSv1.3"\]\n/) }
    it { is_expected.not_to contain_file("#{confdir}/services.d/ca.cfg") }
  end

  ['port', 'host', 'client-auth', 'ssl-ca-cert'].each do |key|
    context "with #{key} among the further settings" do
      let(:params) { super().merge('webserver' => { key => 8080 }) }

      it { is_expected.to compile.and_raise_error(/unrecognized key '#{key}'/) }
    end
  end

  {
    'a path in place of a certificate' => '/etc/ca.pem',
    'a key' => "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n",
  }.each do |name, value|
    context "with #{name}" do
      let(:params) { super().merge('proxy_ca' => value) }

      it { is_expected.to compile.and_raise_error(/proxy_ca/) }
    end
  end
end
