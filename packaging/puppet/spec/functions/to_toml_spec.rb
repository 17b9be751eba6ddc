# frozen_string_literal: true

require 'spec_helper'

describe 'proscenium::to_toml' do
  def toml(settings)
    subject.execute(settings)
  end

  it 'renders nothing as nothing' do
    expect(toml({})).to eq('')
  end

  it 'renders values before the tables that follow them' do
    settings = { 'pools' => { 'ca' => { 'check' => { 'port' => 1 }, 'members' => ['a:1'] } }, 'workers' => 4, 'tls' => {} }
    expect(toml(settings)).to eq(<<~TOML)
      workers = 4

      [pools.ca]
      members = ["a:1"]

      [pools.ca.check]
      port = 1

      [tls]
    TOML
  end

  it 'renders an array of hashes as tables, and mixed arrays in one line' do
    settings = {
      'routes' => [{ 'name' => 'a', 'path' => { 'prefix' => '/a' } }, { 'name' => 'b' }],
      'members' => ['a:1', { 'address' => 'b:1', 'weight' => 2 }, {}],
    }
    expect(toml(settings)).to eq(<<~TOML)
      members = ["a:1", { address = "b:1", weight = 2 }, {}]

      [[routes]]
      name = "a"

      [routes.path]
      prefix = "/a"

      [[routes]]
      name = "b"
    TOML
  end

  it 'renders numbers, booleans and empty arrays' do
    expect(toml('a' => -1, 'b' => 1.5, 'c' => true, 'd' => false, 'e' => []))
      .to eq("a = -1\nb = 1.5\nc = true\nd = false\ne = []\n")
  end

  it 'quotes keys that are not bare keys' do
    expect(toml('1.3.6.1' => { '' => 'a', "b\"\n" => 1 })).to eq("[\"1.3.6.1\"]\n\"\" = \"a\"\n\"b\\\"\\n\" = 1\n")
  end

  {
    'quotes and backslashes' => ['say "a\b"', 'say \"a\\\\b\"'],
    'line ends and tabs' => ["a\r\n\tb", 'a\r\n\tb'],
    'control characters' => ["\u0000\u0001\b\f\u001f\u007f", '\u0000\u0001\u0008\u000C\u001F\u007F'],
    'Unicode' => ["Zürich \u{1F512} \u2028", "Zürich \u{1F512} \u2028"],
    'what looks like an escape' => ['\u0041 \n', '\\\\u0041 \\\\n'],
    'what looks like a placeholder' => ["\#{a} %{b} $c", "\#{a} %{b} $c"],
    'text in Latin 1' => ['Zürich'.encode('ISO-8859-1'), 'Zürich'],
  }.each do |name, (text, escaped)|
    it "escapes #{name}" do
      expect(toml('a' => text)).to eq("a = \"#{escaped}\"\n")
    end
  end

  it 'writes every character so that another program reads it back' do
    text = ((0..0x2ff).to_a + [0x2028, 0xfeff, 0xffff, 0x1f512, 0x10ffff]).pack('U*')
    settings = { text => text, 'a' => [{ text => [text, { text => text }] }], 'b' => { text => { 'c' => text } } }
    expect(read_toml(toml(settings))).to eq(settings)
  end

  it 'refuses text that is not UTF-8, and names the key' do
    expect { toml('a' => { 'b' => ["\xff"] }) }.to raise_error(ArgumentError, /"a\.b": a string is not valid UTF-8/)
    expect { toml('a' => "\xff".b) }.to raise_error(ArgumentError, /"a": a string is not valid UTF-8/)
  end

  it 'refuses values that TOML does not have, and names the key' do
    expect { toml('a' => { 'b' => nil }) }.to raise_error(ArgumentError, /"a\.b": TOML has no value for undef/)
    expect { toml('a' => [Float::INFINITY]) }.to raise_error(ArgumentError, /"a": Infinity is not a finite number/)
  end

  it { is_expected.to run.with_params('a' => :default).and_raise_error(ArgumentError) }
  it { is_expected.to run.with_params('text').and_raise_error(ArgumentError) }
end
