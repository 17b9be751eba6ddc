# frozen_string_literal: true

require 'spec_helper'
require 'puppet'
# Here, because a provider cannot load gems under rspec-puppet.
require 'hocon'
require 'hocon/parser/config_document_factory'

$LOAD_PATH.unshift(File.join(MODULE, 'lib'))

describe 'proscenium_hocon' do
  around do |example|
    Dir.mktmpdir do |dir|
      @file = File.join(dir, 'auth.conf')
      example.run
    end
  end

  def resource(**parameters)
    type = Puppet::Type.type(:proscenium_hocon)
    type.new({ name: 'a', path: @file, setting: 'authorization.allow-header-cert-info', value: true }.merge(parameters))
  end

  # Applies it as the agent does, and returns whether it changed something.
  def apply(**parameters)
    resource = resource(**parameters)
    value = resource.property(:value)
    return false if value.insync?(value.retrieve)

    value.sync
    true
  end

  let(:rules) { "    # Rules of this site\n    rules: [\n        { allow: \"*\", name: \"a: {\" } // all\n    ]\n" }

  it 'adds the setting once and leaves everything else' do
    File.write(@file, "authorization: {\n    version: 1\n#{rules}}\n")
    expect(apply).to be(true)
    expect(File.read(@file)).to eq("authorization: {\n    version: 1\n#{rules}    allow-header-cert-info: true\n}\n")
    expect(apply).to be(false)
  end

  it 'changes the setting in its place' do
    File.write(@file, "authorization: {\n    allow-header-cert-info: true # why\n#{rules}}\n")
    expect(apply(value: false)).to be(true)
    expect(File.read(@file)).to eq("authorization: {\n    allow-header-cert-info: false # why\n#{rules}}\n")
    expect(apply(value: false)).to be(false)
  end

  it 'keeps the permissions of the file' do
    File.write(@file, "authorization: { version: 1 }\n")
    File.chmod(0o640, @file)
    apply
    expect(File.stat(@file).mode & 0o777).to eq(0o640)
  end

  it 'leaves a file that it cannot parse, and fails' do
    File.write(@file, "authorization: {\n")
    expect { apply }.to raise_error(Hocon::ConfigError)
    expect(File.read(@file)).to eq("authorization: {\n")
  end

  it 'refuses relative paths, other settings and other values' do
    expect { resource(path: 'auth.conf') }.to raise_error(Puppet::Error, /absolute/)
    expect { resource(setting: 'a"b') }.to raise_error(Puppet::Error, /invalid setting/)
    expect { resource(value: 'yes') }.to raise_error(Puppet::Error, /Invalid value/)
  end
end
