# frozen_string_literal: true

require 'spec_helper'

describe 'Proscenium::Settings' do
  it { is_expected.to allow_value(SIX_LINES) }
  it { is_expected.not_to allow_value('listener' => {}) }

  {
    'an unknown key of a pool' => { 'pools' => { 'ca' => { 'members' => [], 'memebrs' => [] } } },
    'a pool without members' => { 'pools' => { 'ca' => {} } },
    'a duration without a unit' => { 'drain_grace' => '60' },
    'a number as a string' => { 'workers' => '4' },
    'a relative path' => { 'ssldir' => 'ssl' },
    'a path of two kinds' => {
      'routes' => [{ 'name' => 'a', 'pool' => 'b', 'path' => { 'prefix' => '/a', 'exact' => '/a' } }],
    },
    'an unknown word' => { 'pools' => { 'ca' => { 'members' => [], 'algorithm' => 'fastest' } } },
    'undef' => { 'ssldir' => nil },
  }.each do |name, value|
    it("refuses #{name}") { is_expected.not_to allow_value(value) }
  end

  # The project's file with every key of every table. In a copy of the module alone it is absent.
  everything = File.join(MODULE, '../../crates/config/tests/everything.toml')
  if File.exist?(everything)
    settings = read_toml(File.read(everything))
    it 'has every key of the configuration' do
      is_expected.to allow_value(settings)
    end
  end
end
