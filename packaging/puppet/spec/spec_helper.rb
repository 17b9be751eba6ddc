# frozen_string_literal: true

require 'fileutils'
require 'json'
require 'open3'
require 'tmpdir'
require 'yaml'
require 'rspec-puppet'

MODULE = File.expand_path('..', __dir__)

# A directory of modules in which this one has its name, whatever the name of its own directory is.
MODULES = Dir.mktmpdir('proscenium-spec')
FileUtils.ln_s(MODULE, File.join(MODULES, 'proscenium'))
at_exit { FileUtils.remove_entry(MODULES) if Process.pid == SPEC_PID }
SPEC_PID = Process.pid

DEBIAN = {
  os: { 'family' => 'Debian', 'name' => 'Debian', 'release' => { 'major' => '12' } },
  clientcert: 'puppet.example.com',
}.freeze
# Puppet's own agent package.
REDHAT = {
  os: { 'family' => 'RedHat', 'name' => 'RedHat', 'release' => { 'major' => '9' } },
  clientcert: 'puppet.example.com',
  aio_agent_version: '8.10.0',
}.freeze

SIX_LINES = {
  'listeners' => { 'agents' => { 'address' => '0.0.0.0:8140' } },
  'pools' => {
    'ca' => { 'members' => ['ca.example.com:8140'] },
    'compilers' => { 'members' => ['c1.example.com:8140', 'c2.example.com:8140'] },
  },
}.freeze

# TOML as a second program reads it.
def read_toml(text)
  out, status = Open3.capture2('python3', '-c', <<~PYTHON, stdin_data: text)
    import json, sys, tomllib
    json.dump(tomllib.load(sys.stdin.buffer), sys.stdout)
  PYTHON
  raise "not TOML:\n#{text}" unless status.success?

  JSON.parse(out)
end

RSpec.configure do |config|
  config.module_path = MODULES
  config.setup_fixtures = false
  config.default_facts = DEBIAN
  config.hiera_config = nil
end
