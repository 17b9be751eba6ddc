# frozen_string_literal: true

require 'spec_helper'

describe 'proscenium::ca' do
  let(:confdir) { '/etc/puppet/puppetserver' }
  let(:params) { { 'proxies' => ['puppet.example.com', 'puppet.example.com', 'front2.example.com'] } }

  it { is_expected.to compile.with_all_deps }

  it 'does not trust the headers' do
    is_expected.to contain_proscenium_hocon("#{confdir}/conf.d/auth.conf authorization.allow-header-cert-info").with_value(false)
  end

  it 'adds each proxy to the inventory once' do
    is_expected.to have_exec_resource_count(2)
    is_expected.to contain_exec('proscenium: front2.example.com in the infra inventory')
      .with_unless([['grep', '-qxF', '-e', 'front2.example.com', '/etc/puppet/puppetserver/ca/infra_inventory.txt']])
  end

  it 'writes whole lines to an inventory, whether it exists or not' do
    Dir.mktmpdir do |dir|
      file = File.join(dir, 'infra inventory.txt')
      command = catalogue.resource('exec', 'proscenium: front2.example.com in the infra inventory')[:command]
      run = ->(name) { system(*command[0..3], name, file, exception: true) }
      run.call('a.example.com')
      expect(File.read(file)).to eq("a.example.com\n")
      File.write(file, "# ours\nb.example.com")
      run.call('a.example.com')
      expect(File.read(file)).to eq("# ours\nb.example.com\na.example.com\n")
    end
  end

  context 'without a proxy' do
    let(:params) { { 'proxies' => [] } }

    it { is_expected.to compile.and_raise_error(/proxies/) }
  end
end
